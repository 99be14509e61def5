"""The records that pass between modules: a kernel in the search, the step that made it, jobs and results.

Files are written from these and never read back; a failure is a node or a result like any other.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from accelopt.evaluation import Case, Diagnosis, Evaluation, MethodName, Profile, Row, Status
from accelopt.experience import Development
from accelopt.kernel_source import fenced_blocks, fingerprint
from accelopt.knob_space import Configuration, Parameter, Space

THEN = " Then: "
METHODS_ALONE = "methods"
"""A focus: of a model's part, one action for each method that no rule offers; no planner is asked."""
CANDIDATES = "candidates"
"""A focus: of a model's part, kernels that it wrote, each by a method with a name of its own."""


class Rewrite(Row):
    """One rewrite by rule. With the kernel's text, `move` and `parameters` reproduce it exactly:
    `parameters` are plain values that name its place. The sentence is for people."""

    kind: Literal["rewrite"] = "rewrite"
    move: MethodName
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    sentence: str

    @property
    def key(self) -> str:
        """The change by its value: equal for the same change to the same kernel."""
        listed = ", ".join(f"{name}={self.parameters[name]}" for name in sorted(self.parameters))
        return f"{self.move}({listed})"


class Reschedule(Row):
    """A whole kernel written anew from what it computes, by a schedule: the language's own JSON."""

    kind: Literal["schedule"] = "schedule"
    schedule: dict[str, Any]
    sentence: str

    @property
    def key(self) -> str:
        """The change by its value."""
        return f"schedule {json.dumps(self.schedule, sort_keys=True)}"


class KnobSetting(Row):
    """Values of a kernel's knobs: with its text they make the kernel again."""

    kind: Literal["setting"] = "setting"
    values: Configuration
    sentence: str

    @property
    def key(self) -> str:
        """The change by its value."""
        return "set " + ", ".join(f"{name}={self.values[name]}" for name in sorted(self.values))


class EarlierKernel(Row):
    """A kernel that an earlier run found, by its key in the database."""

    kind: Literal["known"] = "known"
    key: str
    sentence: str


class Plan(Row):
    """What somebody wants done, in words: only an executor that reads can carry it out.

    `sentence` says it in short, `text` at length where there is more to say. `method` and `places`
    name the change as its author did: what kind of change, and at which lines. `joins` names other
    kernels of the run from which something is taken over. An `optional` one may have nothing to be carried out on.
    """

    kind: Literal["plan"] = "plan"
    sentence: str
    text: str = ""
    method: str = ""
    places: tuple[int, ...] = ()
    joins: tuple[str, ...] = ()
    optional: bool = False

    @property
    def key(self) -> str:
        """The change by what its author called it; by its words where it has no name."""
        if not self.method:
            return " ".join(self.sentence.lower().split())
        lines = ", ".join(map(str, self.places))
        joined = "".join(f" with {name}" for name in self.joins)
        return f"{self.method}{f' at lines {lines}' if lines else ''}{joined}"

    @property
    def full_text(self) -> str:
        """All that its author says."""
        return self.text or self.sentence

    @property
    def kernel(self) -> str | None:
        """The kernel in the text, of a plan whose author wrote one; None of any other."""
        blocks = fenced_blocks(self.text)
        return blocks[-1].text if blocks else None

    @classmethod
    def read(cls, text: str) -> Plan:
        """The plan in an answer. Lines `Title:`, `Change:` (a method, then its lines) and `With:`
        (other kernels) at the beginning of a line name it; without them it is its words alone."""
        found: dict[str, str] = {}
        for match in _HEAD.finditer(text):  # the header comes first; prose may begin lines so, too
            found.setdefault(match[1].lower(), _FRAME.sub("", match[2]))
        title = found.get("title", "")
        if not title:
            return cls(sentence=text)
        method, _, rest = found.get("change", "").partition(" ")
        return cls(
            sentence=title,
            text=text,
            method=_FRAME.sub("", method).strip(",:;").lower(),
            places=tuple(sorted({int(number) for number in re.findall(r"\b\d{1,4}\b", rest)})),
            joins=tuple(dict.fromkeys(re.findall(r"\bK\d+\b", found.get("with", "")))),
        )


