"""Standings against the roofline, from tables as users have them."""

import csv
import json

import pytest

from accelopt.evaluation import Case, Profile
from accelopt.published import CandidateRow
from accelopt.stages.roofline_standings import peak_words, standings, write_standings

COLUMNS = "problem values case_id task kernel case_name service_name profile".split()


def table(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def profiles(tmp_path):
    def row(problem, values, profile):
        name = "_".join([problem, *(f"{k}{values[k]}" for k in sorted(values))])
        fields = [problem, json.dumps(values), "0", "t.py", "k.py", name, f"{name}_ID0"]
        return dict(zip(COLUMNS, [*fields, json.dumps(profile)]))

    silu = {"latency": 1.333, "min_ms": 1.3, "max_ms": 1.4, "rel_diffs": 0.05}
    return table(
        tmp_path / "profile_results.csv",
        [
            row("silu", {"M": 4096, "N": 7168}, silu),
            row("sorting", {"N": 7}, silu),
            row("matmul", {"K": 5120, "M": 4096, "N": 12288}, {"compilation_error": "no"}),
        ],
    )


def test_only_profiled_cases_with_a_bound_stand(profiles):
    (silu,) = standings(profiles)
    assert silu.bound_key == "memory" and silu.best_speedup == 1
    assert silu.baseline_percentage == pytest.approx(0.40, abs=0.01)
    assert silu.headroom == pytest.approx(1 / silu.baseline_percentage)


def test_the_best_of_a_case_counts(profiles, tmp_path):
    rows = [
        {"case_name": "silu_M4096_N7168", "best_speedup": s} for s in ("1.2", "1.71", "", "1.5")
    ]
    (silu,) = standings(profiles, table(tmp_path / "best.csv", rows))
    assert silu.achieved_percentage == pytest.approx(0.687, abs=0.005)
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
    profile = Profile(
        latency=1.333, min_ms=1, max_ms=2, rel_diffs=0, target="trn1", simulated=False
    )
    values = {"M": 4096, "N": 7168}
    case = Case(problem="silu", values=values, task="", kernel="")
    candidate = CandidateRow(case, profile=profile)
    assert peak_words(candidate) == "40.0% of peak (memory)"
    other = case.model_copy(update={"problem": "sorting"})
    assert peak_words(CandidateRow(other, profile=profile)) == ""


def test_what_was_measured_for_the_published_baselines_is_there_by_default():
    """The fourteen timings of zhang677/AccelOpt, in `accelopt/measured/`."""
    rows = {row.case_name: row for row in standings(None)}
    assert len(rows) == 14
    silu = rows["silu_M4096_N7168"]
    assert 0.39 < silu.baseline_percentage < 0.41 and silu.bound_key == "memory"
    assert rows["gqa_full_B1_D128_KH8_N4096_QH16"].baseline_percentage < 0.31
