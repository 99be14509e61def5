"""Winners without a loop: of each starting solution's first proposals, the one that is fastest as called.

    python experiments/flb_h200/proposed.py --traceset_root FOLDER --out WINNERS [--first 12]

Proposals are the kernels written anew, those of `torch.compile`, and other configurations; `--kinds` picks.
Each problem has a process of its own; a proposal counts where its outputs are the reference's on one draw of the
largest workload, and is timed launch-free as it is called, the L2 flushed, alone on the device. That is a
screen and no verdict: `run.py --winners WINNERS` has the whole referee judge what comes of it. A problem whose
winner is kept already is left alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import libraries

from accelopt.algorithm.traced_array import NotTraced
from accelopt.hardware.gpus import GPUS
from accelopt.kernels.gpu.bench.files.index_tensors import materialise
from accelopt.kernels.gpu.bench.files.input_draws import fresh
from accelopt.kernels.gpu.bench.files.tracefiles import Solution, TraceFolder, write_json
from accelopt.kernels.gpu.bench.judging.baselines import write_inductor
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.process.inputs import InputFactory
from accelopt.kernels.gpu.bench.process.solution_loading import load_entry
from accelopt.kernels.triton.emission.schedule import NotEmitted
from accelopt.kernels.triton.emission.solutions import candidates
from accelopt.kernels.triton.inductor import Unread, Written, solution_source
from accelopt.kernels.triton.language import WORTH_TIMING
from accelopt.kernels.triton.configurations.proposals import proposals

SETS, LONGEST = 3, 160
KINDS = ("written", "compiled", "configurations")


def compiled(task: Task) -> list[tuple[str, str]]:
    """The kernels that `torch.compile` writes for the reference, where they are a solution."""
    found = write_inductor(task)
    given = task.workload.workload.inputs
    numbers = {name: one.value for name, one in given.items() if one.value is not None}
    written = Written(found.text, found.origins, found.chosen, [*task.definition.inputs], numbers)
    try:
        return (
            []
            if found.failure
            else [("torch.compile's own Triton", solution_source(written, "run"))]
        )
    except Unread as reason:
        print(f"{task.definition.name}: torch.compile gives no candidate: {reason}", flush=True)
        return []


def written(task: Task, target: str, first: int, start_ms: float) -> Iterator[tuple[str, str]]:
    """The kernels that are written anew from what the start computes, those that a search would time."""
    gpu = GPUS[target]
    try:
        found = candidates(task.solution, task.definition, task.workload.workload, gpu, first)
    except (NotTraced, NotEmitted) as reason:
        print(f"{task.definition.name}: not written anew: {reason}", flush=True)
        return
    for one in found:
        if one.milliseconds < WORTH_TIMING * start_ms:
            yield f"written anew, {one.milliseconds:.3g} ms expected", one.source


def screened(root: Path, name: str, out: Path, first: int, kinds: list[str], target: str) -> str:
    """The fastest right proposal of one problem goes to `out`; what was found, a line a proposal."""
    import torch

    torch.cuda.set_device("cuda:0")
    torch.set_grad_enabled(False)
    folder = TraceFolder(root)
    definition, start = folder.definitions[name], folder.solutions_of(name)[0]
    workload = max(folder.workloads[name], key=lambda trace: sum(trace.workload.axes.values()))
    task = Task(root, definition, workload, start)
    materialise(root, definition, workload.workload)
    factory = InputFactory(root, definition, workload.workload, task.device)
    sets = [factory.make(fresh()) for _ in range(SETS)]
    right = libraries.reference_of(definition)(*sets[0])
    found: list[tuple[float, int, Solution]] = []
    lines: list[str] = []

    def offered() -> Iterator[tuple[str, str]]:
        yield "the start", start.main_source
        if "written" in kinds and found:
            yield from written(task, target, first, found[0][0])
        if "compiled" in kinds:
            yield from compiled(task)
        if "configurations" in kinds:
            for one in proposals(start.main_source, first):
                if one.source:
                    yield one.sentence, one.source

    for number, (sentence, source) in enumerate(offered()):
        solution = start.with_source(source, f"offline_{name}").model_copy(
            update={"description": sentence}
        )
        begin = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as place:
                function = load_entry(solution, Path(place), definition)

                def call(given, function=function):
                    return function(*given)

                error = libraries.error_of(task, right, call(sets[0]))
                if not error < libraries.RIGHT:
                    raise ValueError(f"relative L2 {error:.2g}")
                calls = [partial(call, one) for one in sets]
                taken = libraries.timed(task, calls, slow=False)["ms"]
            found.append((taken, number, solution))
            said = f"{taken:.4f} ms"
        except Exception as failure:  # it does not compile, or is wrong
            said = f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0][:80]}"
        lines.append(
            f"{name} {number}: {said} ({time.monotonic() - begin:.0f} s) {sentence[:LONGEST]}"
        )
        print(lines[-1], flush=True)
    if found:
        write_json(min(found, key=lambda one: one[:2])[2], out / f"offline_{name}.json")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traceset_root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--definitions", nargs="*")
    parser.add_argument("--first", type=int, default=12, help="of each kind")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--target", default="h200")
    args = parser.parse_args()
    names = args.definitions or sorted(TraceFolder(args.traceset_root).definitions)
    left = [name for name in names if not (args.out / f"offline_{name}.json").exists()]
    with ProcessPoolExecutor(max(1, len(left)), mp_context=get_context("spawn")) as pool:
        asked = {
            name: pool.submit(
                screened, args.traceset_root, name, args.out, args.first, args.kinds, args.target
            )
            for name in left
        }
        for name, one in asked.items():
            if (error := one.exception()) is not None:
                print(json.dumps({"problem": name, "failure": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    main()
