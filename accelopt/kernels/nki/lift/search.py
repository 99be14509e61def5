"""The search over schedules: closed forms first, then the simulated time of the most promising.

Neither needs data. Thousands of schedules are priced in closed form; a handful is traced and timed on
the simulated core, then the neighbours of the fastest, in child processes. What comes back has not
been verified: that is for the referee.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accelopt.algorithm.algorithm import Algorithm
from accelopt.kernels.nki.lift.emission.flattening import (
    ROWS,
    flat_elements,
    flat_offsets,
)
from accelopt.kernels.nki.lift.emission.graph import Graph, NotLowered
from accelopt.kernels.nki.lift.emission.phases import Phases, roles_of, row_axes, why_no_rows
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.emission.row_packing import beside_counts
from accelopt.kernels.nki.lift.lowering import Interface, Lowered, lower
from accelopt.kernels.nki.lift.schedule import (
    Operand,
    ReductionForm,
    ResourceShort,
    ResultForm,
    Schedule,
    Streaming,
)
from accelopt.time_limits import INSPECTION_SECONDS

COLUMNS = (512, 1024, 2048, 4096, 8192)
FLAT_COLUMNS = (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
ROW_TILES = (1, 2, 4, 8)
STREAMING: tuple[Streaming, ...] = ("resident", "columns", "accumulate")
RESULTS: tuple[ResultForm, ...] = ("rows", "turned")
REDUCTIONS: tuple[ReductionForm, ...] = ("along", "across")
OPERANDS: tuple[Operand, ...] = ("transposed", "squares", "direct")
WAYS_ROUND: tuple[Operand, ...] = ("transposed", "direct")
"""Of OPERANDS, those that a search begins with: squares are a single change away."""
MOST_PRICED = 600
DESCENTS = 6
LEAST_CHANGE = 0.002
"""Of the price, that a step of a descent must save."""
NEAR_ENOUGH = 1.02
"""Times the least price: nothing that the closed forms know of is faster."""
MOST_OVER = 1.5
"""Times the best simulated time, beyond which the price of a neighbour is not looked into."""


MOST_REASONS = 3

NOT_KNOWN = "the reason is not known"


class Refused(float):
    """An infinite time, and the rule that the kernel breaks."""

    reason: str

    def __new__(cls, reason: str) -> Refused:
        """An infinite number that knows its reason."""
        made = super().__new__(cls, math.inf)
        made.reason = reason
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return Refused, (self.reason,)


Times = Callable[[Sequence[str]], Sequence[float]]
"""The predicted milliseconds of kernels, in order; infinitely many for one that breaks a rule, as
`Refused` where it is known which."""


class AbstractArgument(NamedTuple):
    """What a kernel is given: a tensor's shape and format, or a plain value."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    value: float | int | bool | str | None = None


@dataclass(frozen=True)
class TimedSchedule:
    """A schedule with its kernel and its simulated time; infinite where the core refuses it, for the
    reason `refusal`, empty where it is not known."""

    schedule: Schedule
    lowered: Lowered
    latency_ms: float
    refusal: str = ""


@dataclass
class Found:
    """What a search came to: timed schedules, fastest first; how many were priced in closed form,
    and why the others were refused, with how often."""

    timed: list[TimedSchedule] = field(default_factory=list)
    priced: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    shortages: dict[str, str] = field(default_factory=dict)
    """For a resource that schedules were refused for, what the first of them asks of it."""


def commonest(refused: Mapping[str, int], shortages: Mapping[str, str] | None = None) -> str:
    """The reasons that most schedules were refused for, in words."""
    most = sorted(refused, key=refused.__getitem__, reverse=True)[:MOST_REASONS]
    return "; ".join((shortages or {}).get(reason, reason) for reason in most) or NOT_KNOWN


def schedules(graph: Graph, refused: dict[str, int] | None = None) -> Iterator[Schedule]:
    """Schedules from which all others are reached by single changes, whether or not the hardware
    can hold them: each axis that can be rows, with each way to move operands for all of them. Why an
    axis cannot be rows is counted in `refused`."""
    refused = {} if refused is None else refused
    if flat_elements(graph):
        for columns in _flat_columns(flat_offsets(graph)):
            for width in sorted({columns, *(min(columns, most) for most in COLUMNS)}):
                yield Schedule(rows=ROWS, flat=columns, columns=width)
        return
    axes = row_axes(graph)
    if not axes:
        refused[why_no_rows(graph)] = 1
    for axis in axes:
        try:
            plan = Phases(roles_of(graph, axis.name), Schedule(rows=axis.name))
        except NotLowered as refusal:
            reason = f"with rows along {axis.name}: {refusal}"
            refused[reason] = refused.get(reason, 0) + 1
            continue
        streams = STREAMING if plan.products else STREAMING[:1]
        ways = itertools.product(ROW_TILES, streams, WAYS_ROUND)
        for tiles, weights, operand in ways:
            if operand == "direct" and not plan.operands:
                continue
            for columns in COLUMNS:
                yield Schedule(
                    rows=axis.name,
                    row_tiles=tiles,
                    columns=columns,
                    weights=(weights,) * len(plan.products),
                    operands=(operand,) * len(plan.operands),
                    results=RESULTS[:1] * len(plan.products),
                    reductions=REDUCTIONS[:1] * len(plan.reductions),
                )
        for count, columns in itertools.product(beside_counts(graph, axis), COLUMNS):
            yield Schedule(rows=axis.name, beside=count, columns=columns)


