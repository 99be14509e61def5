"""Our launch-free latency beside three timers that are not ours, for every solution of a trace folder.

    python experiments/flb_h200/timers.py --out experiments/flb_h200/results/timers.json

`ours` is `accelopt.kernels.gpu.bench.judging.evaluation` as every decision sees it: a process of its own, queued
events, L2 flushed, new inputs for every call, the median. In this process, on the same kind of
inputs: `profiler` is the sum of the kernels' own times as CUPTI reports them through
`torch.profiler`, the median over calls with the L2 flushed; `do_bench` and `graph` are
`triton.testing.do_bench` (L2 flushed, median) and `do_bench_cudagraph` (replayed, L2 as the last
call left it, no host between calls). A ratio is ours over the other's.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "experiments" / "flb_optimize")]

from accelopt.kernels.gpu.bench.files.tracefiles import TraceFolder
from accelopt.kernels.gpu.bench.judging.evaluation import evaluate
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task, TimingPlan
from accelopt.kernels.gpu.bench.process import installed_flashinfer_bench
from accelopt.kernels.gpu.bench.process.entry_points import passes_destination
from accelopt.kernels.gpu.bench.process.inputs import Draw, InputFactory
from accelopt.kernels.gpu.bench.process.solution_loading import load_entry
from accelopt.store import write_atomically
from trace_selection import choose

STARTER = ROOT / "experiments" / "flb_optimize" / "starter_trace"
FLUSH_BYTES = 256 << 20
CALLS = 20
WARM_SECONDS = 0.2


def by_profiler(call, sets: list[list[Any]]) -> float:
    """Median over calls of the summed durations of all kernels that one call starts, milliseconds."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    mark = torch.empty(1, dtype=torch.float64, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for index in range(CALLS):
            flush.zero_()
            mark.fill_(index)  # parts the calls from each other in the list of kernels
            call(sets[index % len(sets)])
            mark.fill_(-1.0)
        torch.cuda.synchronize()
    events = sorted(
        (e.start_ns(), e.name(), e.duration_ns())
        for e in found.profiler.kineto_results.events()
        if "cuda" in str(e.device_type()).lower()
    )
    marks = [i for i, (_, name, _) in enumerate(events) if "double" in name and "Fill" in name]
    sums = [
        sum(duration for _, _, duration in events[first + 1 : second]) / 1e6
        for first, second in zip(marks[::2], marks[1::2], strict=True)
    ]
    if len(sums) != CALLS:
        raise RuntimeError(f"the profiler saw {len(sums)} calls of {CALLS}")
    return statistics.median(sums)


