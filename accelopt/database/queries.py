"""What the database is asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import log
from typing import Any, NamedTuple

import sqlalchemy as sa

from accelopt.database.connection import Database
from accelopt.database.schema import EXPERIENCES, FINDINGS, KERNELS, PROBLEMS, STEPS, VERDICTS
from accelopt.errors import ConfigError
from accelopt.evaluation import Status
from accelopt.experience import START, Finding, Transition
from accelopt.script_file_columns import Experience

DEEPEST = 100  # steps of a lineage


class KnownKernel(NamedTuple):
    """A correct kernel of the database, with its time on one target."""

    key: str
    case_name: str
    source: str
    latency_ms: float
    target: str
    simulated: bool
    toolchain: str


def best(database: Database, problem: str, target: str = "", limit: int = 10) -> list[KnownKernel]:
    """The fastest correct kernels of a problem, by its name or that of its case, fastest first; of
    each case and target, and of `target` alone where one is given."""
    named = sa.or_(PROBLEMS.c.name == problem, PROBLEMS.c.case_name == problem)
    return _known(database, named, target, limit)


def best_for(database: Database, problem: str, target: str, limit: int = 1) -> list[KnownKernel]:
    """The same for exactly one problem: equal reference, equal sizes (`Start.problem`)."""
    return _known(database, PROBLEMS.c.key == problem, target, limit)


def _known(
    database: Database, which: sa.ColumnElement[bool], target: str, limit: int
) -> list[KnownKernel]:
    wanted = [which, VERDICTS.c.status == Status.CORRECT.value]
    if target:
        wanted.append(VERDICTS.c.target == target)
    order = sa.func.row_number().over(
        partition_by=(PROBLEMS.c.key, VERDICTS.c.target),
        order_by=(VERDICTS.c.latency_ms, VERDICTS.c.at.desc()),
    )
    found = (
        sa.select(
            KERNELS.c.key,
            PROBLEMS.c.case_name,
            KERNELS.c.source,
            VERDICTS.c.latency_ms,
            VERDICTS.c.target,
            VERDICTS.c.simulated,
            VERDICTS.c.toolchain,
            order.label("place"),
        )
        .join(KERNELS, KERNELS.c.key == VERDICTS.c.kernel)
        .join(PROBLEMS, PROBLEMS.c.key == KERNELS.c.problem)
        .where(*wanted)
        .subquery()
    )
    columns = [column for column in found.c if column.name != "place"]
    query = (
        sa.select(*columns)
        .where(found.c.place <= limit)
        .order_by(found.c.case_name, found.c.target, found.c.place)
    )
    return [KnownKernel(**row) for row in database.rows(query)]


class Ancestor(NamedTuple):
    """One kernel of a lineage: the step that led to it, and its time where it is correct."""

    key: str
    method: str
    sentence: str
    status: str
    latency_ms: float | None
    target: str


def lineage(database: Database, kernel: str) -> list[Ancestor]:
    """How a kernel came about, from the start; `kernel` is the beginning of its key.

    Where several ways led to it, the one of the fastest parents. Raises ConfigError where the key is
    that of no kernel, or of several.
    """
    key = _whole_key(database, kernel)
    found: list[Ancestor] = []
    seen: set[str] = set()
    while key and key not in seen and len(found) < DEEPEST:
        seen.add(key)
        step = _fastest_step(database, key, seen)
        found.append(_ancestor(database, key, step))
        key = step["parent"] if step else ""
    return found[::-1]


def _whole_key(database: Database, beginning: str) -> str:
    escaped = KERNELS.c.key.startswith(beginning, autoescape=True)
    keys = [row["key"] for row in database.rows(sa.select(KERNELS.c.key).where(escaped).limit(2))]
    if not keys:
        raise ConfigError(f"no kernel in {database.name} has a key that begins with {beginning!r}")
    if len(keys) > 1:
        raise ConfigError(f"several kernels have a key that begins with {beginning!r}; give more")
    return str(keys[0])


def _fastest_step(database: Database, child: str, seen: set[str]) -> Mapping[str, Any] | None:
    query = (
        sa.select(STEPS.c.parent, STEPS.c.method, STEPS.c.change)
        .join(VERDICTS, VERDICTS.c.kernel == STEPS.c.parent)
        .where(STEPS.c.child == child, STEPS.c.parent.not_in(seen))
        .order_by(VERDICTS.c.latency_ms)
        .limit(1)
    )
    return next(iter(database.rows(query)), None)


def _ancestor(database: Database, key: str, step: Mapping[str, Any] | None) -> Ancestor:
    query = (
        sa.select(VERDICTS.c.status, VERDICTS.c.latency_ms, VERDICTS.c.target)
        .where(VERDICTS.c.kernel == key)
        .order_by(VERDICTS.c.at.desc())
        .limit(1)
    )
    [verdict] = database.rows(query)
    if step is None:
        return Ancestor(key, "", "the start", **verdict)
    return Ancestor(key, step["method"], _sentence(step["change"]), **verdict)


def _sentence(change: Mapping[str, Any]) -> str:
    if change.get("kind") == "chain":
        return " Then: ".join(str(step.get("sentence", "")) for step in change["steps"])
    return str(change.get("sentence", ""))


def experiences_for(database: Database, problem: str, name: str, limit: int) -> list[Experience]:
    """What was learned on a problem, then on others of its name, then on any; largest gains first."""
    near = sa.case((PROBLEMS.c.key == problem, 0), (PROBLEMS.c.name == name, 1), else_=2)
    query = (
        sa.select(EXPERIENCES.c.experience)
        .join(PROBLEMS, PROBLEMS.c.key == EXPERIENCES.c.problem)
        .order_by(near, EXPERIENCES.c.speedup.desc(), EXPERIENCES.c.key)
        .limit(limit)
    )
    return [Experience.model_validate(row["experience"]) for row in database.rows(query)]


def findings_for(database: Database, problem: str, name: str, limit: int) -> list[Finding]:
    """Attempts and reflexions on a problem, then on others of its name, then on any."""
    near = sa.case((PROBLEMS.c.key == problem, 0), (PROBLEMS.c.name == name, 1), else_=2)
    query = (
        sa.select(FINDINGS.c.finding)
        .join(PROBLEMS, PROBLEMS.c.key == FINDINGS.c.problem)
        .order_by(near, FINDINGS.c.key)
        .limit(limit)
    )
    return [Finding.model_validate(row["finding"]) for row in database.rows(query)]


class Relief(NamedTuple):
    """What one method brought on kernels that one resource limited: how often it was tried, how often
    the result was correct, and the mean of ln(speedup) then."""

    bottleneck: str
    method: str
    tried: int
    correct: int
    gain: float


def reliefs(database: Database, target: str = "") -> list[Relief]:
    """By bottleneck and method, over all problems."""
    query = sa.select(STEPS.c.bottleneck, STEPS.c.method, STEPS.c.speedup)
    if target:
        query = query.where(STEPS.c.target == target)
    gains: defaultdict[tuple[str, str], list[float | None]] = defaultdict(list)
    for row in database.rows(query):
        gains[row["bottleneck"], row["method"]].append(row["speedup"])
    found = []
    for (bottleneck, method), speedups in gains.items():
        logs = [log(speedup) for speedup in speedups if speedup]
        gain = sum(logs) / len(logs) if logs else 0.0
        found.append(Relief(bottleneck, method, len(speedups), len(logs), gain))
    return sorted(found, key=lambda one: (one.bottleneck, -one.gain, one.method))


def transitions(database: Database, language: str, limit: int) -> list[Transition]:
    """What methods brought in one kernel language, each after the one that made its parent in the same
    run; over all problems, `limit` at most. Times are in units of the new kernel's."""
    before = STEPS.alias("before")
    made = sa.select(before.c.child, before.c.run, sa.func.min(before.c.method).label("method"))
    first = made.group_by(before.c.child, before.c.run).subquery()
    query = (
        sa.select(
            STEPS.c.method,
            STEPS.c.target,
            STEPS.c.status,
            STEPS.c.speedup,
            first.c.method.label("before"),
        )
        .join(KERNELS, KERNELS.c.key == STEPS.c.child)
        .outerjoin(first, sa.and_(first.c.child == STEPS.c.parent, first.c.run == STEPS.c.run))
        .where(KERNELS.c.language == language)
        .order_by(STEPS.c.key)
        .limit(limit)
    )
    return [
        Transition(
            t=number,
            from_method=row["before"] or START,
            to_method=row["method"],
            ok=row["status"] == Status.CORRECT.value,
            parent_ms=row["speedup"],
            mean_ms=1.0 if row["speedup"] else None,
            gain=log(row["speedup"]) if row["speedup"] else None,
            language=language,
            target=row["target"],
            status=row["status"],
        )
        for number, row in enumerate(database.rows(query))
        if row["method"]
    ]


def everything(database: Database) -> Iterator[Mapping[str, Any]]:
    """One flat row a verdict: problem, kernel and times, for tables elsewhere."""
    query = (
        sa.select(
            PROBLEMS.c.name.label("problem"),
            PROBLEMS.c.case_name,
            KERNELS.c.key.label("kernel"),
            KERNELS.c.language,
            VERDICTS.c.target,
            VERDICTS.c.toolchain,
            VERDICTS.c.simulated,
            VERDICTS.c.status,
            VERDICTS.c.latency_ms,
            VERDICTS.c.at,
            KERNELS.c.source,
        )
        .join(KERNELS, KERNELS.c.key == VERDICTS.c.kernel)
        .join(PROBLEMS, PROBLEMS.c.key == KERNELS.c.problem)
        .order_by(PROBLEMS.c.case_name, VERDICTS.c.target, VERDICTS.c.latency_ms)
    )
    yield from database.rows(query)
