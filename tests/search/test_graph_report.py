"""The report of a graph search, against figures worked out by hand."""

import pytest
from test_catalog import ROWS, row

from accelopt.search.graph_report import Share, Spent, report_of
from accelopt.search.method_catalog import build_regraph


@pytest.mark.parametrize(
    ("won", "tried", "low", "high"),
    # Wilson's score interval: R, binom::binom.wilson, and by hand for 0 of 10: z^2 / (n + z^2)
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 100, 0.7222, 0.8749)],
)  # fmt: skip
def test_intervals_are_those_of_wilson(won, tried, low, high):
    assert Share(won, tried).interval == pytest.approx((low, high), abs=1e-4)


def test_of_nothing_nothing_is_known():
    assert Share(0, 0).interval == (0.0, 1.0) and Share(0, 0).record()["share"] is None
    report = report_of([], build_regraph([]), [], ["a"])
    assert report.record()["speedup_at"] == {} and report.methods == 1 and "none" in str(report)
    assert report.record()["edits_in_hot_region"] is None


def test_steps_along_known_edges_are_told_from_others():
    learned = build_regraph(ROWS)  # START to a, START to b, a to b, b to a
    rows = [
        row("START", "a", 0.1),
        row("a", "b", 0.01),
        row("a", "b"),
        row("b", "c", 0.3),
        row("b", "c", 0.0),
    ]
    named = [("a", True), ("warp", False)]
    report = report_of(rows, learned, named, ["a", "b"], 2, Spent(900, 0.6), [False, True, False])
    assert report.best_edges == Share(1, 3) and report.other_edges == Share(1, 2)
    assert report.correct == Share(4, 5) and report.compiled == Share(5, 5)
    assert report.existed == Share(1, 2) and report.methods == 3 and report.duplicates == 2
    assert report.hot == Share(2, 3) and report.record()["edits_in_hot_region"]["won"] == 2
    assert report.record()["tokens_per_correct_kernel"] == 225
    assert report.record()["dollars_per_correct_kernel"] == pytest.approx(0.15)
