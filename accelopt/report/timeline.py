"""A simulated execution as a trace that Perfetto opens (Chrome's JSON trace format).

Engines and DMA engines are tracks. Each event carries its source line and, where there is one, its
tile and its bytes; DMA events appear on the first engine that they use, with the number of engines.
"""

from __future__ import annotations

import json
from typing import TypedDict

from accelopt.report.sources import Sources
from accelopt.sim.access import Access
from accelopt.sim.timing import KernelProfile
from accelopt.sim.timing.expansion import Instances
from accelopt.sim.timing.operation import QUEUE_NAMES, Operation, Queue


class Event(TypedDict, total=False):
    """One entry of the trace; times in microseconds."""

    name: str
    cat: str
    ph: str
    ts: float
    dur: float
    pid: int
    tid: int
    args: dict[str, object]


ENGINES, DMA_QUEUES = 1, 2


def timeline_json(found: KernelProfile) -> str:
    """The whole trace as JSON text."""
    document = {
        "displayTimeUnit": "ns",
        "otherData": {
            "kernel": found.run.program.name,
            "target": found.target,
            "calibration": found.calibration,
            "latency_ms": found.latency_ms,
        },
        "traceEvents": [*_tracks(found), *_events(found)],
    }
    return json.dumps(document, separators=(",", ":"))


def _tracks(found: KernelProfile) -> list[Event]:
    tracks: list[Event] = [
        {"name": "process_name", "ph": "M", "pid": ENGINES, "args": {"name": "engines"}},
        {"name": "process_name", "ph": "M", "pid": DMA_QUEUES, "args": {"name": "DMA"}},
    ]
    for queue in Queue:
        if queue is not Queue.DMA:
            tracks.append(_track(ENGINES, int(queue), QUEUE_NAMES[queue]))
    for kind in sorted(_dma_kinds(found)):
        operation = found.run.stream.instances[kind].operation
        name = f"q{operation.label} line {operation.source.line}"
        tracks.append(_track(DMA_QUEUES, kind, name))
    return tracks


def _track(process: int, thread: int, name: str) -> Event:
    return {
        "name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": name}
    }  # fmt: skip


def _dma_kinds(found: KernelProfile) -> set[int]:
    instances = found.run.stream.instances
    return {kind for kind in found.run.stream.kind if instances[kind].operation.is_dma}


def _events(found: KernelProfile) -> list[Event]:
    run = found.run
    timeline = run.timeline
    sources = Sources()
    tiles = {kind: _tiles(item.operation, sources) for kind, item in _used(found)}
    events: list[Event] = []
    for at, kind in enumerate(run.stream.kind):
        operation = run.stream.instances[kind].operation
        cost = run.costs[at]
        arguments: dict[str, object] = {
            "source": f"{operation.source.file}:{operation.source.line}",
            "instance": run.stream.row[at],
        }
        end = timeline.free[at]
        process, thread = ENGINES, int(operation.queue)
        if cost is not None:
            end = timeline.done[at]
            process, thread = DMA_QUEUES, kind
            arguments["bytes"] = cost.bytes
            arguments["descriptors"] = cost.descriptors
            arguments["engines"] = f"{cost.first_engine}+{cost.engines}"
        arguments.update(tiles[kind])
        events.append(
            {
                "name": operation.label,
                "cat": operation.opcode,
                "ph": "X",
                "ts": round(timeline.start[at] * 1e-3, 4),
                "dur": round((end - timeline.start[at]) * 1e-3, 4),
                "pid": process,
                "tid": thread,
                "args": arguments,
            }
        )
    return events


def _used(found: KernelProfile) -> list[tuple[int, Instances]]:
    instances = found.run.stream.instances
    return [(kind, instances[kind]) for kind in sorted(set(found.run.stream.kind))]


def _tiles(operation: Operation, sources: Sources) -> dict[str, object]:
    def shown(access: Access) -> str:
        name = sources.name(access.tensor.name, access.tensor.source)
        return f"{name}{list(access.shape)} {access.dtype}"

    return {
        "reads": [shown(access) for access in operation.reads],
        "writes": [shown(access) for access in operation.writes],
    }
