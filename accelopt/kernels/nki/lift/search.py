"""The search over schedules: closed forms first, then the simulated time of the most promising.

Neither needs data. Thousands of schedules are priced in closed form; a handful is traced and timed on
the simulated core, then the neighbours of the fastest, in child processes. What comes back has not
been verified: that is for the referee.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from accelopt.kernels.nki.lift.algorithm import Algorithm
from accelopt.kernels.nki.lift.emission.flattening import (
    ROWS,
    flat_elements,
    flat_offsets,
)
from accelopt.kernels.nki.lift.emission.graph import Graph, NotLowered
from accelopt.kernels.nki.lift.emission.phases import Phases, roles_of, row_axes
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.lowering import Lowered, lower
from accelopt.kernels.nki.lift.schedule import Operand, ResourceShort, Result, Schedule, Streaming

COLUMNS = (512, 1024, 2048, 4096, 8192)
ROW_TILES = (1, 2, 4, 8)
STREAMING: tuple[Streaming, ...] = ("resident", "columns", "accumulate")
RESULTS: tuple[Result, ...] = ("rows", "turned")
OPERANDS: tuple[Operand, ...] = ("transposed", "direct")
MOST_PRICED = 4000


class Argument(NamedTuple):
    """What a kernel is given: a tensor's shape and format, or a plain value."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    value: float | None = None


@dataclass(frozen=True)
class Timed:
    """A schedule with its kernel and its simulated time; infinite where the core refuses it."""

    schedule: Schedule
    lowered: Lowered
    latency_ms: float


@dataclass
class Found:
    """What a search came to: timed schedules, fastest first; how many were priced in closed form,
    and why the others were refused, with how often."""

    timed: list[Timed] = field(default_factory=list)
    priced: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def schedules(graph: Graph) -> Iterator[Schedule]:
    """The schedules of an algorithm, whether or not the hardware can hold them."""
    if flat_elements(graph):
        common = flat_offsets(graph)
        for columns in _flat_columns(common):
            for width in sorted({min(columns, most) for most in COLUMNS}):
                yield Schedule(rows=ROWS, flat=columns, columns=width)
    for axis in row_axes(graph):
        plan = Phases(roles_of(graph, axis.name), Schedule(rows=axis.name))
        streams = itertools.product(STREAMING, repeat=len(plan.products))
        operands = itertools.product(OPERANDS, repeat=len(plan.operands))
        results = itertools.product(RESULTS, repeat=len(plan.products))
        for weights, moving, turned, tiles, columns in itertools.product(
            list(streams), list(operands), list(results), ROW_TILES, COLUMNS
        ):
            yield Schedule(
                rows=axis.name,
                row_tiles=tiles,
                columns=columns,
                weights=weights,
                operands=moving,
                results=turned,
            )


def _flat_columns(common: int) -> list[int]:
    """Lengths of rows that divide everything, those near 2048 first: a few of each size."""
    found = [d for d in range(256, 8193) if common % d == 0]
    return sorted(found, key=lambda d: (common // d % 128 != 0, abs(d - 2048)))[:8]


def neighbours(graph: Graph, schedule: Schedule) -> Iterator[Schedule]:
    """Schedules that differ in one choice."""
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


def search(
    algorithm: Algorithm,
    arguments: Sequence[Argument],
    parameters: Sequence[str] = (),
    target: str = "trn1",
    first: int = 8,
    further: int = 8,
    workers: int | None = None,
) -> Found:
    """Times the `first` most promising schedules and then up to `further` neighbours of the
    fastest. Raises NotLowered where no schedule of the algorithm has a kernel."""
    graph = graph_of(algorithm)
    found = Found()
    priced: dict[str, tuple[Schedule, Lowered]] = {}
    for schedule in itertools.islice(schedules(graph), MOST_PRICED):
        _price(graph, schedule, parameters, target, priced, found)
    if not priced:
        reason = max(found.refused, key=lambda text: found.refused[text], default="no rows")
        raise NotLowered(reason)
    workers = workers or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        _time(pool, _varied(list(priced.values()), first), arguments, target, found)
        done = {timed.lowered.source for timed in found.timed}
        near: dict[str, tuple[Schedule, Lowered]] = {}
        for timed in found.timed[:2]:
            for schedule in neighbours(graph, timed.schedule):
                _price(graph, schedule, parameters, target, near, found)
        fresh = [pair for source, pair in near.items() if source not in done]
        fresh.sort(key=lambda pair: pair[1].price.ms)
        _time(pool, fresh[:further], arguments, target, found)
    return found


def _price(
    graph: Graph,
    schedule: Schedule,
    parameters: Sequence[str],
    target: str,
    priced: dict[str, tuple[Schedule, Lowered]],
    found: Found,
) -> None:
    try:
        lowered = lower(graph, schedule, parameters, target)
    except (NotLowered, ResourceShort) as refusal:
        reason = refusal.resource if isinstance(refusal, ResourceShort) else str(refusal)
        found.refused[reason] = found.refused.get(reason, 0) + 1
        return
    found.priced += 1
    priced.setdefault(lowered.source, (schedule, lowered))


def _varied(pairs: list[tuple[Schedule, Lowered]], most: int) -> list[tuple[Schedule, Lowered]]:
    """The cheapest, but of those that differ in the length of rows alone no more than two."""
    pairs.sort(key=lambda pair: pair[1].price.ms)
    taken: dict[Schedule, int] = {}
    chosen: list[tuple[Schedule, Lowered]] = []
    for schedule, lowered in pairs:
        family = schedule.model_copy(update={"columns": 0})
        taken[family] = taken.get(family, 0) + 1
        if taken[family] <= 2:
            chosen.append((schedule, lowered))
    return chosen[:most]


def _time(
    pool: ProcessPoolExecutor,
    pairs: list[tuple[Schedule, Lowered]],
    arguments: Sequence[Argument],
    target: str,
    found: Found,
) -> None:
    sources = [lowered.source for _, lowered in pairs]
    times = pool.map(simulated_ms, sources, [tuple(arguments)] * len(pairs), [target] * len(pairs))
    found.timed += [
        Timed(schedule, lowered, ms) for (schedule, lowered), ms in zip(pairs, times, strict=True)
    ]
    found.timed.sort(key=lambda timed: timed.latency_ms)


def simulated_ms(source: str, arguments: tuple[Argument, ...], target: str) -> float:
    """The predicted latency of a kernel that we wrote ourselves; infinite where it breaks a rule.
    Runs in a process of its own: it makes `neuronxcc` the simulated one."""
    from accelopt.hardware import TARGETS
    from accelopt.sim import rules, standin, timing
    from accelopt.sim.errors import KernelError
    from accelopt.sim.nki.kernel import trace_kernel
    from accelopt.sim.trace import TensorSpec

    standin.install(always=True)
    names: dict[str, Any] = {}
    given = [
        TensorSpec(a.shape, np.dtype(a.dtype)) if a.value is None else a.value for a in arguments
    ]
    try:
        exec(compile(source, "<lowered kernel>", "exec"), names)
        program = trace_kernel(names["kernel"], given, {}, target=target)
        if rules.verify(program):
            return float("inf")
        return timing.profile(program, TARGETS[target]).latency_ms
    except KernelError:
        return float("inf")
