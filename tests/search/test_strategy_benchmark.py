"""benchmarks/strategies.py on one tiny problem: every file that it writes, and that it continues."""

import csv

import small_problem
import strategies


def test_the_benchmark_of_strategies_runs_and_continues(tmp_path):
    checkout, out = small_problem.benchmark(tmp_path / "checkout"), tmp_path / "out"
    told = [str(checkout), "--strategies", "random", "mcgs", "--evaluations", "3", "--seeds", "1"]
    strategies.main([*told, "--no-verify", "--workers", "1", "--out", str(out)])
    rows = list(csv.DictReader((out / "curves.csv").open()))
    by = {name: [row for row in rows if row["strategy"] == name] for name in ("random", "mcgs")}
    assert all(
        [row["evaluations"] for row in found] == ["0", "1", "2", "3"] for found in by.values()
    )
    speedups = [float(row["speedup"]) for row in by["mcgs"]]
    assert speedups == sorted(speedups) and speedups[0] == 1 < speedups[-1]
    offline = next(row for row in rows if row["strategy"] == strategies.OFFLINE)
    assert float(offline["speedup"]) > 1
    summary = (out / "summary.md").read_text()
    assert "1 problems (silu)" in summary and "| mcgs |" in summary
    journal = out / "runs" / "mcgs_0" / "journal.jsonl"
    kept = journal.read_text()
    strategies.main([*told, "--no-verify", "--workers", "1", "--out", str(out)])
    assert journal.read_text() == kept and (out / "summary.md").read_text() == summary
