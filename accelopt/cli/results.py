"""The outcomes of a run as the tables of the command line show them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accelopt.report.result_table import ProblemResult, names_of
from accelopt.stages.run import Outcome, at_other_shapes

SHAPES = {"any": "any shapes that were tried", "these shapes": "these shapes"}


def result_rows(outcomes: Sequence[Outcome], out: Path) -> list[ProblemResult]:
    """The outcomes as rows of the final table."""
    names = names_of({o.start.case.case_name: o.start.case.problem for o in outcomes})
    return [
        ProblemResult(
            problem=names[outcome.start.case.case_name],
            baseline_ms=outcome.start.latency,
            best_ms=outcome.best.latency if outcome.best else None,
            before=outcome.before.percent_of_peak,
            after=outcome.after.percent_of_peak,
            changes=outcome.changes,
            place=str(out / outcome.start.case.case_name / "best.py") if outcome.best else "",
            failure=outcome.failure,
            resolved=outcome.resolved,
            holds_for=_shapes(outcome),
            exactness=outcome.exactness,
            confirmed=outcome.confirmation is None or outcome.confirmation.confirmed,
            depends_on=outcome.confirmation.depends_on if outcome.confirmation else (),
            between=outcome.confirmation.between if outcome.confirmation else None,
        )
        for outcome in outcomes
    ]


def _shapes(outcome: Outcome) -> str:
    """For which shapes the best kernel holds, and how it does at others that were asked for."""
    own = SHAPES.get(outcome.holds_for, "")
    return "; ".join(filter(None, [own, *map(at_other_shapes, outcome.elsewhere)]))
