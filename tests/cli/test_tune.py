"""`accelopt tune` on NKI kernels: killed and resumed, and what it comes to at a given budget."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_problem import KERNEL, REFERENCE, ROOT

from accelopt.kernels.nki.benchmark import read_benchmark
from accelopt.kernels.nki.knobs import FactorKnobs
from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.moves.reading.shapes import kernel_arguments

COMMAND = [sys.executable, "-c", "from accelopt.cli import main; main()", "tune"]
BUDGET = ["--max-iterations", "0", "--patience", "0", "--workers", "2", "--evaluations"]
KILLS = 4
CASES = {case.problem: case for case in read_benchmark(ROOT / "NKIBench")[0]}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path


def begin(folder, out):
    """A process that tunes the small kernel, or goes on with it, with a cache of its own."""
    words = ["--resume"] if (folder / out / "journal.jsonl").exists() else []
    command = [*COMMAND, "kernel.py", "--reference", "reference.py", *BUDGET, "12", "--out", out]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / f"cache_{out}")}
    return subprocess.Popen(
        [*command, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def journal(folder):
    """The whole lines of a run's journal: kind and key of each."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [tuple(json.loads(line)[:2]) for line in lines if line.endswith(b"\n")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments_and_resumed_the_state_is_the_same(files, seed):
    chance = random.Random(seed)
    whole = begin(files, "whole")
    assert whole.wait(600) == 0, whole.stdout.read().decode()
    lines = len(journal(files / "whole"))
    moments = sorted(chance.sample(range(1, lines), KILLS))
    for moment in moments:
        process = begin(files, "killed")
        while process.poll() is None and len(journal(files / "killed")) < moment:
            time.sleep(0.002)
        process.kill()
        process.wait(60)
    last = begin(files, "killed")
    assert last.wait(600) == 0, last.stdout.read().decode()
    states = [
        (files / out / "kernel" / "tuning_state.json").read_text() for out in ("whole", "killed")
    ]
    assert states[0] == states[1] and len(json.loads(states[0])["history"]) >= 12
    kept = [line for line in journal(files / "killed") if line[0] == "evaluation"]
    assert len(kept) == len(set(kept))


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["silu", "rmsnorm_matmul", "matmul"])
def test_factors_of_three_problems_are_spaces_of_four_points_or_more(problem):
    case = CASES[problem]
    source, reference = (Path(file).read_text() for file in (case.kernel, case.task))
    knobs = FactorKnobs(source, Facts(arguments=kernel_arguments(source, reference)))
    assert knobs.space(problem, {}).size >= 4


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["silu", "rmsnorm_matmul"])
def test_sixteen_evaluations_make_a_kernel_faster(tmp_path, problem):
    case = CASES[problem]
    words = [case.kernel, "--reference", case.task, *BUDGET, "16", "--out", str(tmp_path / "out")]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    [state] = [json.loads(path.read_text()) for path in tmp_path.glob("out/*/tuning_state.json")]
    [summary] = [json.loads(path.read_text()) for path in tmp_path.glob("out/*/best_summary.json")]
    assert summary["speedup"] > 1 and summary["verified"]
    tried = [entry for entry in state["history"] if entry["correct"] or entry["reason"]]
    assert len(tried) == len(state["history"]) >= 16
