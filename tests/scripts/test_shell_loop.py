"""The shell loop on a small problem: folders, files, ten-and-more parameters, interruption."""

import contextlib
import csv
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripted_server import ScriptedServer
from small_problem import KERNEL, benchmark

from accelopt.stages.record_files import write_table
from accelopt.stages.shell_loops import loops_in, prepare_loops, tell_loops

ROOT = Path(__file__).resolve().parents[2]
LOOP = ROOT / "templates" / "complete_local" / "run_single_loop.sh"


def arguments(base, first="eval-0-t-01", iterations=1):
    published = [base, first, "eval-0-t", 0, "project", 2e-5, "organisation", iterations]
    return [*map(str, published), *"2 2 1 1.0001 1.0001 8 16".split()]


def ran(script, *words, folder=None, **environment):
    """A shell loop that has ended."""
    command = ["bash", str(script), *map(str, words)]
    return subprocess.run(
        command, env=environment or None, cwd=folder, capture_output=True, text=True
    )


def alone(folder):
    """The environment of a user who has activated none."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHON": sys.executable}


@pytest.mark.slow
def test_two_iterations_and_again(pipeline, tmp_path):
    base, first = tmp_path / "silu_M256_N1024_ID0", "eval-0-t-01"
    (base / "configs").mkdir(parents=True)
    for role in ("planner", "executor", "summarizer"):
        config = ROOT / "templates" / "complete_local" / "model_config.json"
        shutil.copy(config, base / "configs" / f"{role}_config.json")
    (base / first / "candidates").mkdir(parents=True)
    shutil.copy(pipeline / "profile_results.csv", base / first / "candidates")

    environment = {k: v for k, v in os.environ.items() if k != "ACCELOPT_BASE_DIR"}
    environment["PYTHON"] = sys.executable
    done = ran(LOOP, *arguments(base), folder=tmp_path, **environment)
    assert done.returncode == 0, done.stderr[-3000:]

    log = (base / "log.txt").read_text().split()
    assert log[0] == first and len(log) == 2 and log[1].startswith("eval-0-t-")
    second = base / log[1]
    for name in (
        "candidates/candidates.csv",
        "candidates/profile_results.csv",
        "candidates/last_iteration_executor_results.json",
        "rewrites/rewrites_selection_output_list.json",
        "rewrites/rewrites_selection_output_plan_ids.json",
        "rewrites/rewrites_selection_output_speedups.json",
        "rewrites/aggregated_rewrites_list.json",
        "planner_prompts/base_prompt.txt",
        "planner_results.json",
        "executor_results.json",
        "logfire_env_name.txt",
        "planner_start_end_time.txt",
        "executor_start_end_time.txt",
    ):
        assert (second / name).is_file(), name
    assert json.loads((second / "rewrites" / "aggregated_rewrites_list.json").read_text())
    assert "# Experiences" in (second / "planner_prompts" / "base_prompt.txt").read_text()

    again = ran(LOOP, *arguments(base), folder=tmp_path, **environment)
    assert again.returncode == 0, again.stderr[-3000:]
    assert (base / "log.txt").read_text().split() == log  # finished: nothing more to do


def test_a_failing_stage_stops_the_loop(tmp_path):
    done = ran(LOOP, *arguments(tmp_path), **{**os.environ, "PYTHON": sys.executable})
    assert "error: cannot read the model configuration" in done.stderr
    assert done.returncode != 0
    assert (tmp_path / "log.txt").read_text() == ""


@pytest.mark.slow
def test_the_whole_loop_with_named_options(tmp_path):
    """One command, no activated environment: kernels, diff, table, report; again, nothing is done."""
    place = benchmark(tmp_path / "bench")
    words = f"--problems silu --summary {place} --iterations 2 --plans 1 --out {tmp_path / 'loop'}"

    def loop():
        done = ran(LOOP.with_name("loop.sh"), *words.split(), **alone(tmp_path))
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    first = loop()
    assert "Results on the simulated trn1 NeuronCore" in first.stdout
    assert re.search(r"\d%\s→\s\d+%", first.stdout), first.stdout  # of the bound, before and after
    [folder] = (tmp_path / "loop").glob("*_ID0")
    assert "def kernel" in (folder / "best.py").read_text()
    assert (folder / "best.diff").read_text().startswith("--- a/silu.py")
    report = (tmp_path / "loop" / "report.html").read_text()
    assert all(part in report for part in ("<svg", 'class="tree"', '-diff"', "simulated trn1"))
    assert "times as fast" not in loop().stderr


def answered(request):
    """A planner's, an executor's or a summarizer's words, as a model would have them."""
    system = request["messages"][0]["content"]
    if "performance engineer" in system:
        return "Title: whole rows\nLoad, compute and store a whole row of 1024 at a time."
    if "You write" in system:
        faster = KERNEL.replace("for j in nl.affine_range(8):", "for j in nl.affine_range(1):")
        return f"```python\n{faster.replace('128 : (j + 1) * 128', '1024 : (j + 1) * 1024')}```"
    return "**Whole rows**\n\nFewer, larger transfers are faster."