_FRAME = re.compile(r"(?:</\w+>|[\s*`\"\u201c\u201d|])+$")
_HEAD = re.compile(
    r"^[\s*#>|<-]*(?:\d+[.)]\s*)?(Title|Change|With)\b(?:\W*[:\uff1a|>=\u2013-]|[*_]*\s*$)\W*(.+)$",
    re.MULTILINE | re.IGNORECASE,
)


class Chain(Row):
    """Several changes by rule, one upon the other, of which only the last result is judged."""

    kind: Literal["chain"] = "chain"
    steps: tuple[Rewrite | Reschedule, ...] = Field(min_length=2)

    @property
    def sentence(self) -> str:
        """The steps' sentences in order."""
        return THEN.join(step.sentence for step in self.steps)

    @property
    def key(self) -> str:
        """The steps' keys in order."""
        return " > ".join(step.key for step in self.steps)


Change = Annotated[
    Rewrite | Reschedule | KnobSetting | Plan | EarlierKernel | Chain, Field(discriminator="kind")
]
_CHANGE: TypeAdapter[Change | None] = TypeAdapter(Change | None)


def method_of(change: Change) -> str:
    """What a change does, by name: that of its move; of several, joined; else what kind it is."""
    if isinstance(change, Chain):
        return "+".join(map(method_of, change.steps))
    return change.move if isinstance(change, Rewrite) else change.kind


class Action(Row):
    """What could be done to a kernel, as its language or a model offers it.

    `method` is the canonical name of what is done, `touches` the resources that it relieves.
    `promise` is the share of the time that is expected to go away (larger: try earlier),
    `predicted` milliseconds where that is known. `source` is the kernel after the change where it
    has been made already, `key` that kernel's key; a plan in words has neither.
    """

    change: Change
    method: MethodName
    touches: tuple[str, ...] = ()
    promise: float = 0.0
    predicted: float | None = None
    key: str = ""
    source: str | None = Field(default=None, exclude=True, repr=False)

    @property
    def sentence(self) -> str:
        """What is done, for people."""
        return self.change.sentence

    def with_source(self, source: str) -> Action:
        """The same with the source that the journal leaves out."""
        return self.model_copy(update={"source": source})


def made(
    change: Rewrite | Reschedule,
    source: str,
    *,
    promise: float,
    method: str = "",
    touches: tuple[str, ...] = (),
    predicted: float | None = None,
) -> Action:
    """An action whose kernel is there already; its method is by default the move's own name."""
    return Action(
        change=change,
        method=method or method_of(change),
        touches=touches,
        promise=promise,
        predicted=predicted,
        key=fingerprint(source),
        source=source,
    )


