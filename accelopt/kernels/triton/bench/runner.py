"""The package's own isolated runner, in a child of ours that notices when its worker dies.

    python -m accelopt.kernels.triton.bench.runner REQUEST_FILE READ_FD WRITE_FD

FlashInfer-Bench waits the whole timeout for a worker that crashed: its parent keeps a copy of the
pipe's other end, so the end never comes. Here a thread looks at the workers themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from accelopt.kernels.triton.bench.channel import Channel, Message

GRACE_SECONDS = 5.0


def measure(request: Message) -> Message:
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
    return {"status": "ran", "trace": traces[0] if traces else None}


def _watch_workers(channel: Channel) -> None:
    """Report a worker that has ended while the benchmark still waits for it, and end."""
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
                    channel.send({"status": "died", "code": process.exitcode})
                    os._exit(1)


def main() -> None:
    """Answer the one request."""
    request = json.loads(Path(sys.argv[1]).read_text())
    channel = Channel(int(sys.argv[2]), int(sys.argv[3]))
    threading.Thread(target=_watch_workers, args=(channel,), daemon=True).start()
    try:
        reply = measure(request)
    except Exception as error:  # reported to the parent, which decides
        reply = {"status": "raised", "error": type(error).__name__, "message": str(error)}
    channel.send(reply)
    os._exit(0)


if __name__ == "__main__":
    main()
