"""The script for spec files: its options, the folders that it leaves, and how it goes on. On the simulated
core, for what is the same for every language; what needs a GPU is in `tests/contract`."""

import json
import os
import subprocess
import sys
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


def test_every_artifact_of_every_build_is_there(searched):
    folder, events, _ = searched
    told = [json.loads(line) for line in events[-1].splitlines()]
    assert len(told) == 2
    for event in told:
        variant = folder / event["variant_dir"]
        assert {path.name for path in variant.iterdir()} >= ARTIFACTS
        result = json.loads((variant / "result.json").read_text())
        assert result["ok"] is event["ok"] and result["median_ms"] == event["mean_ms"]
        assert result["materialized_source"] == (variant / "kernel_module.py").read_text()
    state = json.loads((folder / "search_state.json").read_text())
    assert state["root_state_hash"] in state["nodes"] and state["graph_version"]
    tactics = json.loads((folder.parents[1] / "global_tactic_graph.json").read_text())
    assert tactics["graph_version"] == state["graph_version"] and tactics["nki"]
    assert "Ended: 2 evaluations are spent" in (folder / "trace.md").read_text()


def test_the_best_is_linked_and_summed_up(searched):
    folder, _, _ = searched
    summary = json.loads((folder / "best_summary.json").read_text())
    assert summary["best_ms"] <= summary["baseline_ms"] and summary["verified"]
    assert (folder / "best").resolve() == (folder / summary["variant_dir"]).resolve()
    rows = (folder.parents[1] / "regraph_dataset.jsonl").read_text().splitlines()
    assert len(rows) >= 1
    built = start("--build-regraph", "--outdir", folder.parents[1])
    assert built.returncode == 0 and f"{len(rows)} transitions" in built.stdout


def test_a_larger_budget_continues_the_same_search(searched):
    _, (first, second), again = searched
    assert second.startswith(first) and len(second.splitlines()) == 2
    assert again.returncode == 1 and "add --resume" in again.stderr


def test_a_search_whose_time_is_over_ends_in_order_and_goes_on(tmp_path):
    """The seconds are few and the budget far away; all files are there, the best is checked again."""
    common = ("--backend", "nki", "--input", benchmark(tmp_path / "bench"), "--outdir",
              tmp_path / "out", "--no-llm", "--search", "regraph")  # fmt: skip
    done = start(*common, "--budget-builds", 500, "--time", 0.5)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "out" / "kernels").iterdir()
    assert "seconds are over" in (folder / "trace.md").read_text()
    summary = json.loads((folder / "best_summary.json").read_text())
    assert summary["verified"] and summary["best_ms"] <= summary["baseline_ms"]
    for name in ("search_state.json", "best", "baseline/result.json"):
        assert (folder / name).exists()
    first = (folder / "events.jsonl").read_text()
    builds = len(first.splitlines())
    assert builds < 500
    again = start(*common, "--budget-builds", builds + 1, "--resume")
    assert again.returncode == 0, again.stderr
    events = (folder / "events.jsonl").read_text()
    assert events.startswith(first) and len(events.splitlines()) == builds + 1
    for event in map(json.loads, events.splitlines()):
        variant = folder / event["variant_dir"]
        assert {path.name for path in variant.iterdir()} >= ARTIFACTS


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
