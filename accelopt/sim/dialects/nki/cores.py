"""The two cores of a logical core (LNC 2), or the ranks of a launch: programs, recorded one after the other up
to the places where they wait for each other.

A core's Python runs in a thread of its own; the recording belongs to one of them at a time. At a
barrier or an exchange the other takes over, so what stands before it in either core comes before what
stands after it in both. What both recorded up to there is put side by side, as cores that run at the same
time come to it; where they use the same elements of HBM then, the kernel is refused (`races`).
"""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections.abc import Callable, Container
from typing import Any, NamedTuple, NoReturn

from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.neuronxcc.builder import fail, generation, transfer
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki.call_conventions import transferred
from accelopt.sim.dialects.nki.races import Values, races
from accelopt.sim.errors import KernelValueError, SourceLine, Unsupported
from accelopt.sim.isa.indexed import CORE_BARRIER
from accelopt.sim.isa.limits import CORES
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
    """The ranks of a launch under way, each a core or a logical core of two."""

    def __init__(self, tracer: Tracer, count: int, cores: int = 1) -> None:
        super().__init__(tracer, count * cores)
        self.count, self.cores = count, cores
        self.offers: dict[int, tuple[Offer, SourceLine]] = {}
        self.prepared: dict[int, Any] = {}  # split collectives that wait for their trigger, by core
        self.shared: list[list[Tensor]] = [[] for _ in range(count)]  # in HBM, of each rank
        self.pairs = [Pair(tracer, self, rank * 2) for rank in range(count * (cores - 1))]

    def named(self, core: int) -> str:
        """A core in the words of an error."""
        own = f"core {core % self.cores} of " * (self.cores > 1)
        return f"{own}rank {core // self.cores}"

    def meet(self, offer: Offer) -> list[Any] | None:
        """What all cores bring to a collective, for the last one to come; None for the others, later."""
        me, place = self.tracer.core, running_line()
        self.offers[me] = offer, place
        first, where = self.offers[earliest := min(self.offers)]
        if offer[:2] != first[:2]:
            what = offer.name if offer.name != first.name else f"{offer.name} of other operands"
            said = f"{self.named(me)} comes to {what}, and {self.named(earliest)} to {first.name} at {where}."
            mend = "All ranks take part in the same collectives, in one order, with tensors alike."
            fail(KernelValueError("collective", said, mend))
        self._of_pair(me)
        if (left := self._under_way()) or any(self.done):
            if not left:
                self._lacking()
            _wait(self, left[0], f"collectives.{offer.name}")
            return None
        sides = [self.offers[core][0].side for core in range(len(self.done))]
        self.offers.clear()
        self._known(sides, offer)
        return sides

    def _known(self, sides: list[Any], offer: Offer) -> None:
        """What the cores of each rank hold of each other's values then: both got the same of the same."""
        values = [one for pair in self.pairs for one in pair.values]
        sent = [
            [v.form(view.access()) for view in side[0]]
            for v, side in zip(values, sides, strict=False)
        ]
        for n, own in enumerate(values):
            for tensor in {
                view.storage for view in (*sides[n][1], sides[n][2]) if view is not None
            }:
                own.write(tensor, hash((repr(offer[:2]), *map(tuple, sent[n % 2 :: 2]))))
        for pair in self.pairs:
            for tensor in {tensor for one in pair.values for tensor in one.held}:
                pair.agree(tensor)

    def go_on(self) -> None:
        """After a collective the first rank's cores run first, so that those of a rank follow one another."""
        if self.pairs and self.tracer.core and not self.done[0]:
            _wait(self, 0, "collectives")

    def _of_pair(self, core: int) -> None:
        if self.pairs:
            self.pairs[core // 2].arrived(core % 2)

    def _under_way(self) -> list[int]:
        return [n for n, done in enumerate(self.done) if not done and n not in self.offers]

    def _lacking(self) -> NoReturn:
        """Raises for ranks that wait for one that has ended."""
        offer, place = self.offers[earliest := min(self.offers)]
        gone = " and ".join(self.named(n) for n, done in enumerate(self.done) if done)
        said = f"{gone} has ended without {offer.name}, for which {self.named(earliest)} waits at {place}."
        fail(KernelValueError("collective", said, "All ranks take part in it.", place))

    def arrived(self, core: int) -> None:
        """One core has come to its end."""
        if core in self.prepared:
            name = self.prepared[core].name
            fail(KernelValueError("collective", f"{name}_prepare has no {name}_trigger after it."))
        self.done[core] = True
        self._of_pair(core)
        if self.offers and not self._under_way():
            self._lacking()

    def next(self, core: int) -> int:
        """Whose turn it is after the end of one."""
        return next(iter(self._under_way()), core)


class Pair(_Together):
    """Two cores under way: by themselves, or from core `first_core` on `among` those of all ranks."""

    def __init__(self, tracer: Tracer, among: _Together | None = None, first_core: int = 0) -> None:
        super().__init__(tracer, 2)
        self.among, self.first_core = among or self, first_core
        self.offers: dict[int, tuple[TensorView, TensorView, object]] = {}
        self.begin = 0  # of what both have recorded since they last met, in the outermost body
        self.middle: int | None = None  # where the part of the second core begins
        self.first = 0  # the core whose part that is
        self.common = _Common(tracer)
        self.values = [Values(self.common) for _ in range(2)]

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
        for tensor in {**uses[0], **uses[1]}:
            self.agree(tensor)
        nodes[self.begin :] = _side_by_side(*parts)
        self.begin, self.middle = len(nodes), None

    def agree(self, tensor: Tensor) -> None:
        """From here on both cores see what both have written into a tensor that both have."""
        if tensor not in self.common:
            return
        both = hash(tuple(values.held[tensor] for values in self.values))
        for values in self.values:
            values.held[tensor] = both


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
    pair = Ranks(tracer, ranks, count) if ranks else Pair(tracer)
    tracer.pair, tracer.cores_of_rank = pair, count
    answers: list[Any] = [None] * len(pair.done)

    def core(number: int) -> None:
        try:
            pair.wait_for(number)
            tracer.core, tracer.iterations = number, []
            if isinstance(pair, Ranks):
                tracer.shared = pair.shared[tracer.rank]
            _resumed(tracer)
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
    if isinstance(pair, Ranks):
        tracer.shared = [*itertools.chain.from_iterable(pair.shared)]
    return tuple(answers[::count]) if ranks else answers[0]


def _switch(pair: Pair, me: int, what: str) -> None:
    """The other core runs until it waits too."""
    other = pair.first_core + 1 - me
    if pair.among.done[other]:
        fail(KernelValueError(what, f"core {me} waits for core {1 - me}, which has ended."))
    if isinstance(pair.among, Ranks) and other in pair.among.offers:
        said = f"core {me} waits for core {1 - me}, which waits for other ranks at {{}}."
        fail(KernelValueError(what, said.format(pair.among.offers[other][1])))
    _wait(pair.among, other, f"nisa.{what}")


def _resumed(tracer: Tracer) -> None:
    """What other ranks have recorded meanwhile is none of this one's pair."""
    if isinstance(tracer.pair, Ranks) and tracer.pair.pairs:
        pair = tracer.pair.pairs[tracer.rank]
        if pair.middle is None:
            pair.begin = len(tracer.bodies[0].nodes)


def _wait(pair: _Together, other: int, what: str) -> None:
    """Another program runs, and others after it, until it is this one's turn again."""
    tracer = current()
    kept = (tracer.grid, tracer.shared_cursor, tracer.depth, tracer.core, tracer.iterations)
    shared = tracer.shared  # of this rank
    if tracer.device_loops:
        mend = "It would take two cores that run at the same time."
        raise Unsupported(f"{what} inside of a loop of the device", mend, running_line())
    around = {body.variable for body in tracer.bodies if body.variable is not None}
    if around:  # cores meet in each iteration anew
        tracer.demand(frozenset(around))
    me = tracer.core
    pair.give(other)
    pair.wait_for(me)
    tracer.grid, tracer.shared_cursor, tracer.depth, tracer.core, tracer.iterations = kept
    tracer.shared = shared
    _resumed(tracer)


def _me(what: str) -> tuple[Pair, int]:
    tracer = current()
    pair = tracer.pair
    if isinstance(pair, Ranks) and pair.pairs:
        pair = pair.pairs[tracer.rank]
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
    if len(together.done) > (most := CORES[generation()]):
        of = f" of {together.cores} cores" * (together.cores > 1)
        mend = f"A chip of {current().target} has {most} cores."
        raise Unsupported(f"a launch on {together.count} ranks{of}", mend, running_line())
    current().spoke = True
    return together.count


def ranks(count: int) -> Ranks:
    """The ranks under way, so many. Raises NeedsRanks where the kernel is traced as one program."""
    together = current().pair
    if count == 1 and together is None:
        return Ranks(current(), 1)
    if not isinstance(together, Ranks):
        raise NeedsRanks(count)
    if world() != count:
        said = f"a replica group of {count} ranks, in a launch of {together.count}."
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
        current().core = pair.first_core + sender
        transfer(into, moved)
        pair.values[1 - sender].receive(into.access(), sent_values[sender])
    current().core = pair.first_core + me
    pair.offers.clear()
    pair.begin = len(current().bodies[0].nodes)
