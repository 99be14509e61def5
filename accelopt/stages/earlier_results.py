"""Earlier results that stand near a table, for the planner's list of plans already tried."""

from __future__ import annotations

from pathlib import Path

from accelopt.nodes import Result
from accelopt.stages.record_files import read_results

LAST = "last_iteration_executor_results.json"
RESULTS = "executor_results.json"


def history_beside(profile_results: Path) -> list[Result]:
    """The executor results of all earlier iterations of the shell loop that wrote this table.

    The loop's layout is `{base}/{exp_date}/candidates/profile_results.csv` with results in
    `{base}/{exp_date}/executor_results.json`. Elsewhere there is no history.
    """
    folder = profile_results.resolve().parent
    if folder.name != "candidates" or not (folder / LAST).is_file():
        return []
    earlier = sorted(folder.parent.parent.glob(f"*/{RESULTS}"))
    paths = [path for path in earlier if path.parent != folder.parent] or [folder / LAST]
    return [result for path in paths for result in read_results(path)]