def outside(task: Task) -> dict[str, float | str]:
    """The three other timers, in this process; a sentence in place of a number where one failed."""
    import torch
    import triton

    torch.cuda.set_device(task.device)
    factory = InputFactory(task.root, task.definition, task.workload.workload, task.device)
    with tempfile.TemporaryDirectory() as folder:
        function = load_entry(task.solution, Path(folder), task.definition)
        outputs = []
        if passes_destination(task.solution, task.definition):
            outputs = [torch.empty(*shape, dtype=dtype, device="cuda") for shape, dtype in _outputs(task)]

        def call(inputs: list[Any]) -> Any:
            return function(*inputs, *outputs)

        sets = [factory.make(Draw(seed)) for seed in range(4)]
        found: dict[str, float | str] = {}
        timers = {
            "profiler": lambda: by_profiler(call, sets),
            "do_bench": lambda: triton.testing.do_bench(lambda: call(sets[0]), return_mode="median"),
            "graph": lambda: triton.testing.do_bench_cudagraph(lambda: call(sets[0]), return_mode="median"),
        }
        with torch.no_grad():
            for name, timer in timers.items():
                end = time.perf_counter() + WARM_SECONDS
                while time.perf_counter() < end:
                    call(sets[-1])
                    torch.cuda.synchronize()
                try:
                    found[name] = float(timer())
                except Exception as error:  # a solution that waits for the device cannot be captured
                    found[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                    if name == "graph":
                        break
    return found


def _outputs(task: Task) -> list[tuple[tuple[int, ...], Any]]:
    from accelopt.kernels.gpu.bench.process.inputs import torch_dtype

    return [
        (task.definition.shape(spec, task.workload.workload) or (), torch_dtype(spec.dtype))
        for spec in task.definition.outputs.values()
    ]


def measure(task: Task) -> dict[str, object]:
    """One row: ours, the others, and the ratios."""
    row: dict[str, object] = {"definition": task.definition.name, "solution": task.solution.name}
    verdict = evaluate(task)
    row["status"] = verdict.evaluation.status.value
    row["hardware"] = verdict.hardware
    row["evaluation_seconds"] = round(verdict.evaluation.seconds, 1)
    if verdict.latency is None:
        row["message"] = verdict.evaluation.message
        return row
    row["ours_ms"] = verdict.latency.median
    row["interval_ms"] = [verdict.latency.low, verdict.latency.high]
    row["package_ms"] = verdict.package_latency_ms
    row["notes"] = list(verdict.evaluation.notes)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:  # each solution in a process that no other has touched
        others = pool.submit(outside, task).result()
    for name, value in others.items():
        row[f"{name}_ms"] = value
        if isinstance(value, float):
            row[f"over_{name}"] = verdict.latency.median / value
    return row


def table(rows: list[dict[str, object]]) -> str:
    """Rows and geometric means of the ratios, for people."""
    names = ("profiler", "do_bench", "graph")
    lines = ["| definition | ours ms | " + " | ".join(f"{n} ms (ratio)" for n in names) + " | package ms |"]
    lines.append("|---" * 6 + "|")
    for row in rows:
        if "ours_ms" not in row:
            lines.append(f"| {row['definition']} | {row['status']}: {str(row['message'])[:90]} | | | | |")
            continue
        cells = []
        for name in names:
            value = row.get(f"{name}_ms")
            ratio = row.get(f"over_{name}")
            cells.append(f"{value:.4f} ({ratio:.3f})" if ratio else str(value))
        lines.append(
            f"| {row['definition']} | {row['ours_ms']:.4f} | {' | '.join(cells)} | "
            f"{row['package_ms'] or 0:.4f} |"
        )
    for name in names:
        ratios = [float(row[f"over_{name}"]) for row in rows if f"over_{name}" in row]
        if ratios:
            mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
            lines.append(
                f"\nours over {name}: geometric mean {mean:.3f}, from {min(ratios):.3f} to "
                f"{max(ratios):.3f} over {len(ratios)}"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traceset_root", type=Path, default=STARTER)
    parser.add_argument("--definitions", nargs="*")
    parser.add_argument("--out", type=Path, default=ROOT / "experiments/flb_h200/results/timers.json")
    args = parser.parse_args()
    folder = TraceFolder(args.traceset_root)
    rows = []
    for choice in choose(folder):
        if args.definitions and choice.workload.definition not in args.definitions:
            continue
        definition = folder.definitions[choice.workload.definition]
        settings = installed_flashinfer_bench.settings(definition)
        task = Task(
            root=folder.root, definition=definition, workload=choice.workload,
            solution=choice.solution, tolerance=settings.tolerance, plan=TimingPlan(),
            refuse_unstable=False,
        )  # fmt: skip
        rows.append(measure(task))
        print(table(rows[-1:]).splitlines()[2], flush=True)
    stamp = datetime.now(timezone.utc).isoformat(timespec="seconds")
    text = table(rows)
    write_atomically(
        args.out, json.dumps({"date": stamp, "versions": installed_flashinfer_bench.versions(), "rows": rows}, indent=2) + "\n"
    )
    write_atomically(args.out.with_suffix(".md"), f"{stamp}, {installed_flashinfer_bench.versions()}\n\n{text}")
    print(text)


if __name__ == "__main__":
    main()
