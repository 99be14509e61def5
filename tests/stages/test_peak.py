"""Standings against the roofline, from tables as users have them."""

import csv
import json
from pathlib import Path

import pytest
from timed_kernels import timed

from accelopt.evaluation import Case
from accelopt.script_file_columns import CandidateRow
from accelopt.stages.roofline_standings import bound_words, standings, write_standings

ROOT = Path(__file__).resolve().parents[2] / "NKIBench"
SILU = [
    str(ROOT / f"{part}.py")
    for part in ("reference/silu_M4096_N7168_numpy", "kernels/silu_M4096_N7168_0")
]

COLUMNS = "problem values case_id task kernel case_name service_name profile".split()


def table(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def profiles(tmp_path):
    def row(problem, values, profile, files=("t.py", "k.py")):
        name = "_".join([problem, *(f"{k}{values[k]}" for k in sorted(values))])
        fields = [problem, json.dumps(values), "0", *files, name, f"{name}_ID0"]
        return dict(zip(COLUMNS, [*fields, json.dumps(profile)]))

    silu = {"latency": 1.333, "min_ms": 1.3, "max_ms": 1.4, "rel_diffs": 0.05}
    return table(
        tmp_path / "profile_results.csv",
        [
            row("silu", {"M": 4096, "N": 7168}, silu, SILU),
            row("sorting", {"N": 7}, silu),
            row("matmul", {"K": 5120, "M": 4096, "N": 12288}, {"compilation_error": "no"}),
        ],
    )


def test_only_profiled_cases_with_a_bound_stand(profiles):
    (silu,) = standings(profiles)
    assert silu.bound_key == "memory" and silu.best_speedup == 1
    assert silu.baseline_percentage == pytest.approx(0.405, abs=0.001)
    assert silu.headroom == pytest.approx(1 / silu.baseline_percentage)


def test_the_best_of_a_case_counts(profiles, tmp_path):
    rows = [
        {"case_name": "silu_M4096_N7168", "best_speedup": s} for s in ("1.2", "1.71", "", "1.5")
    ]
    (silu,) = standings(profiles, table(tmp_path / "best.csv", rows))
    assert silu.achieved_percentage == pytest.approx(0.692, abs=0.001)
    assert silu.possible
    rows = [{"case_name": "silu_M4096_N7168", "speedup": "3.0"}]
    (silu,) = standings(profiles, table(tmp_path / "best.csv", rows))
    assert not silu.possible


def test_the_published_columns(profiles, tmp_path):
    write_standings(tmp_path / "headroom.csv", standings(profiles))
    with (tmp_path / "headroom.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert list(row) == (
        "problem,case_name,headroom,baseline_percentage,achieved_percentage,best_speedup,"
        "baseline_latency,theoretical_peak_latency,bound_key"
    ).split(",")
    assert float(row["baseline_latency"]) == 1.333


def test_words():
    profile = timed(1.333, simulated=False)
    case = Case(problem="silu", values={}, task=SILU[0], kernel=SILU[1])
    assert bound_words(CandidateRow(case, profile=profile)) == "40.5% of bound (memory)"
    other = case.model_copy(update={"kernel": "k.py"})
    assert bound_words(CandidateRow(other, profile=profile)) == ""
    on_gpu = profile.model_copy(update={"target": "H200"})
    assert bound_words(CandidateRow(case, profile=on_gpu)) == ""


def test_what_was_measured_for_the_published_baselines_is_there_by_default():
    """The fourteen timings of zhang677/AccelOpt, in `accelopt/measured/`. What memory bounds is as near to
    it as published (arXiv 2511.15915: rope 21.3, silu 40.1, adamw 51.0, bmm 54.7%)."""
    rows = {row.problem: row for row in standings(None)}
    assert len(rows) == 14 and all(row.possible for row in rows.values())
    published = {"rope_single_freq_apply": 0.213, "silu": 0.401, "adamw": 0.51, "bmm": 0.547}
    for problem, share in published.items():
        assert rows[problem].bound_key == "memory"
        assert rows[problem].baseline_percentage == pytest.approx(share, abs=0.006)
