"""The CSV tables and JSON files that stages pass on: read with their path in every error."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from accelopt.backends.flashinfer import flashinfer_candidate
from accelopt.errors import ConfigError
from accelopt.records import Candidate, Experience, PlannerResult, ServiceResult
from accelopt.store import write_atomically, write_json

TableRow = Mapping[str, str]


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by column. Raises ConfigError when it cannot be read."""
    try:
        with path.open(newline="") as file:
            return [dict(row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read the table {path}: {error}") from error


def write_table(path: Path, rows: Sequence[TableRow], columns: Sequence[str]) -> None:
    """`rows` as CSV with `columns` first and any others behind; folders are made."""
    others = [name for row in rows for name in row if name not in columns]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*columns, *dict.fromkeys(others)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def candidate(row: TableRow, path: Path) -> Candidate:
    """The candidate in one row of the table at `path`. Raises ConfigError."""
    if "definition_path" in row:
        return flashinfer_candidate(row)
    try:
        return Candidate.from_row(row)
    except KeyError as error:
        raise ConfigError(f"{path} has no column {error}") from None
    except (ValueError, ValidationError) as error:
        name = row.get("service_name") or "a row"
        raise ConfigError(f"{path}: {name} cannot be read: {error}") from error


def read_candidates(path: Path) -> list[Candidate]:
    """The candidates of a candidates.csv or profile_results.csv. Raises ConfigError."""
    return [candidate(row, path) for row in read_table(path)]


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ConfigError when it cannot be read."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def read_plans(path: Path) -> list[PlannerResult]:
    """The planner's output. Raises ConfigError."""
    return [PlannerResult.model_validate(item) for item in _records(path, read_json(path))]


def read_executor_results(path: Path) -> list[ServiceResult]:
    """The results in an executor's output, ours or a published one. Raises ConfigError."""
    content = read_json(path)
    records = content.get("executor_results") if isinstance(content, dict) else None
    try:
        return [ServiceResult.from_record(record) for record in _records(path, records)]
    except (KeyError, ValidationError) as error:
        raise ConfigError(f"{path} is not an executor's output: {error}") from error


def read_experiences(path: Path) -> list[Experience]:
    """A rewrite list. Raises ConfigError."""
    try:
        return [Experience.model_validate(item) for item in _records(path, read_json(path))]
    except ValidationError as error:
        raise ConfigError(f"{path} is not a list of rewrites: {error}") from error


def write_records(path: Path, rows: Iterable[Experience | PlannerResult]) -> None:
    """A JSON list of rows, as the published scripts write it."""
    write_json(path, [row.model_dump(mode="json", exclude_none=True) for row in rows], indent=4)


def _records(path: Path, content: object) -> list[dict[str, Any]]:
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise ConfigError(f"{path} must hold a JSON list of objects")
    return content
