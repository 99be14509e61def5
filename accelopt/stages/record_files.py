"""The CSV tables and JSON files that stages pass on: read with their path in every error."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from accelopt.errors import ConfigError
from accelopt.evaluation import faults
from accelopt.kernels.gpu.cases import case_of_row
from accelopt.nodes import Result
from accelopt.script_file_columns import (
    CASE_COLUMNS,
    CandidateRow,
    Experience,
    PlannerResult,
    ServiceResult,
)
from accelopt.store import read_json, read_text, write_atomically, write_json

TableRow = Mapping[str, str]

# What a table of candidates must have, for either kind of kernel.
FLASHINFER_COLUMNS = tuple("definition_path solution_path workload_path".split())


def read_table(path: Path, *forms: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV file by column, one at least. Raises ConfigError when it cannot be read, has
    the columns of none of the `forms` it may have, or holds no row."""
    reader = csv.DictReader(io.StringIO(read_text(path, "the table "), newline=""), strict=True)
    rows: list[dict[str, str]] = []
    try:
        header = reader.fieldnames or []
        _require_columns(path, header, forms or [["case_name"]])
        for row in reader:
            if None in row or None in row.values():
                raise ConfigError(f"{path}, line {reader.line_num}: not {len(header)} fields")
            rows.append(dict(row))
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: {error}") from error
    if not rows:
        raise ConfigError(f"{path} holds no row below its header")
    return rows


def _require_columns(path: Path, header: Sequence[str], forms: Sequence[Sequence[str]]) -> None:
    """Raises ConfigError when `header` lacks a column of each of the `forms` a table may have."""
    lacking = {tuple(form): [name for name in form if name not in header] for form in forms}
    if header and not all(lacking.values()):
        return
    nearest = min(lacking, key=lambda form: len(lacking[form]) / len(form))
    fault = f"has no column {lacking[nearest][0]}" if header else "is empty"
    columns = ", ".join(nearest)
    raise ConfigError(f"{path} {fault}; a table with the columns {columns} is expected")


def write_table(path: Path, rows: Sequence[TableRow], columns: Sequence[str]) -> None:
    """`rows` as CSV with `columns` first and any others behind; folders are made."""
    others = [name for row in rows for name in row if name not in columns]
    text = io.StringIO()
    table = csv.DictWriter(text, [*columns, *dict.fromkeys(others)], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(path, text.getvalue())


def candidate(row: TableRow, path: Path) -> CandidateRow:
    """The candidate in one row of the table at `path`. Raises ConfigError."""
    try:
        if "definition_path" in row:
            case, profile = case_of_row(row)
            return CandidateRow(case, profile=profile)
        return CandidateRow.from_row(row)
    except KeyError as error:
        raise ConfigError(f"{path} has no column {error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        said = faults(error) if isinstance(error, ValidationError) else str(error)
        name = row.get("service_name") or row.get("name") or "a row"
        raise ConfigError(f"{path}: {name} cannot be read: {said}") from error


def read_candidate_table(path: Path) -> list[dict[str, str]]:
    """The rows of a candidates.csv or profile_results.csv. Raises ConfigError."""
    return read_table(path, CASE_COLUMNS, FLASHINFER_COLUMNS)


def read_candidates(path: Path) -> list[CandidateRow]:
    """The candidates of a candidates.csv or profile_results.csv. Raises ConfigError."""
    return [candidate(row, path) for row in read_candidate_table(path)]


def read_plans(path: Path) -> list[PlannerResult]:
    """The planner's output. Raises ConfigError."""
    with _explained(path, "a planner's output"):
        return [PlannerResult.model_validate(item) for item in _records(path, read_json(path))]


def read_executor_results(path: Path) -> list[ServiceResult]:
    """The results in an executor's output, ours or a published one. Raises ConfigError."""
    content = read_json(path)
    records = content.get("executor_results") if isinstance(content, dict) else None
    with _explained(path, "an executor's output"):
        if records is None:
            raise KeyError("executor_results")
        return [ServiceResult.from_record(record) for record in _records(path, records)]


def read_results(path: Path) -> list[Result]:
    """The same as the loop knows it; kernels of which the file says nothing are left out."""
    found = (service.result() for service in read_executor_results(path))
    return [result for result in found if result is not None]


def read_experiences(path: Path) -> list[Experience]:
    """A rewrite list. Raises ConfigError."""
    with _explained(path, "a list of rewrites"):
        return [Experience.model_validate(item) for item in _records(path, read_json(path))]


@contextlib.contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    """A record that lacks something inside is a ConfigError that says what the file should be."""
    try:
        yield
    except KeyError as error:
        raise ConfigError(f"{path} is not {kind}: it has no {error}") from None
    except ValidationError as error:
        raise ConfigError(f"{path} is not {kind}: {faults(error)}") from None


def write_records(path: Path, rows: Iterable[Experience | PlannerResult]) -> None:
    """A JSON list of rows, as the published scripts write it."""
    write_json(path, [row.model_dump(mode="json", exclude_none=True) for row in rows], indent=4)


def _records(path: Path, content: object) -> list[dict[str, Any]]:
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise ConfigError(f"{path} must hold a JSON list of objects")
    return content


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
