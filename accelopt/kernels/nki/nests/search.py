"""Searches the nests of an Algorithm: a few to begin with, then single primitives, by simulated time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from accelopt.algorithm.ir import Algorithm, axes_of
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.nests.lowering import Interface, lower_nest
from accelopt.kernels.nki.nests.nest import Nest, NotNested, product_in, ready
from accelopt.kernels.nki.nests.pricing import Prices
from accelopt.kernels.nki.nests.primitives import (
    BESIDE,
    Hold,
    across_partitions,
    changed,
    neighbours,
    read_late,
    rows_read,
)
from accelopt.kernels.nki.nests.starts import (
    on_two_cores,
    starting_nests,
    with_elements_kept,
    with_loads_in_rounds,
    with_operands_summed,
    with_sums_in_runs,
)
from accelopt.kernels.nki.nests.statements import Price
from accelopt.kernels.nki.predicted_times import Refused, Times
from accelopt.sim.dialects.dialect import Dialect

FIRST = 10
"""Nests that are timed to begin with."""
EACH = 8
"""Neighbours that are timed in a round."""
OVERLAPPING = 4
"""Kinds of nests, the cheapest in closed form, that are timed with rounds that overlap."""
ROUNDS = 4
LEAST_GAIN = 0.02
NARROW = 512
"""Columns of instructions that read or write one bank of PSUM."""
FAR = 4.0
"""Times the least closed form of those to begin with: what is not timed, since that takes long."""
LOOSE = 1.25
"""Times the least time that is known: closed forms say more than that where the compiler merges loads."""
HOPELESS = 1.5
"""Times the least time that is known: single primitives bring no slower nest there."""


@dataclass(frozen=True)
class TimedNest:
    """A nest with its price and its simulated time in ms; infinite where the core refuses it, for
    the reason `refusal`."""

    nest: Nest
    price: Price
    latency_ms: float
    refusal: str = ""


@dataclass
class FoundNests:
    """What a search came to: timed nests, fastest first; how many were priced in closed form, and
    why others were refused, with how often."""

    timed: list[TimedNest] = field(default_factory=list)
    priced: int = 0
    refused: dict[str, int] = field(default_factory=dict)


class NestSearch:
    """Times a few nests of an Algorithm to begin with, and single changes of the fastest until none gains 2%."""

    def __init__(
        self, algorithm: Algorithm, interface: Interface = Interface(), target: str = "trn1",  # noqa: B008  (immutable)
        dialect: Dialect = "neuronxcc", *, times: Times,
    ) -> None:  # fmt: skip
        self.algorithm = algorithm
        self.interface = interface
        self.target = target
        self.dialect = dialect
        self.times = times
        self.found = FoundNests()
        self.known = math.inf
        """The least simulated time of what was searched before."""
        self.seen: set[object] = set()
        """The kernels that were timed."""
        self.asked: set[Nest] = set()
        self.apart: list[Nest] | None = None
        """The nests that are searched on their own, when the others were begun with."""
        self.prices = Prices(algorithm, target, dialect, interface)

    def priced(self, nests: Iterable[Nest]) -> list[tuple[Nest, Price]]:
        """Those that have a kernel not timed before, the cheapest in closed form first."""
        made: dict[object, tuple[Nest, Price]] = {}
        for nest in dict.fromkeys(nests):
            try:
                price, text = self.prices.of(nest)
            except NotNested as refusal:
                if nest not in self.asked:
                    self.refuse(str(refusal))
            else:
                self.found.priced += nest not in self.asked
                if text not in self.seen:
                    made.setdefault(text, (nest, price))
            self.asked.add(nest)
        return sorted(made.values(), key=_cost)

    def refuse(self, reason: str) -> None:
        """Counts a refusal."""
        self.found.refused[reason] = self.found.refused.get(reason, 0) + 1

    def time(self, pairs: Sequence[tuple[Nest, Price]], most: float = math.inf) -> None:
        """Times the first kernels of some, at most so many, on the simulated core, but for those whose busiest
        engine alone takes much longer than the fastest."""
        best = min(self.best, self.known)
        made: dict[str, tuple[Nest, Price]] = {}
        for nest, price in pairs:
            if price.ms < LOOSE * best and len(made) < most:
                self.seen.add(self.prices.of(nest).text)
                given = self.algorithm, nest, self.interface, self.target, self.dialect
                source = lower_nest(*given).source
                if source not in self.seen:
                    self.seen.add(source)
                    made[source] = nest, price
        if not made:
            return
        taken = self.times([*made], HOPELESS * best)
        self.found.timed += [
            TimedNest(nest, price, ms, ms.reason if isinstance(ms, Refused) else "")
            for (nest, price), ms in zip(made.values(), taken, strict=True)
        ]
        self.found.timed.sort(key=lambda timed: timed.latency_ms)

    @property
    def best(self) -> float:
        """The least simulated time."""
        return self.found.timed[0].latency_ms if self.found.timed else math.inf

    def first(self) -> float:
        """The least simulated time of the nests to begin with, without those on their own."""
        if self.apart is None:
            starts = list(starting_nests(self.algorithm, self.target, self.prices))
            self.apart = [
                n for n in starts if n.diagonals or shares_what_is_summed(self.algorithm, n)
            ]
            self.start([nest for nest in starts if nest not in self.apart])
        return self.best

    def run(self) -> FoundNests:
        """All of it; from nests with batches side by side, and with diagonals, on their own, so that neither crowds
        out the others."""
        self.first()
        self.descend()
        self.known, first, self.found.timed = self.best, self.found.timed, []
        if self.apart:
            self.start(self.apart)
            self.descend()
        self.found.timed = sorted([*first, *self.found.timed], key=lambda timed: timed.latency_ms)
        return self.found

    def start(self, starts: list[Nest]) -> None:
        """Times some nests to begin with."""
        if self.interface.cores > 1:
            halved = (m for n in starts for m in on_two_cores(self.algorithm, n, self.target))
            self.begin([nest for nest, _ in self.priced(halved)])
        self.begin(starts)

    def descend(self) -> None:
        """Times what single primitives make of the fastest."""
        if not self.found.timed:
            return
        self.time_with(static=True)
        if TARGETS[self.target].reads_in_turn:
            self.time(
                self.priced(with_tiles_beside(t.nest, by) for t in self.fastest() for by in BESIDE)
            )
        tried: set[Nest] = set()
        self.improve(tried)
        # Where rounds overlap, engines hardly wait: what is least in closed form may be the fastest then.
        order = sorted(self.found.timed, key=lambda timed: -timed.price.ms)
        kinds = {_kind(t.nest): t for t in order if t.latency_ms < math.inf}
        cheap = sorted(kinds.values(), key=lambda timed: timed.price.ms)[:OVERLAPPING]
        chosen = (timed.nest for timed in (*self.fastest(), *cheap))
        self.time(self.priced(with_stages(nest, {"overlaps": True}) for nest in chosen))
        if any(stage.overlaps for stage in self.found.timed[0].nest.stages):
            self.improve(tried)
        # Closed forms say nothing of what is brought early.
        for timed in self.fastest():
            self.time(self.changed(timed, early=True))
        near = (timed.nest for timed in self.fastest())
        self.time(self.priced(n for nest in near for n in with_elements_kept(self.algorithm, nest)))
        self.time_with(parts=True)
        most = LEAST_GAIN * self.best * 1e6 * TARGETS[self.target].dma_peak_bytes_per_ns
        rounds = [
            n
            for t in self.fastest()
            for n in with_loads_in_rounds(self.algorithm, t.nest, self.target, most)
        ]
        overlapping = [with_stages(nest, {"overlaps": True}) for nest in rounds]
        self.time(self.priced([*rounds, *overlapping]), EACH)
        whole = [timed.nest for timed in self.fastest()]
        summed = [with_operands_summed(self.algorithm, nest) for nest in whole]
        runs = (with_sums_in_runs(self.algorithm, nest, self.target) for nest in [*whole, *summed])
        self.time(self.priced([*summed, *(made for made in runs if made is not None)]))
        for _ in range(ROUNDS):
            before = self.best
            self.time(self.priced(self.on_engines(self.found.timed[0].nest)), EACH)
            if self.best > before * (1 - LEAST_GAIN):
                break

    def improve(self, tried: set[Nest]) -> None:
        """Times what single primitives make of the fastest nest, and to begin with of the fastest of another kind,
        if they were not `tried`, until they gain little."""
        for _ in range(ROUNDS):
            before = self.best
            for timed in self.fastest()[: 1 if tried else 2]:
                if timed.nest in tried or timed.latency_ms > HOPELESS * self.best:
                    continue
                tried.add(timed.nest)
                near = sorted((*self.changed(timed), *self.changed(timed, early=True)), key=_cost)
                self.time(near, EACH)
            if self.best > before * (1 - LEAST_GAIN):
                break

    def time_with(self, **update: bool) -> None:
        """Times the fastest nests with some fields of all stages changed."""
        self.time(self.priced(with_stages(timed.nest, update) for timed in self.fastest()))

    def begin(self, starts: Sequence[Nest]) -> None:
        """Times the cheapest nests of some to begin with, and of what they are with wide instructions, rows
        spread, operands resident; then, of those with arrays transposed."""
        here, starts = ([n for n in starts if bool(n.brought) == of] for of in (True, False))
        turned = [
            made for nest in starts if (made := with_arrays_turned(self.algorithm, nest)).turned
        ]
        to_all = self.priced(filter(comes_to_all, self.varied(starts)))
        first = self.priced(nest for nest in self.varied(starts) if not comes_to_all(nest))
        near = [p for p in first[:FIRST] if p[1].ms < FAR * first[0][1].ms]
        self.time(near)
        if self.best == math.inf:
            self.time(first[len(near) :])
        self.time(self.priced(turned), FIRST // 2)
        self.time(to_all, FIRST // 5)
        self.time(self.priced(self.varied(here)), FIRST // 2)

    def varied(self, starts: Sequence[Nest]) -> Iterator[Nest]:
        """Nests, and what they are with wide instructions, rows spread, operands resident."""
        yield from starts
        yield from (with_columns(nest, columns) for nest in starts for columns in (2048, 8192))
        for with_ in (with_rows_spread, with_operands_resident):
            for nest in starts:
                made = with_(self.algorithm, with_columns(nest, NARROW))
                if made.spread or made.resident:
                    yield made

    def fastest(self) -> list[TimedNest]:
        """The fastest nest, and the fastest of another kind."""
        best = self.found.timed[0]
        others = (timed for timed in self.found.timed if _kind(timed.nest) != _kind(best.nest))
        return [best, *itertools.islice(others, 1)]

    def on_engines(self, nest: Nest) -> Iterator[Nest]:
        """A nest with one definition on an engine of its own: what waits for what decides which is best."""
        own = dict(nest.engines)
        for stage in nest.stages:
            for name in stage.members:
                for engine in ("vector", "scalar"):
                    if own.get(name) != engine:
                        made = {**own, name: engine}
                        yield nest.but(engines=tuple(made.items()))

    def changed(self, timed: TimedNest, early: bool = False) -> list[tuple[Nest, Price]]:
        """What single primitives make of a nest: all but those that bring an input early, or those."""
        made: list[Nest] = []
        late = read_late(self.algorithm, timed.nest)
        for primitive in neighbours(self.algorithm, timed.nest, self.target):
            if (isinstance(primitive, Hold) and primitive.definition in late) == early:
                try:
                    made.append(changed(primitive, self.algorithm, timed.nest, self.target))
                except NotNested as refusal:
                    self.refuse(str(refusal))
        most = timed.price.moved if early else math.inf
        return [pair for pair in self.priced(made) if pair[1].moved <= most]


def _kind(nest: Nest) -> tuple[object, ...]:
    """What nests of one kind have in common: what is computed together, and what lies on partitions."""
    return tuple((stage.members, tuple(p.axis for p in stage.partition)) for stage in nest.stages)


def comes_to_all(nest: Nest) -> bool:
    """Whether what a stage combines over what it has on partitions comes to all of them."""
    return any(
        names == tuple(part.axis for part in stage.partition)
        for stage in nest.stages
        for _, names in stage.laid
    )


def shares_what_is_summed(algorithm: Algorithm, nest: Nest) -> bool:
    """Whether several products of a batch lie on partitions beside each other, in what they sum over."""
    own = {d.out: {axis.name for axis in d.axes} for d in ready(algorithm, nest).definitions}
    return any(parts[0].axis in own[name] for name, parts in nest.contracted)


def _cost(pair: tuple[Nest, Price]) -> tuple[float, float]:
    """The busiest engine's time, then that of all."""
    return pair[1].ms, sum(pair[1].engines.values())


