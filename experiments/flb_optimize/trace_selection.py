"""Which workload and which solution of a trace folder to start from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accelopt.kernels.gpu.bench.files.tracefiles import Solution, Trace, TraceFolder

BOUND_MS = 10.0


class SelectedWorkload(NamedTuple):
    """A workload, the solution to improve, and the trace that shows it; None when unmeasured."""

    workload: Trace
    solution: Solution
    trace: Trace | None


def choose(
    folder: TraceFolder,
    *,
    language: str = "triton",
    hardware: str | None = None,
    bound_ms: float = BOUND_MS,
) -> Iterator[SelectedWorkload]:
    """One choice a definition, in the order of names.

    The workload is the first, by rising latency, that takes longer than `bound_ms`, else the
    slowest. The solution is the fastest that PASSED on it. Latencies are compared on one hardware
    only: the one named, or the one with the most traces. A definition without traces takes its
    largest workload and its first solution, so that a fresh folder can be started from.
    """
    used = hardware or most_common_hardware(folder)
    for name in sorted(folder.definitions):
        solutions = {s.name: s for s in folder.solutions_of(name) if s.spec.language == language}
        traces = [
            t for t in folder.traces.get(name, ())
            if t.passed and t.solution in solutions and used in (None, _hardware(t))
        ]  # fmt: skip
        if traces:
            yield _measured(folder, name, solutions, traces, bound_ms)
        elif solutions and folder.workloads.get(name):
            workload = max(folder.workloads[name], key=lambda t: sum(t.workload.axes.values()))
            yield SelectedWorkload(workload, next(iter(solutions.values())), None)


def _measured(
    folder: TraceFolder,
    name: str,
    solutions: dict[str, Solution],
    traces: list[Trace],
    bound_ms: float,
) -> SelectedWorkload:
    slowest: dict[str, float] = {}
    for trace in traces:
        uuid = trace.workload.uuid
        slowest.setdefault(uuid, _latency(trace))
    rising = sorted(slowest, key=lambda uuid: slowest[uuid])
    uuid = next((u for u in rising if slowest[u] > bound_ms), rising[-1])
    best = min((t for t in traces if t.workload.uuid == uuid), key=_latency)
    workload = next(
        (t for t in folder.workloads.get(name, ()) if t.workload.uuid == uuid),
        Trace(definition=name, workload=best.workload),
    )
    return SelectedWorkload(workload, solutions[str(best.solution)], best)


def most_common_hardware(folder: TraceFolder) -> str | None:
    """The hardware that most PASSED traces were measured on; the first by name among equals."""
    counts: dict[str, int] = {}
    for traces in folder.traces.values():
        for trace in traces:
            if trace.passed:
                counts[_hardware(trace)] = counts.get(_hardware(trace), 0) + 1
    return min(counts, key=lambda name: (-counts[name], name)) if counts else None


def _hardware(trace: Trace) -> str:
    return trace.evaluation.environment.hardware if trace.evaluation else ""


def _latency(trace: Trace) -> float:
    assert trace.evaluation is not None and trace.evaluation.performance is not None
    return trace.evaluation.performance.latency_ms
