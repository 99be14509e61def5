"""What a run's kernels taught, as rows for the next run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from accelopt.agents.developer_by_rule import reflexion_by_rule
from accelopt.errors import ConfigError
from accelopt.evaluation import Case, faults
from accelopt.findings import Attempt, Finding
from accelopt.kernels.moves import METHODS
from accelopt.nodes import Node, Plan, Result, Rewrite
from accelopt.store import read_text, write_json

FILE = "findings.json"
LONGEST_ERROR = 2000  # characters


def findings_of(results: Iterable[Result]) -> Iterator[Finding]:
    """One of each kernel that was made: its worker's own, or, where no worker reflected on it, what
    its verdict says."""
    for result in results:
        if result.development is not None:
            if result.development.finding is not None:
                yield result.development.finding
            continue
        yield from (_by_rule(result, node) for node in result.nodes if node.change is not None)


def write_findings(folder: Path, case: Case, results: Sequence[Result]) -> None:
    """`findings.json` in the problem's folder, the oldest first."""
    rows = [finding.model_dump(mode="json") for finding in findings_of(results)]
    write_json(folder / case.case_name / FILE, rows)


def read_findings(place: Path) -> list[Finding]:
    """What a run left: `place` is its folder, or one of its files. Raises ConfigError where there is
    none, or it cannot be read."""
    paths = sorted(place.rglob(FILE)) if place.is_dir() else [place]
    if not paths:
        raise ConfigError(f"there is no {FILE} in {place}: a run writes one for each problem")
    return [finding for path in paths for finding in _read(path)]


def _read(path: Path) -> list[Finding]:
    try:
        return [Finding.model_validate(row) for row in json.loads(read_text(path))]
    except ValidationError as error:
        raise ConfigError(f"{path} does not hold findings: {faults(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} does not hold findings: {error}") from None


def _by_rule(result: Result, node: Node) -> Finding:
    change, parent, job = node.change, result.job.node, result.job
    assert change is not None
    method = job.action.method if job.action and not isinstance(change, Plan) else ""
    method = method or (change.move if isinstance(change, Rewrite) else "")
    resource = METHODS[method].touches[0] if method in METHODS and METHODS[method].touches else ""
    before, after = parent.latency, node.latency
    saved = 100 * (before - after) / before if before and after else None
    attempt = Attempt(
        round_num=job.round,
        worker_id=job.number,
        bottleneck_category=resource,
        time_before_ms=before,
        time_after_ms=after,
        improvement_pct=saved,
        is_improvement=bool(saved and saved > 0),
        passed_verification=after is not None,
        error_message=node.evaluation.message[:LONGEST_ERROR],
    )
    return Finding(
        problem=node.case.problem,
        target=parent.profile.target if parent.profile else "",
        resource=resource,
        method=method,
        kernel=parent.key,
        change=change.sentence,
        attempt=attempt,
        reflexion=reflexion_by_rule(attempt, method, change),
        origin=f"{node.case.case_name}, round {job.round}",
    )
