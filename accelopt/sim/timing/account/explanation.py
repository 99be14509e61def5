"""Why a kernel takes the time it takes, as data: bounds, the lines that cost, the critical path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accelopt.hardware import Hardware
from accelopt.hardware.least_time import Work, least_time
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Program, Tensor
from accelopt.sim.timing.account.counters import TrueCounts
from accelopt.sim.timing.machine.schedule import Timeline
from accelopt.sim.timing.machine.transfers import Transfer
from accelopt.sim.timing.stream.operation import QUEUE_NAMES
from accelopt.sim.timing.stream.stream import Stream


@dataclass(frozen=True)
class LowerBound:
    """A time, in ms, below which one aspect of the kernel cannot go, and what it assumes."""

    aspect: str  # memory, compute, pipeline, overhead
    name: str
    ms: float
    meaning: str


@dataclass(frozen=True)
class LineCost:
    """What one source line costs."""

    source: SourceLine
    operations: str
    count: int
    busy_ms: dict[str, float]  # by engine, the mean of two cores; for DMA, of its busiest engine
    critical_ms: float  # of the path that decides the latency
    bytes: int
    waiting_ms: float = 0.0  # of the critical part, what passes before its instructions begin


@dataclass(frozen=True)
class InputRead:
    """How much of one HBM input is moved to the chip."""

    tensor: str
    size: int  # bytes of the whole input
    read: int  # bytes that transfers read from it

    @property
    def times(self) -> float:
        """1 when every byte is read once."""
        return self.read / self.size if self.size else 0.0


class CriticalStep(NamedTuple):
    """One instance on the path that decides the latency: the ns it adds, and how many of those pass
    before it begins (a semaphore, a port, a busy engine)."""

    instance: int
    ns: float
    waiting_ns: float


def critical_path(timeline: Timeline) -> list[tuple[int, float]]:
    """The chain of instances that decides the latency, last first, with the ns each adds to it."""
    return [(step.instance, step.ns) for step in critical_steps(timeline)]


def critical_steps(timeline: Timeline) -> list[CriticalStep]:
    """The same chain, with what of each step is waiting."""
    if not timeline.done:
        return []
    done, free, start = timeline.done, timeline.free, timeline.start
    at = max(range(len(done)), key=done.__getitem__)
    end = done[at]
    path: list[CriticalStep] = []
    while at >= 0:
        before = timeline.cause[at]
        if before < 0:
            since = start[at]
        elif free[before] <= start[at] < done[before] and free[before] != start[before]:
            since = start[at]  # waited for the engine, not for the result
        else:
            since = min(done[before], done[at])
        ns = max(end - since, 0.0)
        path.append(CriticalStep(at, ns, min(max(start[at] - since, 0.0), ns)))
        end = min(since, end)
        at = before
    return path


def line_costs(stream: Stream, costs: list[Transfer | None], timeline: Timeline) -> list[LineCost]:
    """Source lines, those that take most of the critical path first."""
    critical: dict[SourceLine, float] = defaultdict(float)
    waiting: dict[SourceLine, float] = defaultdict(float)
    for at, ns, waited in critical_steps(timeline):
        source = stream.instances[stream.kind[at]].operation.source
        critical[source] += ns
        waiting[source] += waited
    busy: dict[SourceLine, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    count: dict[SourceLine, int] = defaultdict(int)
    moved: dict[SourceLine, int] = defaultdict(int)
    names: dict[SourceLine, dict[str, None]] = defaultdict(dict)
    for at, kind in enumerate(stream.kind):
        operation = stream.instances[kind].operation
        source = operation.source
        cost = costs[at]
        time = cost.engine_ns if cost else timeline.free[at] - timeline.start[at]
        busy[source][QUEUE_NAMES[operation.queue]] += time * 1e-6 / stream.cores
        count[source] += 1
        moved[source] += cost.moved if cost else 0
        names[source][operation.label] = None
    lines = [
        LineCost(
            source,
            ", ".join(names[source]),
            count[source],
            dict(busy[source]),
            critical.get(source, 0.0) * 1e-6,
            moved[source],
            waiting.get(source, 0.0) * 1e-6,
        )
        for source in count
    ]
    return sorted(lines, key=lambda line: (-line.critical_ms, -max(line.busy_ms.values())))


def input_reads(program: Program, stream: Stream, costs: list[Transfer | None]) -> list[InputRead]:
    """The kernel's inputs, those first of which most is read again. Spills are not among them, the
    loads that a full SBUF repeats are."""
    read: dict[Tensor, int] = dict.fromkeys(program.arguments, 0)
    sources = [item.operation.reads[0].tensor if item.operation.reads else None
               for item in stream.instances]  # fmt: skip
    for kind, cost in zip(stream.kind, costs, strict=True):
        tensor = sources[kind]
        if cost is not None and tensor in read:
            read[tensor] += cost.hbm_read
    found = [InputRead(tensor.name, tensor.bytes, moved) for tensor, moved in read.items()]
    return sorted(found, key=lambda one: one.size - one.read)


def bounds(
    fields: dict[str, float], true: TrueCounts, busy: Sequence[dict[str, float]], spec: Hardware
) -> list[LowerBound]:
    """Times of single aspects of a kernel as it is: what it keeps busy, and what it moves and multiplies
    at the rates of the hardware. `busy` is the time of each engine of each core, of which the busier one
    counts."""
    moved, cores = true.hbm_read_bytes + true.hbm_write_bytes, len(busy)
    flops = fields["hardware_flops"]
    slow, narrow = true.fp32_share * flops / spec.fp32_matmul_passes, (1 - true.fp32_share) * flops
    peak = least_time(
        Work(
            true.hbm_read_bytes,
            true.hbm_write_bytes,
            moved - true.dma_bytes,
            int(slow),
            int(narrow),
            cores=cores,
        ),
        spec,
    )
    engines = {name: max(core[name] for core in busy) * 1e-9 * 1e3 for name in busy[0]}
    dma = engines.pop("dma")
    slowest = max(engines, key=engines.__getitem__)
    return [
        LowerBound("memory", "actual", dma,
              f"some DMA engine is busy, with rows of {moved / (true.dma_descriptors or 1):,.0f} B"),
        LowerBound("memory", "at peak bandwidth", peak.memory,
              f"{moved:,} B, HBM at {spec.hbm_limit:.0f} and DMA at {spec.dma_limit:.0f} GB/s"),
        LowerBound("compute", "active", engines["tensor"], "TensorE is busy"),
        LowerBound("compute", "at peak FLOPs", peak.mm,
              f"{flops:.3g} hardware FLOPs at the rate of their dtype, transposes among them"),
        LowerBound("pipeline", f"slowest engine ({slowest})", engines[slowest],
              "every other engine hidden behind it"),
        LowerBound("overhead", "launch", spec.launch_ns * 1e-6, "before the first and after the last"),
        LowerBound("overhead", "idle", max(
            fields["latency"] - spec.launch_ns * 1e-6
            - max(engines[slowest], fields["dma_active_time"] * 1e3), 0.0),
            "neither the slowest engine nor DMA is busy"),
    ]  # fmt: skip
