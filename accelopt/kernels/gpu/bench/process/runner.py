"""The package's own isolated runner, in a child of ours that notices when its worker dies.

FlashInfer-Bench waits the whole timeout for a worker that crashed: its parent keeps a copy of the
pipe's other end, so the end never comes. Here a thread looks at the workers themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.sandbox.serving import Handlers

GRACE_SECONDS = 5.0


WORKER_DIED = 86  # the exit code that says so


def measure(request: Mapping[str, Any]) -> say.PackageTrace:
    """One solution on one workload through `Benchmark.run_all`; the trace as JSON."""
    from flashinfer_bench import Benchmark, BenchmarkConfig, Definition, Solution, Trace, TraceSet

    definition = Definition.model_validate(request["definition"])
    solution = Solution.model_validate(request["solution"])
    solution.spec.destination_passing_style = bool(request["destination_passing_style"])
    trace_set = TraceSet(
        root=Path(request["root"]),
        definitions={definition.name: definition},
        solutions={definition.name: [solution]},
        workloads={definition.name: [Trace.model_validate(request["workload"])]},
        traces={definition.name: []},
    )
    config = BenchmarkConfig(
        use_isolated_runner=True,
        profile_baseline=bool(request["profile_baseline"]),
        timeout_seconds=int(request["timeout_seconds"]),
    )
    benchmark = Benchmark(trace_set, config)
    try:
        found = benchmark.run_all(dump_traces=False).traces.get(definition.name, [])
    finally:
        benchmark.close()
    traces = [json.loads(trace.model_dump_json()) for trace in found]
    return say.PackageTrace(trace=traces[0] if traces else None)


def _watch_workers() -> None:
    """End when a worker has ended while the benchmark still waits for it."""
    seen: dict[int, Any] = {}
    ended: dict[int, float] = {}
    while True:
        time.sleep(0.2)
        for process in multiprocessing.active_children():
            seen[process.pid or 0] = process
        for pid, process in seen.items():
            if process.exitcode is not None:
                since = ended.setdefault(pid, time.monotonic())
                if time.monotonic() - since > GRACE_SECONDS:
                    print(f"the package's worker ended with exit code {process.exitcode}")
                    os._exit(WORKER_DIED)


def handlers(payload: Mapping[str, Any]) -> Handlers:
    """What this process answers."""

    def run(_: say.RunPackage) -> say.PackageTrace:
        threading.Thread(target=_watch_workers, daemon=True).start()
        return measure(payload)

    return {say.RunPackage: run}
