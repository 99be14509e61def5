"""The outcomes of a run as the tables of the command line show them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accelopt.api import device_of
from accelopt.report.result_table import ResultsTable, names_of
from accelopt.stages.run import Outcome
from accelopt.stages.run_story import result_of


def results_table(outcomes: Sequence[Outcome], out: Path) -> ResultsTable:
    """The final table of a run in the folder `out`."""
    names = names_of({o.start.case.case_name: o.start.case.problem for o in outcomes})
    rows = [
        result_of(o).model_copy(update={"name": names[o.start.case.case_name]}) for o in outcomes
    ]
    places = [str(out / o.start.case.case_name / "best.py") if o.best else "" for o in outcomes]
    return ResultsTable(rows, device_of(outcomes), places)
