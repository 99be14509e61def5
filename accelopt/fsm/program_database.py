"""`program_database.json`: every correct kernel of every problem, for people and other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from accelopt.evaluation import Case
from accelopt.nodes import Node
from accelopt.store import content_key, write_json


def program_id(node: Node) -> str:
    """The same for the same kernel of the same problem, in every run; different for any other."""
    return f"{node.case.case_name}_{content_key(node.case.case_name, node.key)[:12]}"


def program_of(node: Node) -> dict[str, object]:
    """A kernel as the results of a manager list it."""
    return {
        "program_id": program_id(node),
        "kernel_code": node.source,
        "time_ms": node.latency,
        "generation": sum(1 for _ in node.lineage()) - 1,
    }


def write_database(path: Path, case: Case, programs: Sequence[Node]) -> None:
    """Put the kernels of one problem, fastest first, in the place of those that the file has of it;
    other problems' stay, and so does the time at which a kernel first came."""
    kept = _read(path)
    since = {row.get("program_id"): row.get("created_at") for row in kept}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [
        {
            **program_of(node),
            "problem_id": case.case_name,
            "parent_id": program_id(node.parent) if node.parent else None,
            "created_at": since.get(program_id(node)) or now,
        }
        for node in programs
    ]
    others = [row for row in kept if row.get("problem_id") != case.case_name]
    write_json(path, {"programs": [*others, *rows]})


def _read(path: Path) -> list[dict[str, object]]:
    """The rows of the file; none of one that cannot be read: it is written anew."""
    try:
        rows = json.loads(path.read_text())["programs"]
        return [row for row in rows if isinstance(row, dict)]
    except (OSError, ValueError, KeyError, TypeError):
        return []