def _flat_columns(common: int) -> list[int]:
    """Lengths of rows that divide everything, of all sizes from 512 to 16384: near each of
    FLAT_COLUMNS, if possible one that cuts the arrays into whole tiles of 128 rows."""
    found = [d for d in range(256, 20_000) if common % d == 0]
    whole = [d for d in found if common // d % 128 == 0] or found
    nearest = (min(whole, key=lambda d: abs(math.log(d / near))) for near in FLAT_COLUMNS)
    return list(dict.fromkeys(nearest)) if found else []


def neighbours(graph: Graph, schedule: Schedule) -> Iterator[Schedule]:
    """Schedules that differ in one choice, but for `ahead`, of which closed forms say nothing."""
    for columns in COLUMNS:
        yield schedule.model_copy(update={"columns": columns})
    for tiles in ROW_TILES:
        yield schedule.model_copy(update={"row_tiles": tiles})
    for number in range(len(schedule.weights)):
        for mode in STREAMING:
            weights = (*schedule.weights[:number], mode, *schedule.weights[number + 1 :])
            yield schedule.model_copy(update={"weights": weights})
    for number in range(len(schedule.operands)):
        for operand in OPERANDS:
            moving = (*schedule.operands[:number], operand, *schedule.operands[number + 1 :])
            yield schedule.model_copy(update={"operands": moving})
    for number in range(len(schedule.reductions)):
        for reduction in REDUCTIONS:
            chosen = (*schedule.reductions[:number], reduction, *schedule.reductions[number + 1 :])
            yield schedule.model_copy(update={"reductions": chosen})
    for number in range(len(schedule.results)):
        for result in RESULTS:
            results = (*schedule.results[:number], result, *schedule.results[number + 1 :])
            yield schedule.model_copy(update={"results": results})


def search(
    algorithm: Algorithm,
    arguments: Sequence[AbstractArgument],
    interface: Interface = Interface(),  # noqa: B008  (immutable)
    target: str = "trn1",
    first: int = 6,
    further: int = 6,
    times: Times | None = None,
) -> Found:
    """Times the `first` most promising schedules and then up to `further` neighbours of the
    fastest, with `times` or, without it, in processes of its own.

    Raises NotLowered where no schedule of the algorithm has a kernel.
    """
    graph = graph_of(algorithm)
    found = Found()
    pricing = Pricing(graph, interface, target, found)
    for schedule in schedules(graph, found.refused):
        pricing.add(schedule)
    if not pricing.priced:
        raise NotLowered(commonest(found.refused, found.shortages))
    pricing.descend()
    if times is not None:
        _look(pricing, times, first, further)
        return found
    with own_processes(arguments, target) as times:
        _look(pricing, times, first, further)
    return found


def _look(pricing: Pricing, times: Times, first: int, further: int) -> None:
    """Times the most promising of what was priced, and what lies near the fastest."""
    found = pricing.found
    _time(times, varied(pricing.cheapest(), first), found)
    if found.timed[0].latency_ms < pricing.cheapest()[0][1].price.ms * NEAR_ENOUGH:
        return
    done = {timed.lowered.body for timed in found.timed}
    near: dict[str, tuple[Schedule, Lowered]] = {}
    for timed in found.timed[:2]:
        for schedule in neighbours(pricing.graph, timed.schedule):
            lowered = pricing.add(schedule)
            if lowered is not None and lowered.body not in done:
                near[lowered.body] = (schedule, lowered)
    fresh = sorted(near.values(), key=lambda pair: pair[1].price.ms)
    worst = found.timed[0].latency_ms * MOST_OVER
    fresh = [pair for pair in fresh if pair[1].price.ms < worst]
    _time(times, fresh[:further], found)
    early = (timed.schedule.model_copy(update={"ahead": True}) for timed in found.timed[:2])
    pairs = [(schedule, pricing.add(schedule)) for schedule in early]
    done = {timed.lowered.body for timed in found.timed}
    new = [(s, lowered) for s, lowered in pairs if lowered and lowered.body not in done]
    _time(times, new, found)


@contextmanager
def own_processes(arguments: Sequence[AbstractArgument], target: str) -> Iterator[Times]:
    """Times sources on all cores, in processes that import the caller's main module anew. What takes
    longer than INSPECTION_SECONDS a source raises multiprocessing.TimeoutError, and is ended."""
    timing = partial(simulated_ms, arguments=tuple(arguments), target=target)
    with multiprocessing.get_context("spawn").Pool() as pool:
        yield lambda sources: pool.map_async(timing, sources, 1).get(
            INSPECTION_SECONDS * max(1, len(sources))
        )


class Pricing:
    """Schedules priced in closed form, each once."""

    def __init__(self, graph: Graph, interface: Interface, target: str, found: Found) -> None:
        self.graph = graph
        self.interface = interface
        self.target = target
        self.found = found
        self.priced: dict[str, tuple[Schedule, Lowered]] = {}
        self._seen: dict[Schedule, Lowered | None] = {}

    def add(self, schedule: Schedule) -> Lowered | None:
        """The kernel of a schedule; None for one that has none."""
        if schedule not in self._seen:
            self._seen[schedule] = self._lowered(schedule)
        return self._seen[schedule]

    def _lowered(self, schedule: Schedule) -> Lowered | None:
        try:
            lowered = lower(self.graph, schedule, self.interface, self.target)
        except (NotLowered, ResourceShort) as refusal:
            reason = str(refusal)
            if isinstance(refusal, ResourceShort):
                self.found.shortages.setdefault(refusal.resource, reason)
                reason = refusal.resource
            self.found.refused[reason] = self.found.refused.get(reason, 0) + 1
            return None
        except (LookupError, ArithmeticError, AssertionError) as error:  # a bug of ours ends no run
            reason = f"lowering itself failed with {type(error).__name__}"
            self.found.refused[reason] = self.found.refused.get(reason, 0) + 1
            return None
        self.found.priced += 1
        self.priced.setdefault(lowered.body, (schedule, lowered))
        return lowered

    def cheapest(self) -> list[tuple[Schedule, Lowered]]:
        """Everything that was priced, the cheapest first."""
        return sorted(self.priced.values(), key=lambda pair: pair[1].price.ms)

    def descend(self) -> None:
        """Changes one choice at a time in the cheapest schedules, while that makes them cheaper."""
        for schedule, lowered in varied(self.cheapest(), DESCENTS):
            best, price = schedule, lowered.price.ms
            while len(self._seen) < MOST_PRICED:
                near = [(s, self.add(s)) for s in neighbours(self.graph, best)]
                better = [(s, found.price.ms) for s, found in near if found is not None]
                after, least = min(better, key=lambda pair: pair[1], default=(best, price))
                if least >= price * (1 - LEAST_CHANGE):
                    break
                best, price = after, least


def varied(pairs: list[tuple[Schedule, Lowered]], most: int) -> list[tuple[Schedule, Lowered]]:
    """The cheapest, but of those that differ in the length of rows alone no more than two."""
    taken: dict[Schedule, int] = {}
    chosen: list[tuple[Schedule, Lowered]] = []
    for schedule, lowered in pairs:
        family = schedule.model_copy(update={"columns": 0})
        taken[family] = taken.get(family, 0) + 1
        if taken[family] <= 2:
            chosen.append((schedule, lowered))
    return chosen[:most]


def _time(times: Times, pairs: list[tuple[Schedule, Lowered]], found: Found) -> None:
    taken = times([lowered.source for _, lowered in pairs])
    found.timed += [
        TimedSchedule(schedule, lowered, ms, ms.reason if isinstance(ms, Refused) else "")
        for (schedule, lowered), ms in zip(pairs, taken, strict=True)
    ]
    found.timed.sort(key=lambda timed: timed.latency_ms)


def simulated_ms(source: str, arguments: tuple[AbstractArgument, ...], target: str) -> float:
    """The predicted latency of a kernel that we wrote ourselves; `Refused` where it breaks a rule.
    Runs in a process of its own: it makes `neuronxcc` the simulated one."""
    from accelopt.hardware import TARGETS
    from accelopt.kernels.nki.devices.kernel_file import load_kernel
    from accelopt.sim import rules, standin, timing
    from accelopt.sim.dialects.dialect import trace_kernel
    from accelopt.sim.errors import KernelError
    from accelopt.sim.trace import AbstractTensor

    standin.install(always=True)
    given = [AbstractTensor(a.shape, np.dtype(a.dtype)) if a.shape else a.value for a in arguments]
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernel.py")
            path.write_text(source, encoding="utf-8")
            program = trace_kernel(load_kernel(str(path)), given, {}, target=target)
        if broken := rules.verify(program):
            return Refused(str(broken[0]))
        return timing.profile(program, TARGETS[target]).latency_ms
    except KernelError as error:
        return Refused(str(error))
    except (
        LookupError,
        ArithmeticError,
        AssertionError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:
        return Refused(f"timing it failed with {type(error).__name__}: {error}")  # a bug of ours
