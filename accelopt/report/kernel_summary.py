"""One kernel as the simulated core sees it, for the report: roofline, engines over time, hot lines."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accelopt.errors import AcceloptError
from accelopt.evaluation import Row
from accelopt.kernels.nki.briefing import briefing
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.report.kernel_simulation import simulate
from accelopt.report.story import LineShare, Portrait
from accelopt.report.timeline import timeline_json
from accelopt.sim.timing import MOST_ASKED, KernelProfile, LatencyRange, interval
from accelopt.sim.timing.stream.operation import QUEUE_NAMES
from accelopt.store import write_atomically
from accelopt.time_limits import RETRACE_SECONDS

SLICES = 160
TELLING = 0.005  # scenarios that change the latency by less are not worth a line
MOST_TRACED = 20_000  # instructions whose execution is worth a trace file beside the report


class Portrayed(Row):
    """A portrait, where there is one, and the path of the trace file from the report's folder."""

    portrait: Portrait | None = None
    trace: str = ""


def portrait_job(payload: Mapping[str, Any]) -> Portrayed:
    """The work of a portrait, in a child process; none for a kernel that cannot be simulated."""
    kernel, reference = Path(payload["kernel"]), Path(payload["reference"])
    try:
        target, compiler = payload["target"], payload["compiler"]
        found = simulate(kernel, reference, target, RETRACE_SECONDS, compiler).profile
    except AcceloptError:  # a report without a portrait is still a report
        return Portrayed()
    size = len(found.run.stream)
    seen = portrait(found)
    if size <= MOST_ASKED:
        told = briefing(found, problem_bound(found.run.program, found.run.spec, reference))
        update = {"advice": told["advice"], "gaps": told["engines"]}
        seen = portrait(found, interval(found)).model_copy(update=update)
    if not payload["traced"] or size > MOST_TRACED:
        return Portrayed(portrait=seen)
    path = Path(payload["traced"]) / "best.trace.json.gz"
    write_atomically(path, gzip.compress(timeline_json(found).encode(), mtime=0))
    return Portrayed(portrait=seen, trace=f"{path.parent.name}/{path.name}")


def portrait(found: KernelProfile, interval: LatencyRange | None = None) -> Portrait:
    """The portrait of one simulated kernel; with the range that other choices leave, where known."""
    true, spec, cores = found.true_counts, found.run.spec, found.run.stream.cores
    moved = true.dma_bytes
    seconds = found.latency_ms * 1e-3
    known = interval if spec.was_measured else None
    return Portrait(
        latency=found.latency_ms,
        low=known.low_ms if known else None,
        high=known.high_ms if known else None,
        intensity=true.flops / moved if moved else 0.0,
        flops=true.flops / seconds,
        peak_flops=spec.matmul_limit * cores * 1e9,
        bandwidth=min(spec.dma_limit * cores, spec.hbm_limit) * 1e9,
        moved=moved,
        lines=tuple(
            LineShare(
                line=line.source.line,
                share=line.critical_ms / found.latency_ms,
                operations=line.operations,
            )
            for line in found.lines
            if line.critical_ms > 0
        ),
        busy=_busy(found),
        questions=tuple(
            f"{scenario.question}: {scenario.latency_ms:.4g} ms"
            for scenario in (interval.scenarios if interval else ())
            if abs(scenario.latency_ms / found.latency_ms - 1) >= TELLING
        ),
    )


def _busy(found: KernelProfile) -> dict[str, tuple[float, ...]]:
    """The share of each slice of the time in which an engine works; for DMA, in which some transfer
    is under way."""
    timeline, costs = found.run.timeline, found.run.costs
    ends = [
        done if cost is not None else free
        for done, free, cost in zip(timeline.done, timeline.free, costs, strict=True)
    ]
    cores = range(found.run.stream.cores)
    names = [f"{name} {core}" if len(cores) > 1 else name for core in cores for name in QUEUE_NAMES]
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for queue, start, end in zip(timeline.queue, timeline.start, ends, strict=True):
        spans[names[queue]].append((start, end))
    step = timeline.latency_ns / SLICES
    shown = {name: items for name, items in spans.items() if items or "sync" not in name}
    return {name: _shares(items, step) for name, items in shown.items()}


def _shares(spans: list[tuple[float, float]], step: float) -> tuple[float, ...]:
    """How much of each slice the union of `spans` covers."""
    edges = np.arange(SLICES + 1) * step
    covered = np.zeros(SLICES + 1)  # length of the union before each edge
    reached = 0.0
    for start, end in sorted(spans):
        begin = max(start, reached)
        if end > begin:
            covered += np.clip(edges - begin, 0.0, end - begin)
            reached = end
    return tuple(np.round(np.diff(covered) / step, 3).tolist())
