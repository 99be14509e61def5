"""The two cores of a logical core (LNC 2): two programs, recorded one after the other up to the places
where they wait for each other.

A core's Python runs in a thread of its own; the recording belongs to one of them at a time. At a
barrier or an exchange the other takes over, so what stands before it in either core comes before what
stands after it in both. What both recorded up to there is put side by side, as cores that run at the same
time come to it; where they use the same elements of HBM then, the kernel is refused (`races`).
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Container
from typing import Any

from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.neuronxcc.builder import fail, transfer
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki.call_conventions import generation, transferred
from accelopt.sim.dialects.nki.races import Values, races
from accelopt.sim.errors import KernelValueError, Unsupported
from accelopt.sim.isa.indexed import CORE_BARRIER
from accelopt.sim.program import Engine, ProgramNode, Tensor
from accelopt.sim.tracer import Tracer, current


class Pair:
    """Two cores under way."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.turn = 0
        self.changed = threading.Condition()
        self.done = [False, False]
        self.failed: BaseException | None = None
        self.offers: dict[int, tuple[TensorView, TensorView, object]] = {}
        self.begin = 0  # of what both have recorded since they last met, in the outermost body
        self.middle: int | None = None  # where the part of the second core begins
        self.first = 0  # the core whose part that is
        self.values = [Values(_Common(tracer)) for _ in range(2)]

    def wait_for(self, core: int) -> None:
        """Sleeps until it is this core's turn. Raises _Ended when the other one failed."""
        with self.changed:
            while self.turn != core and self.failed is None:
                self.changed.wait()
            if self.failed is not None and self.turn != core:
                raise _Ended

    def give(self, to: int) -> None:
        """The other core's turn."""
        with self.changed:
            self.turn = to
            self.changed.notify_all()

    def arrived(self, core: int) -> None:
        """One core has come to where both meet, or to its end."""
        nodes = self.tracer.bodies[0].nodes
        if self.middle is None:
            self.middle, self.first = len(nodes), core
            return
        parts = nodes[self.begin : self.middle], nodes[self.middle :]
        uses = [self.values[n].uses(parts[n != self.first]) for n in range(2)]
        if unclear := self.values[0].unclear | self.values[1].unclear:
            self.tracer.demand(frozenset(unclear))
        for error in races(uses):
            self.tracer.refuse(error)
        for tensor in {**uses[0], **uses[1]}:  # from here on both see what both have written
            both = hash(tuple(values.held[tensor] for values in self.values))
            for values in self.values:
                values.held[tensor] = both
        nodes[self.begin :] = _side_by_side(*parts)
        self.begin, self.middle = len(nodes), None


class _Common(Container[Tensor]):
    """The tensors that both cores have: the kernel's arguments and those in shared HBM."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def __contains__(self, tensor: object) -> bool:
        return tensor in self.tracer.arguments or tensor in self.tracer.shared


def _side_by_side(one: list[ProgramNode], other: list[ProgramNode]) -> list[ProgramNode]:
    """Both in their own order, each as far as the other."""
    places = [(n / len(part), core, node)
              for core, part in enumerate((one, other)) for n, node in enumerate(part)]  # fmt: skip
    return [node for _, _, node in sorted(places, key=lambda place: place[:2])]


class _Ended(BaseException):
    """The other core's recording failed."""


def run(tracer: Tracer, program: Callable[[int], Any], count: int) -> Any:
    """What core 0 returns, after both (or the only one) have run."""
    if count == 1:
        return program(0)
    pair = Pair(tracer)
    tracer.pair = pair
    answers: list[Any] = [None, None]

    def core(number: int) -> None:
        try:
            pair.wait_for(number)
            tracer.core, tracer.iterations = number, []
            answers[number] = program(number)
            pair.arrived(number)
        except _Ended:
            pass
        except BaseException as error:
            pair.failed = pair.failed or error
        finally:
            pair.done[number] = True
            pair.give(1 - number)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(core, n)) for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracer.pair, tracer.core = None, 0
    if pair.failed is not None:
        raise pair.failed
    return answers[0]


def _switch(pair: Pair, me: int, what: str) -> None:
    """The other core runs until it waits too."""
    tracer = current()
    kept = (tracer.grid, tracer.shared_cursor, tracer.depth, tracer.core, tracer.iterations)
    if tracer.device_loops:
        mend = "It would take two cores that run at the same time."
        raise Unsupported(f"nisa.{what} inside of a loop of the device", mend, running_line())
    around = {body.variable for body in tracer.bodies if body.variable is not None}
    if around:  # cores meet in each iteration anew
        tracer.demand(frozenset(around))
    if pair.done[1 - me]:
        fail(KernelValueError(what, f"core {me} waits for core {1 - me}, which has ended."))
    pair.give(1 - me)
    pair.wait_for(me)
    tracer.grid, tracer.shared_cursor, tracer.depth, tracer.core, tracer.iterations = kept


def _me(what: str) -> tuple[Pair, int]:
    tracer = current()
    pair = tracer.pair
    if not isinstance(pair, Pair):
        mend = "Launch the kernel as kernel[2](...)."
        fail(KernelValueError(what, f"nisa.{what} needs the two cores of a logical core.", mend))
    if generation() < 3:
        fail(KernelValueError(what, f"nisa.{what} needs NeuronCore-v3."))
    return pair, int(tracer.grid[0])  # type: ignore[call-overload]


def meet(wanted: tuple[int, ...], data: object, engine: Engine | None) -> None:
    """A barrier: both cores get here before either goes on."""
    if wanted != (0, 1):
        fail(KernelValueError("core_barrier", f"cores {wanted}: only (0, 1) is possible."))
    pair, me = _me("core_barrier")
    named = {"tensor": data.storage.id} if isinstance(data, TensorView) else {}
    _barrier(engine, **named)
    pair.arrived(me)
    _switch(pair, me, "core_barrier")


def _barrier(engine: Engine | None = None, **named: int) -> None:
    """One core's part of a barrier."""
    current().emit(CORE_BARRIER, outputs={}, inputs={}, attributes={**named}, engine=engine)


def exchange(
    source: TensorView, target: TensorView, send_to: int, receive_from: int, pipe: object
) -> None:
    """Both cores send a tile to the other and receive one."""
    pair, me = _me("sendrecv")
    if (send_to, receive_from) == (me, me):
        into, moved = transferred("sendrecv", target, source)
        transfer(into, moved)
        return
    if send_to != 1 - me or receive_from != 1 - me:
        said = f"core {me} sends to {send_to} and receives from {receive_from}."
        fail(KernelValueError("sendrecv", said, "Both must be the other core."))
    pair.offers[me] = (source, target, pipe)
    _barrier()
    pair.arrived(me)
    if 1 - me not in pair.offers:
        _switch(pair, me, "sendrecv")
        return
    sent_values = [pair.values[n].form(pair.offers[n][0].access()) for n in (0, 1)]
    for sender in (0, 1):
        sent, into = pair.offers[sender][0], pair.offers[1 - sender][1]
        if sent.dtype != into.dtype:
            fail(KernelValueError("sendrecv", "the tiles of both cores differ in format."))
        into, moved = transferred("sendrecv", into, sent)
        current().core = sender
        transfer(into, moved)
        pair.values[1 - sender].write(into.storage, sent_values[sender])
    current().core = me
    pair.offers.clear()
    pair.begin = len(current().bodies[0].nodes)