def with_stages(nest: Nest, update: Mapping[str, object]) -> Nest:
    """All stages with some fields changed."""
    return nest.each_stage(lambda stage: stage.but(**update))


def with_tiles_beside(nest: Nest, engine: str) -> Nest:
    """With one of two tiles that Vector takes in PSUM, in all definitions."""
    members = (name for stage in nest.stages for name in stage.members)
    pairs = tuple((name, engine) for name in members) if engine != "none" else ()
    return nest.but(beside=pairs)


def with_columns(nest: Nest, columns: int) -> Nest:
    """All stages with instructions of that many columns."""
    return with_stages(nest, {"columns": columns})


def with_rows_spread(algorithm: Algorithm, nest: Nest) -> Nest:
    """With all rows that all partitions read alike spread by the Tensor engine."""
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    pairs: list[tuple[str, str]] = []
    for stage in nest.stages:
        members = [definitions[name] for name in stage.members]
        pairs += rows_read(members, stage.lying)
    return nest.but(spread=tuple(pairs))


def with_arrays_turned(algorithm: Algorithm, nest: Nest) -> Nest:
    """With all arrays that lie in memory along what is on partitions transposed by the Tensor engine, but for the
    results of products, which have either of their axes there."""
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    found = [pair for s in nest.stages for pair in across_partitions(s, definitions)]
    pairs = tuple(pair for pair in found if not product_in(definitions[pair[0]]))
    return nest.but(turned=pairs)


def with_operands_resident(algorithm: Algorithm, nest: Nest) -> Nest:
    """With the operands of products resident that are the same for all rows."""
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    pairs: list[tuple[str, str]] = []
    for stage in nest.stages:
        for name in stage.members:
            found = product_in(definitions[name])
            if found is not None and found.rows and found.columns:
                sides = {"left": found.left, "right": found.right}
                pairs += [
                    (name, side)
                    for side, operand in sides.items()
                    if not stage.lying & {axis.name for axis in axes_of(operand)}
                ]
    return nest.but(resident=tuple(pairs))


def described(nest: Nest) -> str:
    """A nest in one sentence, without its full stop."""
    words = []
    for stage in nest.stages:
        lying = " and ".join(f"{part.size} of {part.axis}" for part in stage.partition)
        words.append(f"{', '.join(stage.members)} with {lying or 'one row'} on partitions")
    cores = ", halves on two cores" if nest.cores else ""
    return f"Rewrite: {'; then '.join(words)}{cores}"
