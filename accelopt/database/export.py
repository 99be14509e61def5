"""The database's kernels for other tools: one table, or a folder of FlashInfer traces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from accelopt.database.connection import Database
from accelopt.database.queries import everything
from accelopt.database.schema import KERNELS, PROBLEMS, VERDICTS
from accelopt.errors import ConfigError, require
from accelopt.evaluation import Evaluation
from accelopt.kernels.gpu.bench.files.tracefiles import Trace, trace_stem, write_json
from accelopt.kernels.gpu.bench.judging.verdict import LAUNCH_FREE_KEY, Verdict, to_trace
from accelopt.kernels.gpu.cases import ProblemFiles
from accelopt.store import write_atomically


def export_to(path: Path, database: Database) -> str:
    """Every verdict as a row of a `.parquet` or `.csv` file, or, for a folder, the Triton solutions
    with their traces; what was written, in words.

    Raises ConfigError for another ending, MissingExtra where pandas, or the pyarrow that it needs, is absent.
    """
    if not path.suffix:
        return _traces(path, database)
    require("database", pandas="pandas")
    import pandas as pd  # on use: the other commands need not wait for it

    table = pd.DataFrame(list(everything(database)))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        require("database", pyarrow="pyarrow")
        table.to_parquet(path, index=False)
    elif path.suffix == ".csv":
        write_atomically(path, table.to_csv(index=False, lineterminator="\n"))
    else:
        raise ConfigError(
            f"{path} is no table: name a file that ends in .parquet or .csv, or a folder for traces"
        )
    return f"{len(table)} verdicts"


def _traces(folder: Path, database: Database) -> str:
    """A FlashInfer-Trace folder. Problems whose definition lies on this machine no more are left out,
    and said to be."""
    query = (
        sa.select(PROBLEMS.c.case_name, PROBLEMS.c.sizes, KERNELS.c.source, VERDICTS.c.evaluation)
        .join(KERNELS, KERNELS.c.key == VERDICTS.c.kernel)
        .join(PROBLEMS, PROBLEMS.c.key == KERNELS.c.problem)
        .where(KERNELS.c.language == "triton")
        .order_by(PROBLEMS.c.case_name, KERNELS.c.key)
    )
    written, gone = 0, set()
    for row in database.rows(query):
        try:
            _write(row, folder)
            written += 1
        except (ConfigError, OSError):
            gone.add(row["case_name"])
    missing = (
        f"; the definitions of {', '.join(sorted(gone))} are not here any more" if gone else ""
    )
    return f"{written} traces{missing}"


def _write(row: Mapping[str, Any], folder: Path) -> None:
    problem = ProblemFiles(row["sizes"])
    definition, solution = problem.definition, problem.solution(row["source"])
    trace = _trace(problem.workload, solution.name, Evaluation.model_validate(row["evaluation"]))
    op, name = definition.op_type, definition.name
    write_json(definition, folder / "definitions" / op / f"{name}.json")
    write_json(solution, folder / "solutions" / op / name / f"{solution.name}.json")
    write_json(trace, folder / "traces" / op / f"{trace_stem(trace, solution.name)}.json")


def _trace(workload: Trace, solution: str, evaluation: Evaluation) -> Trace:
    profile = evaluation.profile
    verdict = Verdict(
        evaluation=evaluation,
        hardware=profile.target if profile else "",
        package_latency_ms=profile.metrics.get("package_latency_ms") if profile else None,
    )
    trace = to_trace(workload, solution, verdict)
    judged = trace.evaluation
    if profile is None or judged is None or judged.correctness is None:
        return trace
    extra = {**(judged.correctness.extra or {}), LAUNCH_FREE_KEY: profile.latency}
    correctness = judged.correctness.model_copy(update={"extra": extra})
    return trace.model_copy(
        update={"evaluation": judged.model_copy(update={"correctness": correctness})}
    )
