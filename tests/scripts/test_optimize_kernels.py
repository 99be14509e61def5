"""The script for spec files: its options, the folders that it leaves, and how it goes on. On the simulated
core, for what is the same for every language; what needs a GPU is in `tests/contract`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_problem import ROOT, benchmark

SCRIPT = [sys.executable, str(ROOT / "scripts" / "optimize_kernels.py")]
ARTIFACTS = {
    "control.json", "run.json", "runner_result.json", "result.json", "candidate.diff",
    "kernel_module.py", "stdout.log", "stderr.log",
}  # fmt: skip


def start(*arguments, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI")} | variables
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [*SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A search of one evaluation, continued to two."""
    place = tmp_path_factory.mktemp("specs")
    common = ("--backend", "nki", "--input", benchmark(place / "bench"), "--outdir", place / "out",
              "--no-llm")  # fmt: skip
    said, events = [], []
    for more in (("--budget-builds", 1), ("--budget-builds", 2, "--resume")):
        said.append(start(*common, *more))
        assert said[-1].returncode == 0, said[-1].stderr
        (folder,) = (place / "out" / "kernels").iterdir()
        events.append((folder / "events.jsonl").read_text())
    return folder, events, start(*common, "--budget-builds", 3)


@pytest.mark.slow
def test_every_artifact_of_every_build_is_there(searched):
    folder, events, _ = searched
    told = [json.loads(line) for line in events[-1].splitlines()]
    assert len(told) == 2
    for variant in folders_of(events[-1], folder):
        result = json.loads((variant / "result.json").read_text())
        assert result["materialized_source"] == (variant / "kernel_module.py").read_text()
    state = json.loads((folder / "search_state.json").read_text())
    assert state["root_state_hash"] in state["nodes"] and state["graph_version"]
    tactics = json.loads((folder.parents[1] / "global_tactic_graph.json").read_text())
    assert tactics["graph_version"] == state["graph_version"] and tactics["nki"]
    assert "Ended: 2 evaluations are spent" in (folder / "trace.md").read_text()


@pytest.mark.slow
def test_the_best_is_linked_and_summed_up(searched):
    folder, _, _ = searched
    summary = json.loads((folder / "best_summary.json").read_text())
    assert summary["best_ms"] <= summary["baseline_ms"] and summary["verified"]
    assert (folder / "best").resolve() == (folder / summary["variant_dir"]).resolve()
    rows = (folder.parents[1] / "regraph_dataset.jsonl").read_text().splitlines()
    assert len(rows) >= 1
    built = start("--build-regraph", "--outdir", folder.parents[1])
    assert built.returncode == 0 and f"{len(rows)} transitions" in built.stdout


@pytest.mark.slow
def test_a_larger_budget_continues_the_same_search(searched):
    _, (first, second), again = searched
    assert second.startswith(first) and len(second.splitlines()) == 2
    assert again.returncode == 1 and "add --resume" in again.stderr


def folders_of(events, folder):
    """The folders of the builds that were told, each of them whole."""
    for event in map(json.loads, events.splitlines()):
        variant = folder / event["variant_dir"]
        assert {path.name for path in variant.iterdir()} >= ARTIFACTS
        result = json.loads((variant / "result.json").read_text())
        assert result["ok"] is event["ok"] and result["median_ms"] == event["mean_ms"]
        yield variant


def killed_after(builds, folder, *arguments):
    """Start the script and kill it when so many builds are told; what stands in `events.jsonl` then."""
    events = folder / "events.jsonl"
    process = subprocess.Popen(
        [*SCRIPT, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not events.exists() or events.read_text().count("\n") < builds:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return events.read_text()


@pytest.mark.slow
def test_what_was_built_before_a_kill_lies_there(tmp_path):
    """Killed twice between builds, the second time while it continues; then there is no time for more."""
    out = tmp_path / "out"
    common = ("--backend", "nki", "--input", benchmark(tmp_path / "bench"), "--outdir", out,
              "--no-llm", "--search", "regraph")  # fmt: skip
    folder = out / "kernels" / "silu_M256_N1024"
    first = killed_after(2, folder, *common, "--budget-builds", 100)
    assert len(list(folders_of(first, folder))) >= 2
    assert (folder / "input_spec.json").exists()
    assert {path.name for path in (folder / "baseline").iterdir()} >= ARTIFACTS
    second = killed_after(5, folder, *common, "--budget-builds", 100, "--resume")
    assert second.startswith(first)
    told = list(folders_of(second, folder))
    written = {path: (path / "result.json").stat().st_mtime_ns for path in told}
    done = start(*common, "--budget-builds", 100, "--resume", "--time", 0.01)
    assert done.returncode == 0, done.stderr
    last = (folder / "events.jsonl").read_text()
    assert last.startswith(second) and len(list(folders_of(last, folder))) >= len(told)
    assert {path: (path / "result.json").stat().st_mtime_ns for path in told} == written
    assert "seconds are over" in (folder / "trace.md").read_text()
    assert (folder / "search_state.json").exists() and (folder / "best").exists()
    summary = json.loads((folder / "best_summary.json").read_text())
    times = [event["mean_ms"] for event in map(json.loads, last.splitlines()) if event["ok"]]
    assert summary["verified"] and summary["best_ms"] == min(summary["baseline_ms"], *times)


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (("--input", "nowhere.json", "--no-llm"), {}, "nowhere.json"),
        ((), {}, "OPENAI_API_KEY is not set"),
        (("--gpus", "0,0", "--no-llm"), {}, "is not a list of GPUs"),
        (("--budget-builds", "0"), {}, "a whole number of 1 or more"),
        (("--worker", "nowhere.json"), {}, "nowhere.json"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path, arguments, variables, said):
    done = start("--outdir", tmp_path / "out", *arguments, **variables)
    assert done.returncode in (1, 2) and said in done.stderr
    assert "Traceback" not in done.stderr and not Path(tmp_path / "out" / "kernels").exists()


@pytest.mark.slow
def test_rules_alone_make_three_kernels_faster_at_their_full_size(tmp_path):
    """Sixteen builds each on the simulated trn1, without a model."""
    names = ("silu", "rmsnorm_matmul", "matmul")
    out = tmp_path / "out"
    done = start("--backend", "nki", "--input", ",".join(names), "--target", "trn1", "--outdir", out,
                 "--no-llm", "--budget-builds", 16)  # fmt: skip
    assert done.returncode == 0, done.stderr
    folders = list((out / "kernels").iterdir())
    assert len(folders) == len(names)
    for folder in folders:
        summary = json.loads((folder / "best_summary.json").read_text())
        assert summary["verified"] and summary["baseline_ms"] / summary["best_ms"] > 1.0
        state = json.loads((folder / "search_state.json").read_text())
        assert state["best_ms"] == summary["best_ms"] and state["nodes"]
