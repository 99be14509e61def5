"""The starter set end to end on one GPU: the offline loop, baselines, comparison, hostile solutions.

    python experiments/flb_h200/run.py --out experiments/flb_h200/results

Start, winner, PyTorch's reference (as it stands and through `torch.compile`) and libraries are measured in
the same run; winners are judged on every workload of their definition and on shapes of our own. Nothing is
fetched. Every number is written with the hardware and the versions it was measured on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "hostile_gpu"), str(Path(__file__).parent)]

import libraries
import shapes

from accelopt.evaluation import NO_VERDICTS, Evaluation, Scrutiny
from accelopt.flb_wrapper import SEARCH_PLAN, keep
from accelopt.hardware.gpus import gpu_called
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Solution,
    TraceFolder,
    read_json,
    workload_stem,
    write_json,
)
from accelopt.kernels.gpu.bench.judging.evaluation import evaluate
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task, TimingPlan
from accelopt.kernels.gpu.bench.process import installed_flashinfer_bench
from accelopt.kernels.gpu.bench.roofline import bound
from accelopt.kernels.gpu.cases import case_of
from accelopt.loop import optimize_all
from accelopt.nodes import Node
from accelopt.stages.config import Options
from accelopt.stages.run import Watcher
from accelopt.stages.run_setup import open_run
from accelopt.store import write_atomically
from trace_comparison import as_csv, as_svg, as_text, compare

STARTER = ROOT / "experiments" / "flb_optimize" / "starter_trace"
FULL = TimingPlan(
    least_rounds=5, most_rounds=10, seconds=0.6, steady=0.003, package=False, judging_seconds=10.0
)
SCREEN = SEARCH_PLAN._replace(sets=2, least_rounds=2, most_rounds=2, seconds=0.1)


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGIN:6.1f} s] {text}", flush=True)


BEGIN = time.monotonic()


def large_workload(folder: TraceFolder, name: str):
    return max(folder.workloads[name], key=lambda trace: sum(trace.workload.axes.values()))


def task_of(folder: TraceFolder, name: str, solution, **fields) -> Task:
    settings = installed_flashinfer_bench.settings(folder.definitions[name])
    return Task(
        root=folder.root,
        definition=folder.definitions[name],
        workload=large_workload(folder, name),
        solution=solution,
        tolerance=settings.tolerance,
        start=folder.solutions_of(name)[0],  # what it does on unusual inputs, winners may
        **fields,
    )


def in_parallel(function, items, workers: int):
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))


def optimise(folder: TraceFolder, name: str, args):
    """The outcome of the loop with the offline proposer, in a folder of its own; continued where there is one."""
    work, place = args.out / "problems", args.out / "run" / name
    definition, workload = folder.definitions[name], large_workload(folder, name)
    paths = (
        write_json(definition, work / "definitions" / f"{name}.json"),
        write_json(folder.solutions_of(name)[0], work / "solutions" / f"{name}.json"),
        write_json(workload, work / "workloads" / f"{workload_stem(workload)}.json"),
    )
    options = Options(
        iterations=args.iterations, beam=args.beam, plans=args.plans, fixer_steps=0,
        backend="triton", target=args.target, traceset_root=folder.root, workers=args.workers,
        save_fields=(), screening=Scrutiny.FULL,
    )
    failures: dict[str, int] = {}

    def sampled(case: str, number: int, node: Node) -> None:
        status = node.evaluation.status.value
        failures[status] = failures.get(status, 0) + 1
        if node.speedup and node.speedup > 1.3:
            say(f"{case} iteration {number}: {node.speedup:.2f}x  {node.change.sentence[:90]}")

    async def go():
        async with open_run(options.config(place, ROOT), {}) as run:
            return await optimize_all(
                [case_of(*paths)], run._replace(watcher=Watcher(sampled=sampled))
            )

    (outcome,) = asyncio.run(go())
    say(f"{name}: the loop is done, samples by verdict: {failures}")
    return outcome


def winner_of(folder: TraceFolder, name: str, outcome, args):
    """What the loop found, or what an earlier run kept; the start where there is neither."""
    start = folder.solutions_of(name)[0]
    if outcome is not None and outcome.source:
        winner = start.with_source(outcome.source, f"offline_{name}")
        return winner.model_copy(update={"description": "; ".join(outcome.changes)})
    kept = next(args.winners.rglob(f"offline_{name}.json"), None) if args.winners else None
    return read_json(Solution, kept) if kept else start


def verdicts(folder: TraceFolder, name: str, solution, workloads, root: Path) -> dict[str, str]:
    """The status of a solution on each workload; what was wrong beside it."""
    found = {}
    for workload in workloads:
        task = task_of(folder, name, solution, plan=SCREEN)
        evaluation = evaluate(task._replace(workload=workload, root=root)).evaluation
        said = "" if evaluation.profile else f": {evaluation.message[:160]}"
        found[workload.workload.uuid] = f"{evaluation.status.value}{said}"
    return found


def elsewhere(folder: TraceFolder, name: str, winner, args) -> dict[str, dict[str, str]]:
    """The verdicts on the winner for every other workload of its definition, and on shapes of our own;
    where it fails there, also those on the start."""
    large, definition = large_workload(folder, name), folder.definitions[name]
    others = [workload for workload in folder.workloads[name] if workload is not large]
    mine, place = shapes.own_workloads(definition, large), args.out / "shapes"
    own = verdicts(folder, name, winner, mine, place)
    wrong = [one for one in mine if own[one.workload.uuid] != "correct"]
    return {
        "elsewhere": verdicts(folder, name, winner, others, folder.root),
        "own_shapes": own,
        "start_on_own_shapes": verdicts(folder, name, folder.solutions_of(name)[0], wrong, place),
    }


def remeasure(folder: TraceFolder, name: str, outcome, args) -> dict[str, object]:
    """Start and winner, `--turns` times in turn, references and libraries, all in this run."""
    start, winner = folder.solutions_of(name)[0], winner_of(folder, name, outcome, args)
    row: dict[str, object] = {"definition": name, "changes": winner.description}
    judged = True
    task = task_of(folder, name, start)
    row["libraries"] = libraries.measure_libraries(task)
    found: dict[str, list[float]] = {"start": [], "winner": []}
    for turn in range(args.turns):
        for label, solution in (("start", start), ("winner", winner)):
            verdict = evaluate(task_of(folder, name, solution, plan=FULL))
            if verdict.evaluation.profile is None:
                judged = judged and verdict.evaluation.status not in NO_VERDICTS
                row[f"{label}_failure"] = failure_of(verdict.evaluation)
                continue
            found[label].append(verdict.latency.median)
            kernel_ms = verdict.evaluation.profile.metrics.get("kernel_latency_ms")
            if kernel_ms is not None:
                row[f"{label}_kernel_ms"] = kernel_ms
            row[f"{label}_interval_ms"] = [verdict.latency.low, verdict.latency.high]
            row["hardware"], row["libs"] = verdict.hardware, verdict.libs
            row[f"{label}_notes"] = list(verdict.evaluation.notes)
            if turn == 0 and "traces" not in args.skip:
                keep(args.out / "traces", task_of(folder, name, solution), verdict)
    for label, values in found.items():
        if values:
            row[f"{label}_ms"] = statistics.mean(values)
    row |= elsewhere(folder, name, winner, args)
    target = gpu_called(str(row.get("hardware", "")))
    if target is not None:
        least = bound(task.definition, task.workload.workload, target)
        row["bound_ms"], row["bound_by"] = least.milliseconds, least.limit
    say(f"{name}: measured")
    if judged:  # what failed beside the solutions is tried again
        write_atomically(args.out / "rows" / f"{name}.json", json.dumps(row, indent=2) + "\n")
    return row


def failure_of(evaluation: Evaluation) -> str:
    """Why there is no latency; where a process of ours failed, the end of what it said."""
    said = f"{evaluation.status.value}: {evaluation.message}"
    return f"{said}\n{evaluation.traceback[-2000:]}" if evaluation.status in NO_VERDICTS else said


def recorded(folder: TraceFolder, name: str, args) -> dict[str, object]:
    """One problem from its start to its row, or why there is none: the others are worth having. A row that an
    earlier run left in the same folder is taken as it is, so a recording can be made in pieces."""
    kept = args.out / "rows" / f"{name}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    try:
        outcome = None if "loop" in args.skip else optimise(folder, name, args)
        if "final" in args.skip:
            return {"definition": name, "changes": "; ".join(outcome.changes) if outcome else ""}
        return remeasure(folder, name, outcome, args)
    except Exception as error:
        say(f"{name}: {type(error).__name__}: {error}")
        return {"definition": name, "failure": f"{type(error).__name__}: {error}"}


def hostile(folder: TraceFolder, args) -> list[dict[str, object]]:
    """Every dishonest solution on the GPU; each must be refused."""
    import museum

    def judge(exhibit):
        definition = folder.definitions[exhibit.definition]
        tasked = task_of(folder, definition.name, exhibit.solution(folder), timeout_seconds=20)
        verdict = evaluate(tasked._replace(plan=TimingPlan(package=False)))
        return {
            "name": exhibit.name,
            "deceit": exhibit.deceit,
            "status": verdict.evaluation.status.value,
            "message": verdict.evaluation.message[:300],
            "seconds": round(verdict.evaluation.seconds, 1),
        }

    return in_parallel(judge, museum.exhibits(), args.together)


def report(rows: list[dict[str, object]], refused: list[dict[str, object]], args) -> str:
    """A table for people."""
    lines = [
        "| definition | start ms | best ms | in kernels: start, best | PyTorch ms | compiled ms | library ms, in kernels "
        "| over start | over compiled | over library, in kernels | of bound | other workloads, own shapes |",
        "|---" * 12 + "|",
    ]
    gains = []
    for row in sorted(rows, key=lambda item: str(item["definition"])):
        if "start_ms" not in row or "winner_ms" not in row:
            lines.append(f"| {row['definition']} | {row} |")
            continue
        lines.append(line_of(row))
        gains.append(float(row["start_ms"]) / float(row["winner_ms"]))
    if gains:
        lines.append(f"\ngeometric mean over start: {statistics.geometric_mean(gains):.3f}")
    if refused:
        caught = sum(item["status"] != "correct" for item in refused)
        lines.append(f"\ndishonest solutions refused: {caught} of {len(refused)}")
        lines += [f"- {i['name']}: {i['status']} ({i['seconds']} s) {i['message'][:110]}" for i in refused]
    return "\n".join(lines) + "\n"


def line_of(row: dict[str, object]) -> str:
    """One problem as a line of the table."""
    start, best = float(row["start_ms"]), float(row["winner_ms"])
    kernels = row.get("winner_kernel_ms")

    def ms(value) -> str:
        return f"{float(value):.4f}" if value else "none"

    def over(value, ours=best) -> str:
        return f"{float(value) / float(ours):.2f}" if value and ours else "none"

    plain, compiled = (row["libraries"].get(name, {}).get("ms") for name in ("reference", "compiled"))
    library = libraries.best(row["libraries"])
    name, library_ms = library or ("none", None)
    inside = row["libraries"][name]["kernel_ms"] if library else None
    share = f"{float(row['bound_ms']) / best:.0%} ({row['bound_by']})" if "bound_ms" in row else ""
    right = [
        f"{sum(status == 'correct' for status in found.values())} of {len(found)}"
        for found in (row["elsewhere"], row["own_shapes"])
    ]
    cells = [
        row["definition"], ms(start), ms(best), f"{ms(row.get('start_kernel_ms'))}, {ms(kernels)}",
        ms(plain), ms(compiled), f"{ms(library_ms)}, {ms(inside)} ({name})",
        f"**{start / best:.3f}**", over(compiled), f"{over(library_ms)}, {over(inside, kernels)}",
        share, ", ".join(right),
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def compared(args) -> str:
    """Every kept trace against the starting solutions, as text, CSV and a chart."""
    comparison = compare([args.out / "traces"], baseline=args.baseline, timer="launch-free")
    write_atomically(args.out / "comparison.csv", as_csv(comparison))
    write_atomically(args.out / "comparison.svg", as_svg(comparison))
    return as_text(comparison)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments/flb_h200/results")
    parser.add_argument("--traceset_root", type=Path, default=STARTER)
    parser.add_argument("--baseline", default="plain_*", help="the starting solutions' names")
    parser.add_argument("--definitions", nargs="*")
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--beam", type=int, default=2)
    parser.add_argument("--plans", type=int, default=4)
    parser.add_argument("--workers", type=int, default=3, help="kernels of a problem judged at a time")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--turns", type=int, default=2, help="start and winner, so many times each")
    parser.add_argument("--together", type=int, default=8, help="problems side by side")
    parser.add_argument("--winners", type=Path, help="a folder of winners, in the place of a loop")
    parser.add_argument("--skip", nargs="*", default=[], help="loop, hostile, final, traces")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    folder = TraceFolder(args.traceset_root)
    names = args.definitions or sorted(folder.definitions)
    rows = in_parallel(lambda name: recorded(folder, name, args), names, args.together)
    say("starts and winners are measured")
    refused = []
    write_summary(rows, refused, args)
    if "hostile" not in args.skip:
        refused = hostile(folder, args)
        say("the hostile solutions are judged")
    print(write_summary(rows, refused, args))
    say("done")


def write_summary(rows: list[dict[str, object]], refused: list[dict[str, object]], args) -> str:
    """`summary.json` and `summary.md`, with the date and the versions; returns the text."""
    stamp = datetime.now(timezone.utc).isoformat(timespec="seconds")
    versions = installed_flashinfer_bench.versions()
    seconds = round(time.monotonic() - BEGIN)
    summary = {
        "date": stamp, "versions": versions, "seconds": seconds, "rows": rows, "hostile": refused
    }  # fmt: skip
    write_atomically(args.out / "summary.json", json.dumps(summary, indent=2) + "\n")
    text = report(rows, refused, args)
    if (args.out / "traces").is_dir():
        text += f"\n```\n{compared(args)}```\n"
    write_atomically(args.out / "summary.md", f"{stamp}, {versions}, {seconds} s\n\n{text}")
    return text


if __name__ == "__main__":
    main()