@dataclass(frozen=True, eq=False)
class Node:
    """A kernel in the search, from the baseline to the report.

    `parent` is the node it came from, `change` the step; the baseline has neither. `label` is its
    place among the results of one job (`plan_0_1`). `source` is empty, and its evaluation MISSING,
    where nobody wrote one. `failed` are the attempts that were repaired on the way.
    """

    case: Case
    source: str
    evaluation: Evaluation
    parent: Node | None = None
    change: Change | None = None
    label: str = ""
    failed: tuple[Node, ...] = ()

    @cached_property
    def key(self) -> str:
        """Equal for kernels that are the same but for layout and comments."""
        return fingerprint(self.source)

    @cached_property
    def name(self) -> str:
        """The name in files: the case's own for a baseline, else the case name, `_ID`, and 32 hex
        digits that follow from where the kernel came from, so a repeated run has the same."""
        if self.parent is None:
            return self.case.service_name
        origin = "\n".join([self.parent.name, self.label, self.source])
        return f"{self.case.case_name}_ID{uuid.uuid5(uuid.NAMESPACE_OID, origin).hex}"

    @property
    def profile(self) -> Profile | None:
        """What it did when it was timed; None when it is not correct."""
        return self.evaluation.profile

    @property
    def latency(self) -> float | None:
        """Milliseconds; None when it is not correct."""
        return self.profile.latency if self.profile else None

    @property
    def speedup(self) -> float | None:
        """Its parent's latency over its own."""
        before = self.parent.latency if self.parent else None
        return before / self.latency if before is not None and self.latency else None

    @property
    def missing(self) -> bool:
        """Whether nobody wrote it."""
        return self.evaluation.status is Status.MISSING

    def record(self) -> dict[str, Any]:
        """The node as plain JSON, without the parent."""
        return {
            "label": self.label,
            "change": self.change.model_dump(mode="json") if self.change else None,
            "source": self.source,
            "evaluation": self.evaluation.model_dump(mode="json"),
            "failed": [node.record() for node in self.failed],
        }

    def child(self, record: Mapping[str, Any]) -> Node:
        """The node that `record` was made of, with this one as its parent."""
        return Node(
            self.case,
            record["source"],
            Evaluation.model_validate(record["evaluation"]),
            self,
            _CHANGE.validate_python(record["change"]),
            record["label"],
            tuple(self.child(attempt) for attempt in record["failed"]),
        )

    def lineage(self) -> Iterator[Node]:
        """This node, its parent, and so on to the baseline."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class Want(StrEnum):
    """What a strategy may want of a kernel."""

    SPACE = "space"  # its knobs, and what limits it; nothing is evaluated
    ACTIONS = "actions"  # what could be done to it; nothing is evaluated
    BUILD = "build"  # one action carried out, judged, and repaired where somebody can
    DEVELOP = "develop"  # a workflow of its own: plans, and samples of each


class Trials(NamedTuple):
    """What an expert believes, and should know of configurations, in sentences: what was measured, the
    fastest and the last, all that was refused or failed and why, and what else is noticed. `tried` are
    the names of all of them (`knob_space.name_of`)."""

    belief: str = ""
    latest: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    symptoms: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


class Job(NamedTuple):
    """One thing that a strategy wants done, numbered from 0 in the order of asking.

    `focus` names a resource or an expert that actions should be looked for with. `goal` is the
    latency in milliseconds that a kernel must be predicted to beat to be worth an evaluation.
    `limit` is how many evaluations it may spend, set by the driver; None is no limit. `workflow` is
    who develops a kernel: an entry of `stages.jobs.WORKFLOWS`. With a belief in its
    `trials`, a model may set the knobs of a BUILD another way than the rule did.
    """

    number: int
    round: int
    want: Want
    node: Node
    action: Action | None = None
    focus: str = ""
    goal: float | None = None
    limit: int | None = None
    workflow: str = "plans"
    trials: Trials = Trials()


class Result(NamedTuple):
    """What came of a job: actions, or kernels by rank, failed ones included.

    `judged` are the keys of all evaluations in the order of rank, repairs included. `remarks` say
    why something is not there. `asked` counts the calls for plans, `unanswered` says why some of
    them got no answer, or none that can be used. `again` is true where nothing came of a job and another try may do better.
    """

    job: Job
    actions: tuple[Action, ...] = ()
    nodes: tuple[Node, ...] = ()
    judged: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    asked: int = 0
    unanswered: tuple[str, ...] = ()
    diagnosis: Diagnosis | None = None
    space: Space | None = None
    development: Development | None = None
    again: bool = False

    def record(self) -> dict[str, Any]:
        """The result as plain JSON, without the job and without sources of actions."""
        return {
            **self._asdict(),
            "job": self.job.number,
            "case": self.job.node.case.case_name,
            "node": self.job.node.name,
            "method": self.job.action.method if self.job.action else "",
            "actions": [action.model_dump(mode="json") for action in self.actions],
            "nodes": [node.record() for node in self.nodes],
            "diagnosis": self.diagnosis.model_dump(mode="json") if self.diagnosis else None,
            "space": self.space.model_dump(mode="json") if self.space else None,
            "development": self.development.model_dump(mode="json") if self.development else None,
        }

    @classmethod
    def of(cls, job: Job, record: Mapping[str, Any]) -> Result:
        """The result of `job` that `record` was made of."""
        return cls(
            job,
            tuple(Action.model_validate(action) for action in record["actions"]),
            tuple(job.node.child(node) for node in record["nodes"]),
            tuple(record["judged"]),
            tuple(record["remarks"]),
            record["asked"],
            tuple(record["unanswered"]),
            Diagnosis.model_validate(record["diagnosis"]) if record["diagnosis"] else None,
            Space.model_validate(record["space"]) if record["space"] else None,
            Development.model_validate(told) if (told := record.get("development")) else None,
            record.get("again", False),
        )