@pytest.mark.slow
def test_the_whole_loop_with_a_model(tmp_path):
    place = benchmark(tmp_path / "bench")
    with ScriptedServer(answered) as server:
        config = tmp_path / "model.json"
        config.write_text(json.dumps({"url": server.url, "model": "m", "backoff": 0.01}))
        words = (
            f"--problems silu --summary {place} --iterations 2 --plans 1 --model-config {config}"
        )
        words = [*words.split(), "--out", tmp_path / "loop"]
        done = ran(LOOP.with_name("loop.sh"), *words, **alone(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(server.requests) >= 5  # two plans, two kernels, a summary
    [folder] = (tmp_path / "loop").glob("*_ID0")
    assert "nl.affine_range(1)" in (folder / "best.py").read_text()
    assert "whole rows" in done.stdout


GPU_LOOP = ROOT / "templates" / "flb" / "complete_local" / "loop.sh"


def gpu_loop(tmp_path, *words):
    words = ("--out", tmp_path / "loop", *words)
    return ran(GPU_LOOP, *words, folder=tmp_path, **alone(tmp_path))


def test_the_loop_on_a_gpu_collects_solutions_and_says_what_it_lacks(tmp_path):
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("torch is here")
    done = gpu_loop(tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: torch is not installed; install it with: pip install 'accelopt[flashinfer]'"
    ]
    [row] = csv.DictReader((tmp_path / "loop" / "candidates.csv").open())
    assert "rmsnorm_h4096" in row["definition_path"]
    unknown = gpu_loop(tmp_path, "--problems", "nothing").stderr
    assert unknown.startswith("error: no definition 'nothing'") and "gemm_n4096_k4096" in unknown


def test_a_finished_loop_on_a_gpu_has_kernel_table_and_report(tmp_path):
    """What the loop's ends make of solutions: the profiles are written by hand, no GPU is asked."""
    starter = ROOT / "experiments" / "flb_optimize" / "starter_trace"
    folder, name = tmp_path / "loop", "rmsnorm_h4096"
    [workload, *_] = (starter / "workloads").rglob(f"{name}.jsonl")
    trace = folder / "workload.json"
    trace.parent.mkdir()
    trace.write_text(workload.read_text().splitlines()[0])
    [definition] = (starter / "definitions").rglob(f"{name}.json")
    [solution] = (starter / "solutions").rglob(f"plain_{name}.json")
    profile = {"latency": 0.15, "target": "NVIDIA H200", "simulated": False}
    row = {
        "definition_path": definition, "solution_path": solution, "workload_path": trace,
        "profile": json.dumps(profile),
    }  # fmt: skip
    write_table(folder / "profile_results.csv", [{k: str(v) for k, v in row.items()}], list(row))

    [loop] = prepare_loops(folder, ROOT / "templates" / "complete_local" / "model_config.json")
    story = tell_loops(folder)
    assert loops_in(folder) == [loop] and story.device == "a real NVIDIA H200"
    assert [problem.baseline for problem in story.problems] == [0.15]
    assert "import triton" in (loop / "best.py").read_text()


def test_the_loop_says_which_option_it_does_not_know():
    done = ran(LOOP.with_name("loop.sh"), "--speed", "9")
    assert done.returncode == 1
    assert done.stderr.startswith("error: --speed is no option of loop.sh")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("whole_group", [False, True])
def test_a_loop_that_is_killed_leaves_no_python_at_work(tmp_path, number, whole_group):
    """A shell that is killed tells its children nothing (signal(7)): they watch it (pidfd_open(2)).
    What they do here would take ten minutes."""
    command = ["bash", str(LOOP.with_name("loop.sh")), "--out", str(tmp_path / "loop")]
    summary = benchmark(tmp_path / "bench")
    reference = summary / "reference" / "silu.py"
    reference.write_text(f"import time\ntime.sleep(600)\n{reference.read_text()}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ACCELOPT_")}
    environment["PYTHON"] = sys.executable
    process = subprocess.Popen(
        [*command, "--summary", str(summary)], env=environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    mark = str(tmp_path).encode()
    waited_for(lambda: scripts_with(mark))
    time.sleep(1.5)  # it is past its imports, or will find out after them
    (os.killpg if whole_group else os.kill)(process.pid, number)
    waited_for(lambda: not scripts_with(mark))
    process.wait()


def scripts_with(mark):
    """Python processes with a text in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if b"python" in words[0] and any(mark in word for word in words):
                found.append(entry)
    return found


def waited_for(holds, seconds=240):
    """Ends when `holds()` is true; fails after so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)
