"""A simulated execution as a trace that Perfetto opens (Chrome's JSON trace format).

Tracks are the engines of each core, the DMA queues (as many tracks a queue as it has transfers under way at once,
so that slices on one track never overlap), and the critical path. Arrows go from a result to the
instruction that waited for it; counters show what SBUF and PSUM hold and how fast HBM is read and
written. Format: "Trace Event Format", https://perfetto.dev/docs/getting-started/other-formats.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple, TypedDict

import numpy as np

from accelopt.kernels.nki.source_lines import Sources
from accelopt.sim.access import Access
from accelopt.sim.program import Buffer
from accelopt.sim.timing import KernelProfile
from accelopt.sim.timing.account.explanation import critical_path
from accelopt.sim.timing.machine.schedule import QUEUES
from accelopt.sim.timing.stream.operation import QUEUE_NAMES, Operation, Queue


class TraceEvent(TypedDict, total=False):
    """One entry of the trace; times in microseconds."""

    name: str
    cat: str
    ph: str
    ts: float
    dur: float
    pid: int
    tid: int
    id: int
    bp: str
    args: dict[str, object]


ENGINES, DMA_QUEUES, PATH, COUNTERS = 1, 2, 3, 4
PROCESSES = {
    PATH: "critical path", ENGINES: "engines", DMA_QUEUES: "DMA queues", COUNTERS: "memory"
}  # fmt: skip
CORE = 10  # from a core's process to that of the other core's
LANES = 1 << 10  # more transfers of one queue are never under way at once
RATE_STEPS = 1000  # points of the HBM counter


class TraceSlice(NamedTuple):
    """Where and when an instance shows; times in ns."""

    process: int
    thread: int
    start: float
    end: float


def timeline_json(found: KernelProfile) -> str:
    """The whole trace as JSON text."""
    slices = _slices(found)
    document = {
        "displayTimeUnit": "ns",
        "otherData": {
            "kernel": found.run.program.name,
            "target": found.target,
            "compiler": found.compiler,
            "calibration": found.calibration,
            "latency_ms": found.latency_ms,
        },
        "traceEvents": [
            *_tracks(found, slices),
            *_events(found, slices),
            *_path(found),
            *_arrows(found, slices),
            *_held(found),
            *_rates(found),
        ],
    }
    return json.dumps(document, separators=(",", ":"))


def _slices(found: KernelProfile) -> list[TraceSlice]:
    """The place of every instance. A transfer takes the first track of its queue that is free."""
    run, timeline = found.run, found.run.timeline
    slices = [
        TraceSlice(ENGINES + CORE * (queue // QUEUES), queue % QUEUES, start, free)
        for queue, start, free in zip(timeline.queue, timeline.start, timeline.free, strict=True)
    ]
    busy: dict[int, list[tuple[float, int]]] = defaultdict(list)  # queue to (end, track)
    idle: dict[int, list[int]] = defaultdict(list)
    used: dict[int, int] = defaultdict(int)
    transfers = [at for at, cost in enumerate(run.costs) if cost is not None]
    for at in sorted(transfers, key=timeline.start.__getitem__):
        queue, start = run.stream.kind[at], timeline.start[at]
        while busy[queue] and busy[queue][0][0] <= start:
            heappush(idle[queue], heappop(busy[queue])[1])
        if not idle[queue]:
            heappush(idle[queue], used[queue])
            used[queue] += 1
        track = heappop(idle[queue])
        heappush(busy[queue], (timeline.done[at], track))
        process = DMA_QUEUES + CORE * run.stream.core_of(queue)
        slices[at] = TraceSlice(process, queue * LANES + track, start, timeline.done[at])
    return slices


def _tracks(found: KernelProfile, slices: list[TraceSlice]) -> Iterator[TraceEvent]:
    cores = range(found.run.stream.cores)
    processes = {PATH: PROCESSES[PATH]}
    for core in cores:
        of = f" of core {core}" if len(cores) > 1 else ""
        processes |= {n + CORE * core: PROCESSES[n] + of for n in (ENGINES, DMA_QUEUES)}
    processes[COUNTERS] = PROCESSES[COUNTERS]
    for order, (process, name) in enumerate(processes.items()):
        yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}
        index: dict[str, object] = {"sort_index": order}
        yield {"name": "process_sort_index", "ph": "M", "pid": process, "args": index}
    yield _track(PATH, 0, "what decides the latency")
    for core in cores:
        for queue in Queue:
            if queue < Queue.DMA or any(slot.thread == queue for slot in slices):
                yield _track(ENGINES + CORE * core, int(queue), QUEUE_NAMES[queue])
    shown = {(one.process, one.thread) for one in slices if one.process % CORE == DMA_QUEUES}
    for process, thread in sorted(shown):
        operation = found.run.stream.instances[thread // LANES].operation
        name = f"q{operation.label} line {operation.source.line}"
        again = f" ({thread % LANES + 1})" if thread % LANES else ""
        yield _track(process, thread, name + again)


def _track(process: int, thread: int, name: str) -> TraceEvent:
    return {
        "name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": name}
    }  # fmt: skip


def _events(found: KernelProfile, slices: list[TraceSlice]) -> Iterator[TraceEvent]:
    run = found.run
    words = _words(found)
    for at, (kind, place) in enumerate(zip(run.stream.kind, slices, strict=True)):
        operation = run.stream.instances[kind].operation
        cost = run.costs[at]
        arguments: dict[str, object] = {**words[kind], "instance": run.stream.row[at]}
        if cost is not None:
            arguments["bytes"] = cost.bytes
            arguments["descriptors"] = cost.descriptors
            arguments["engines"] = f"{cost.first_engine}+{cost.engines}"
        yield {
            "name": operation.label,
            "cat": operation.opcode,
            "ph": "X",
            "ts": _microseconds(place.start),
            "dur": _length(place.start, place.end),
            "pid": place.process,
            "tid": place.thread,
            "args": arguments,
        }


def _words(found: KernelProfile) -> dict[int, dict[str, object]]:
    """What is the same of all instances of a kind: source line, its text, the tiles."""
    sources, instances = Sources(), found.run.stream.instances
    words = {}
    for kind in set(found.run.stream.kind):
        operation = instances[kind].operation
        words[kind] = {
            "source": f"{operation.source.file}:{operation.source.line}",
            "text": sources.text(operation.source),
            **_tiles(operation, sources),
        }
    return words


def _tiles(operation: Operation, sources: Sources) -> dict[str, object]:
    def shown(access: Access) -> str:
        name = sources.name(access.tensor.name, access.tensor.source)
        return f"{name}{list(access.shape)} {access.dtype}"

    return {
        "reads": [shown(access) for access in operation.reads],
        "writes": [shown(access) for access in operation.writes],
    }


def _path(found: KernelProfile) -> Iterator[TraceEvent]:
    """The chain that decides the latency, each link for as long as it adds to it."""
    timeline, stream = found.run.timeline, found.run.stream
    path = critical_path(timeline)
    end = timeline.done[path[0][0]] if path else 0.0
    for at, added in path:
        operation = stream.instances[stream.kind[at]].operation
        if added > 0:
            yield {
                "name": f"line {operation.source.line}: {operation.label}",
                "cat": QUEUE_NAMES[operation.queue],
                "ph": "X",
                "ts": _microseconds(end - added),
                "dur": _length(end - added, end),
                "pid": PATH,
                "tid": 0,
                "args": {
                    "engine": QUEUE_NAMES[operation.queue],
                    **({"core": stream.core_of(stream.kind[at])} if stream.cores > 1 else {}),
                },
            }
        end -= added


def _arrows(found: KernelProfile, slices: list[TraceSlice]) -> Iterator[TraceEvent]:
    """From each result to the instance on another track that waited for it last."""
    for at, before in enumerate(found.run.timeline.cause):
        if before < 0:
            continue
        source, target = slices[before], slices[at]
        if (source.process, source.thread) == (target.process, target.thread):
            continue
        for phase, place in (("s", source), ("f", target)):
            arrow: TraceEvent = {
                "name": "result",
                "cat": "result",
                "ph": phase,
                "id": at,
                "ts": _microseconds(place.start),
                "pid": place.process,
                "tid": place.thread,
            }
            if phase == "f":
                arrow["bp"] = "e"
            yield arrow


def _held(found: KernelProfile) -> Iterator[TraceEvent]:
    """Bytes a partition of SBUF and PSUM, from the first write of a tile to its last use."""
    stream, timeline = found.run.stream, found.run.timeline
    begin = [float("inf")] * len(stream.units)
    end = [0.0] * len(stream.units)
    for at in range(len(stream)):
        for cell in (*stream.writes[at], *stream.reads[at]):
            owner = stream.cell_unit[cell]
            begin[owner] = min(begin[owner], timeline.start[at])
            end[owner] = max(end[owner], timeline.done[at])
    memories = [(core, b) for core in range(stream.cores) for b in (Buffer.SBUF, Buffer.PSUM)]
    for core, buffer in memories:
        changes: dict[float, int] = defaultdict(int)
        for number, unit in enumerate(stream.units):
            if (unit.core, unit.tensor.buffer) == (core, buffer) and end[number] > 0:
                changes[_microseconds(begin[number])] += unit.bytes
                changes[_microseconds(end[number])] -= unit.bytes
        held = 0
        for moment in sorted(changes):
            held += changes[moment]
            of = f" of core {core}" if stream.cores > 1 else ""
            yield _counter(f"{buffer.name}{of} bytes a partition", moment, held)


def _rates(found: KernelProfile) -> Iterator[TraceEvent]:
    """GB/s between HBM and the chip, averaged over a thousandth of the whole time."""
    timeline = found.run.timeline
    step = max(timeline.latency_ns / RATE_STEPS, 1.0)
    rates = np.zeros(RATE_STEPS + 2)
    for at, cost in enumerate(found.run.costs):
        if cost is None:
            continue
        first, last = timeline.start[at] / step, timeline.done[at] / step
        low, high = int(first), min(int(last), RATE_STEPS)
        edges = np.clip(np.arange(low, high + 2, dtype=float), first, last)
        rates[low : high + 1] += np.diff(edges) * (cost.bytes / max(last - first, 1e-9))
    for number, moved in enumerate(rates[: RATE_STEPS + 1]):
        yield _counter("HBM GB/s", _microseconds(number * step), round(float(moved) / step, 3))


def _counter(name: str, moment: float, value: float) -> TraceEvent:
    return {"name": name, "ph": "C", "ts": moment, "pid": COUNTERS, "tid": 0,
            "args": {"value": value}}  # fmt: skip


def _microseconds(ns: float) -> float:
    """The middle of a nanosecond, in us: importers take whole ones (Perfetto cuts ts * 1000), and a
    double beside a whole number may be cut to the one below."""
    return (round(ns) + 0.5) / 1000


def _length(start: float, end: float) -> float:
    """Of a slice, in us. Ends and starts that meet still do as whole nanoseconds: Perfetto drops a slice
    that overlaps the one before by a single one."""
    return (round(end) - round(start)) / 1000
