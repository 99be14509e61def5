"""The managers on toy kernels: what they return, what they refuse, how they stop."""

import json

import planted_fsm
import pytest
import toy

from accelopt.fsm import FSMOptimizationManager, OptimizationManager

BACKEND = "planted_fsm:Resources"


def manage(folder, extra="pass", test_code="", **options):
    case = planted_fsm.start(folder / "start", extra=extra)
    settings = {"backend": BACKEND, "max_rounds": 3, "workers": 2, **options}
    made = OptimizationManager(log_dir=folder / "run", **settings)
    return made.run_optimization(case.kernel, case.task, test_code)


def test_offline_the_result_has_the_published_keys_and_files(tmp_path):
    found = manage(tmp_path)
    assert found["success"] and found["best_time_ms"] == toy.cost_of(found["kernel_code"]) < 100
    assert found["initial_kernel_time_ms"] == 100.0
    assert found["total_rounds"] == 3 and found["stop_reason"] == "3 rounds are done"
    assert found["pytorch_baseline_ms"] == found["pytorch_compile_ms"] == float("inf")
    best = found["top_kernels"][0]
    assert best["kernel_code"] == found["kernel_code"] and best["generation"] >= 1
    run = tmp_path / "run"
    database = json.loads((run / "program_database.json").read_text())["programs"]
    assert best["program_id"] in {row["program_id"] for row in database}
    assert "round 1: best" in (run / "manager.log").read_text()
    worker = run / "workers" / "w0" / "r1"
    for name in ("kernel_round_1.py", "round001_strategy.json", "round001_reflexion.txt"):
        assert (worker / name).stat().st_size
    assert (worker / "output" / "best_kernel.py").stat().st_size


def test_a_start_kernel_that_fails_is_a_result_and_no_worker_starts(tmp_path):
    found = manage(tmp_path, extra="BROKEN = 1")
    assert not found["success"] and "BROKEN" in found["error"]
    assert not (tmp_path / "run" / "workers").exists()


def test_wrong_arguments_are_said_at_once(tmp_path):
    with pytest.raises(ValueError, match="num_workers=3, but beam_search needs 4"):
        FSMOptimizationManager(num_workers=3)
    with pytest.raises(ValueError, match="no strategy 'anneal'; there are beam_search, greedy"):
        FSMOptimizationManager(strategy="anneal")
    with pytest.raises(ValueError, match="no worker option 'colour'"):
        FSMOptimizationManager(colour=1)


def test_a_finished_run_is_continued_for_nothing(tmp_path):
    first = manage(tmp_path)
    journal = (tmp_path / "run" / "journal.jsonl").read_bytes()
    assert manage(tmp_path) == first
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == journal
    more = manage(tmp_path, max_rounds=8)
    assert more["total_rounds"] > 3 and more["best_time_ms"] < first["best_time_ms"]
