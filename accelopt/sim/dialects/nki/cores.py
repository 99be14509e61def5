"""The two cores of a logical core (LNC 2), or the ranks of a launch: programs, recorded one after the other up
to the places where they wait for each other.

A core's Python runs in a thread of its own; the recording belongs to one of them at a time. At a
barrier or an exchange the other takes over, so what stands before it in either core comes before what
stands after it in both. What both recorded up to there is put side by side, as cores that run at the same
time come to it; where they use the same elements of HBM then, the kernel is refused (`races`).
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Container
from typing import Any, NamedTuple, NoReturn

from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.neuronxcc.builder import fail, transfer
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki.call_conventions import generation, transferred
from accelopt.sim.dialects.nki.races import Values, races
from accelopt.sim.errors import KernelValueError, SourceLine, Unsupported
from accelopt.sim.isa.indexed import CORE_BARRIER
from accelopt.sim.program import Engine, ProgramNode, Tensor
from accelopt.sim.tracer import Tracer, current


class _Together:
    """Programs under way, of which one has its turn."""

    def __init__(self, tracer: Tracer, count: int) -> None:
        self.tracer = tracer
        self.turn = 0
        self.changed = threading.Condition()
        self.done = [False] * count
        self.failed: BaseException | None = None

    def wait_for(self, core: int) -> None:
        """Sleeps until it is this core's turn. Raises _Ended when another one failed."""
        with self.changed:
            while self.turn != core and self.failed is None:
                self.changed.wait()
            if self.failed is not None and self.turn != core:
                raise _Ended

    def give(self, to: int) -> None:
        """Another core's turn."""
        with self.changed:
            self.turn = to
            self.changed.notify_all()

    def arrived(self, core: int) -> None:
        """One core has come to its end."""

    def next(self, core: int) -> int:
        """Whose turn it is after the end of one."""
        return 1 - core


class Offer(NamedTuple):
    """A collective that a rank has come to: its name, what must be alike on all ranks, and its operands."""

    name: str
    form: tuple[object, ...]
    side: Any


class NeedsRanks(BaseException):
    """A kernel that is traced as one program speaks to other ranks: to so many in all, or to an unknown
    number (0). Not an Exception, as NeedsConcrete."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(count)


class Ranks(_Together):
    """The ranks of a launch under way."""

    def __init__(self, tracer: Tracer, count: int) -> None:
        super().__init__(tracer, count)
        self.offers: dict[int, tuple[Offer, SourceLine]] = {}
        self.shared: list[Tensor] = []  # in HBM, of the ranks that have ended

    def meet(self, offer: Offer) -> list[Any] | None:
        """What all ranks bring to a collective, for the last one to come; None for the others, later."""
        me, place = self.tracer.core, running_line()
        self.offers[me] = offer, place
        first, where = self.offers[min(self.offers)]
        if offer[:2] != first[:2]:
            what = offer.name if offer.name != first.name else f"{offer.name} of other operands"
            said = f"rank {me} comes to {what}, and rank {min(self.offers)} to {first.name} at {where}."
            mend = "All ranks take part in the same collectives, in one order, with tensors alike."
            fail(KernelValueError("collective", said, mend))
        if (left := self._under_way()) or any(self.done):
            if not left:
                self._lacking()
            _wait(self, left[0], f"collectives.{offer.name}")
            return None
        sides = [self.offers[rank][0].side for rank in range(len(self.done))]
        self.offers.clear()
        return sides

    def _under_way(self) -> list[int]:
        return [n for n, done in enumerate(self.done) if not done and n not in self.offers]

    def _lacking(self) -> NoReturn:
        """Raises for ranks that wait for one that has ended."""
        offer, place = self.offers[min(self.offers)]
        gone = ", ".join(str(n) for n, done in enumerate(self.done) if done)
        said = f"rank {gone} has ended without {offer.name}, for which rank {min(self.offers)} waits at {place}."
        fail(KernelValueError("collective", said, "All ranks take part in it.", place))

    def arrived(self, core: int) -> None:
        """One rank has come to its end."""
        self.done[core] = True
        self.shared += self.tracer.shared
        self.tracer.shared = self.shared if all(self.done) else []
        if self.offers and not self._under_way():
            self._lacking()

    def next(self, core: int) -> int:
        """Whose turn it is after the end of one."""
        return next(iter(self._under_way()), core)


class Pair(_Together):
    """Two cores under way."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, 2)
        self.offers: dict[int, tuple[TensorView, TensorView, object]] = {}
        self.begin = 0  # of what both have recorded since they last met, in the outermost body
        self.middle: int | None = None  # where the part of the second core begins
        self.first = 0  # the core whose part that is
        self.values = [Values(_Common(tracer)) for _ in range(2)]

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


def run(tracer: Tracer, program: Callable[[int], Any], count: int, ranks: int = 0) -> Any:
    """What core 0 returns, after both (or the only one) have run; of ranks what each returns."""
    if count == 1 and not ranks:
        return program(0)
    pair = Ranks(tracer, ranks) if ranks else Pair(tracer)
    tracer.pair = pair
    answers: list[Any] = [None] * len(pair.done)

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
            pair.give(pair.next(number))

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(core, n))
        for n in range(len(pair.done))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracer.pair, tracer.core = None, 0
    if pair.failed is not None:
        raise pair.failed
    return tuple(answers) if ranks else answers[0]


def _switch(pair: Pair, me: int, what: str) -> None:
    """The other core runs until it waits too."""
    if pair.done[1 - me]:
        fail(KernelValueError(what, f"core {me} waits for core {1 - me}, which has ended."))
    _wait(pair, 1 - me, f"nisa.{what}")


def _wait(pair: _Together, other: int, what: str) -> None:
    """Another program runs, and others after it, until it is this one's turn again."""
    tracer = current()
    kept = (tracer.grid, tracer.shared_cursor, tracer.depth, tracer.core, tracer.iterations)
    shared = tracer.shared
    if tracer.device_loops:
        mend = "It would take two cores that run at the same time."
        raise Unsupported(f"{what} inside of a loop of the device", mend, running_line())
    around = {body.variable for body in tracer.bodies if body.variable is not None}
    if around:  # cores meet in each iteration anew
        tracer.demand(frozenset(around))
    me = tracer.core
    if isinstance(pair, Ranks):
        tracer.shared = []
    pair.give(other)
    pair.wait_for(me)
    tracer.grid, tracer.shared_cursor, tracer.depth, tracer.core, tracer.iterations = kept
    tracer.shared = shared if isinstance(pair, Ranks) else tracer.shared


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
    barrier(engine, **named)
    pair.arrived(me)
    _switch(pair, me, "core_barrier")


def world() -> int:
    """How many ranks the launch has. Raises NeedsRanks where the kernel is traced as one program."""
    together = current().pair
    if not isinstance(together, Ranks):
        raise NeedsRanks(0)
    return len(together.done)


def ranks(count: int) -> Ranks:
    """The ranks under way, so many. Raises NeedsRanks where the kernel is traced as one program."""
    together = current().pair
    if count == 1 and together is None:
        return Ranks(current(), 1)
    if not isinstance(together, Ranks):
        raise NeedsRanks(count)
    if len(together.done) != count:
        said = f"a replica group of {count} ranks, in a launch of {len(together.done)}."
        fail(KernelValueError("replica_group", said, "Name every rank of the launch."))
    return together


def barrier(engine: Engine | None = None, **named: int) -> None:
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
    barrier()
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
