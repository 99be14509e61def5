"""`accelopt tune` and `optimize` on NKI kernels: killed and resumed, and what a tuning comes to."""

import json
import os
import random
import subprocess
import sys
import time

import pytest
from small_problem import ROOT

from accelopt.kernels.nki.benchmark import read_benchmark

ACCELOPT = [sys.executable, "-c", "from accelopt.cli import main; main()"]
COMMAND = [*ACCELOPT, "tune"]
BUDGET = ["--max-iterations", "0", "--patience", "0", "--workers", "2", "--evaluations"]
KILLS = 4
CASES = {case.problem: case for case in read_benchmark(ROOT / "NKIBench")[0]}


SEARCHES = {
    "tune": (["tune", *BUDGET, "12"], "tuning_state.json"),
    **{
        name: (
            ["optimize", "--strategy", name, "--evaluations", "12", "--workers", "2"],
            "search_state.json",
        )
        for name in ("mcgs", "regraph", "experts")
    },
}


def begin(folder, out, search):
    """A process that searches for the small kernel, or goes on with it, with a cache of its own."""
    words = ["--resume"] if (folder / out / "journal.jsonl").exists() else []
    options = ["kernel.py", "--reference", "reference.py", "--out", out]
    command = [*ACCELOPT, *SEARCHES[search][0], *options]
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
@pytest.mark.parametrize("search", SEARCHES)
def test_killed_at_random_moments_and_resumed_the_state_is_the_same(files, search, seed):
    chance = random.Random(seed)
    whole = begin(files, "whole", search)
    said, _ = whole.communicate(timeout=600)
    assert whole.returncode == 0, said.decode()
    lines = len(journal(files / "whole"))
    for moment in sorted(chance.sample(range(1, lines), KILLS)):
        process = begin(files, "killed", search)
        while process.poll() is None and len(journal(files / "killed")) < moment:
            time.sleep(0.002)
        process.kill()
        process.wait(60)
    last = begin(files, "killed", search)
    said, _ = last.communicate(timeout=600)
    assert last.returncode == 0, said.decode()
    found = [[*(files / out).glob(f"*/{SEARCHES[search][1]}")] for out in ("whole", "killed")]
    states = [path.read_text() for [path] in found]
    assert states[0] == states[1] and json.loads(states[0])["ended"]
    kept = [line for line in journal(files / "killed") if line[0] == "evaluation"]
    assert len(kept) == len(set(kept))


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
