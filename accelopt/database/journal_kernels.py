"""The kernels of a run, from its journal: what each was made of, by what change, and how it fared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from accelopt.errors import ConfigError
from accelopt.evaluation import Case, Diagnosis, Evaluation, LanguageName, Row
from accelopt.experience import Development, Finding
from accelopt.nodes import Node
from accelopt.script_file_columns import Experience
from accelopt.store import Entry, content_key, read_entries

START, RESULT, EXPERIENCE = "start", "result", "experience"


class Start(Row):
    """The kernel that a search began with, and what it must compute: an entry of the journal."""

    case: Case
    language: LanguageName
    target: str
    toolchain: str
    reference: str
    source: str
    evaluation: Evaluation

    @property
    def problem(self) -> str:
        """A name for what is computed: equal for equal references and sizes, wherever files lie."""
        values = self.case.values.items()
        sizes = sorted((name, value) for name, value in values if isinstance(value, int | float))
        return content_key(self.case.problem, repr(sizes), self.reference)


class Replay(NamedTuple):
    """One problem of a run: its nodes by name, with what limits those that were diagnosed, and the
    canonical names of what was done to them, where a search knew it."""

    start: Start
    nodes: dict[str, Node]
    diagnoses: dict[str, Diagnosis]
    experiences: list[Experience]
    findings: list[Finding]
    methods: dict[str, str]


def replays(journal: Path) -> list[Replay]:
    """What a run's journal tells, whether the run ended or not. Raises ConfigError for a journal that
    cannot be read, or was written before it told what its kernels started from."""
    found: dict[str, Replay] = {}
    entries = list(read_entries(journal))
    for entry in entries:
        if entry.kind == START:
            start = Start.model_validate(entry.value)
            root = Node(start.case, start.source, start.evaluation)
            found[start.case.case_name] = Replay(start, {root.name: root}, {}, [], [], {})
    if not found and any(entry.kind == RESULT for entry in entries):
        raise ConfigError(
            f"{journal} is of an earlier version, which did not say what its kernels started from; "
            "continue that run with --resume, and it will"
        )
    for entry in entries:
        if entry.kind == RESULT:
            _add(entry, found)
        elif entry.kind == EXPERIENCE and (replay := found.get(str(entry.value["case"]))):
            replay.experiences.append(Experience.model_validate(entry.value["experience"]))
    return list(found.values())


def _add(entry: Entry, found: dict[str, Replay]) -> None:
    """The kernels of one result; of one whose parent is not known, none."""
    value = entry.value
    replay = found.get(str(value.get("case")))
    parent = replay.nodes.get(str(value.get("node"))) if replay else None
    if replay is None or parent is None:
        return
    try:
        if value.get("diagnosis"):
            replay.diagnoses[parent.name] = Diagnosis.model_validate(value["diagnosis"])
        development = Development.model_validate(value.get("development") or {})
        if development.finding is not None:
            replay.findings.append(development.finding)
        for record in value["nodes"]:  # type: ignore[attr-defined]
            for node in _with_attempts(parent.child(record)):
                replay.nodes.setdefault(node.name, node)
                if value.get("method"):
                    replay.methods.setdefault(node.name, str(value["method"]))
    except (KeyError, TypeError, ValidationError):
        return  # of another version


def _with_attempts(node: Node) -> Iterator[Node]:
    yield from node.failed
    yield node
