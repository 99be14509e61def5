"""From a run's journal to rows: the same for a run under way and for one of long ago."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from accelopt.database.connection import Database, Rows
from accelopt.database.journal_kernels import Replay, replays
from accelopt.database.schema import EXPERIENCES, FINDINGS, KERNELS, PROBLEMS, STEPS, VERDICTS
from accelopt.evaluation import NO_VERDICTS
from accelopt.experience import Finding
from accelopt.kernel_source import fingerprint
from accelopt.nodes import Node, method_of
from accelopt.script_file_columns import Experience
from accelopt.store import content_key

CONFIRMED = frozenset({EXPERIENCES})  # what is replaced when it is met again


def keep_run(journal: Path, database: Database) -> int:
    """Put all that a run's journal tells into the database; how many kernels that are.

    Repeating it changes nothing. Raises ConfigError for the journal, Lost for the database.
    """
    found = replays(journal)
    for replay in found:
        database.put(rows_of(replay, str(journal.parent)), anew=CONFIRMED)
    return sum(len(replay.nodes) for replay in found)


def rows_of(replay: Replay, run: str) -> dict[sa.Table, Rows]:
    """The rows of one problem of a run, tables in an order that keeps references true."""
    judged = [
        node
        for node in replay.nodes.values()
        if node.source and node.evaluation.status not in NO_VERDICTS
    ]
    start = replay.start
    problem = {
        "key": start.problem,
        "name": start.case.problem,
        "case_name": start.case.case_name,
        "sizes": start.case.values,
        "reference": _text(start.reference),
    }
    kernels = {kernel_key(start.problem, node.source): node for node in judged}
    return {
        PROBLEMS: [problem],
        KERNELS: [_kernel(key, node, replay) for key, node in kernels.items()],
        VERDICTS: [_verdict(key, node, replay) for key, node in kernels.items()],
        STEPS: list(_steps(judged, replay, run)),
        EXPERIENCES: [_experience(one, start.problem) for one in replay.experiences],
        FINDINGS: [_finding(one, start.problem) for one in replay.findings],
    }


def kernel_key(problem: str, source: str) -> str:
    """The key of a kernel: equal for sources that differ in layout and comments alone."""
    return content_key(problem, fingerprint(source))


def _kernel(key: str, node: Node, replay: Replay) -> dict[str, Any]:
    return {
        "key": key,
        "problem": replay.start.problem,
        "language": replay.start.language,
        "fingerprint": fingerprint(node.source),
        "source": _text(node.source),
    }


def _verdict(kernel: str, node: Node, replay: Replay) -> dict[str, Any]:
    start, profile = replay.start, node.profile
    target = profile.target if profile else start.target
    return {
        "key": content_key(kernel, target, start.toolchain),
        "kernel": kernel,
        "target": target,
        "toolchain": start.toolchain,
        "simulated": profile.simulated if profile else True,
        "status": node.evaluation.status.value,
        "latency_ms": node.latency,
        "evaluation": _plain(node.evaluation, exclude={"seconds", "isolation"}),
        "at": datetime.now(UTC),
    }


def _steps(judged: list[Node], replay: Replay, run: str) -> Iterator[dict[str, Any]]:
    start = replay.start
    for node in judged:
        if node.parent is None or node.change is None:
            continue
        keys = [kernel_key(start.problem, one.source) for one in (node.parent, node)]
        diagnosis = replay.diagnoses.get(node.parent.name)
        limiting = diagnosis.bottleneck if diagnosis else None
        yield {
            "key": content_key(*keys, start.target, node.change.model_dump_json()),
            "parent": keys[0],
            "child": keys[1],
            "target": start.target,
            "method": replay.methods.get(node.name) or method_of(node.change),
            "bottleneck": limiting.resource if limiting else "",
            "change": _plain(node.change),
            "status": node.evaluation.status.value,
            "speedup": node.speedup,
            "run": run,
        }


def _experience(one: Experience, problem: str) -> dict[str, Any]:
    pair = fingerprint(one.slow_kernel), fingerprint(one.fast_kernel)
    return {
        "key": content_key(problem, *pair),
        "problem": problem,
        "title": _text(one.title),
        "speedup": one.speedup,
        "seen": one.seen,
        "experience": _plain(one),
    }


def _finding(one: Finding, problem: str) -> dict[str, Any]:
    return {
        "key": content_key(problem, one.model_dump_json()),
        "problem": problem,
        "resource": one.resource,
        "method": one.method,
        "finding": _plain(one),
    }


def _plain(row: BaseModel, exclude: set[str] | None = None) -> dict[str, Any]:
    """A record as JSON that every database takes: without NaN and infinity."""
    said = json.dumps(row.model_dump(mode="json", exclude=exclude, exclude_none=True))
    found: dict[str, Any] = json.loads(said, parse_constant=lambda _: None)
    return found


def _text(text: str) -> str:
    """What PostgreSQL takes as text: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
