"""Columns and keys of the files that people's shell loops read: the only place that spells one.

Used where files are read and written; modules pass `nodes` and `evaluation` to each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from accelopt.evaluation import Case, Evaluation, Profile, Status, to_json
from accelopt.nodes import Change, Job, Node, Plan, Result, Want


class ResultRow(NamedTuple):
    """A row of results.csv: what a run found for a problem, as text. Latencies are in milliseconds,
    shares of the bound in percent; what is not known is empty."""

    case_name: str
    baseline_latency: str
    best_latency: str
    speedup: str
    baseline_percent_of_peak: str
    percent_of_peak: str
    confirmed: str
    target: str
    simulated: str
    samples: str
    correct: str
    changes: str
    kernel: str
    failure: str


CANDIDATE_COLUMNS = tuple("service_name task kernel problem values plan_id case_name".split())
CASE_COLUMNS = tuple(name for name in CANDIDATE_COLUMNS if name != "plan_id")
"""Of candidates.csv, those that say the case."""


class CandidateRow(NamedTuple):
    """A row of candidates.csv or profile_results.csv: a kernel that an iteration may start from.

    `case` is its problem, with this kernel's own file and name; `plan_id` says which sample it was.
    """

    case: Case
    plan_id: str = ""
    profile: Profile | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> CandidateRow:
        """A line of candidates.csv or profile_results.csv. Raises KeyError, ValueError."""
        metadata = json.loads(row["profile"]) if row.get("profile") else {}
        if not isinstance(metadata, dict):
            raise ValueError("its profile is not a JSON object")
        own = {name: row[name] for name in CASE_COLUMNS}
        case = Case(**{**own, "values": json.loads(own["values"])})
        return cls(case, row.get("plan_id") or "", Profile.from_metadata(metadata))

    def to_row(self) -> dict[str, str]:
        """The columns of candidates.csv as selection writes it."""
        own = {**dict(self.case), "values": to_json(self.case.values), "plan_id": self.plan_id}
        return {name: own[name] for name in CANDIDATE_COLUMNS}

    def node(self, source: str) -> Node:
        """The kernel that the row stands for; one without a profile was not measured."""
        return Node(self.case, source, _evaluation(self.profile))


def _evaluation(profile: Profile | None) -> Evaluation:
    if profile is None:
        return Evaluation(status=Status.BENCHMARK_ERROR, message="not measured")
    return Evaluation(status=Status.CORRECT, profile=profile)


class PublishedRow(BaseModel):
    """A row of a published JSON file: keys that we do not know are left aside."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PlannerResult(PublishedRow):
    """The plans drawn for one candidate: an item of the planner's output."""

    service_name: str
    reasonings: list[str] = Field(default_factory=list)
    plans: list[str]

    def changes(self) -> list[Change]:
        """What the plans want done."""
        return [plan_change(text) for text in self.plans]


def plan_text(change: Change) -> str:
    """A change as a plan: its sentence, and below it, for those who carry it out by rule, its value
    as one line of JSON. A plan in words is its text alone."""
    if isinstance(change, Plan):
        return change.full_text
    return f"{change.sentence}\n{change.model_dump_json()}"


def plan_change(text: str) -> Change:
    """The change that `plan_text` wrote; any other text is a plan in words."""
    value = text.rpartition("\n")[2].strip()
    if value.startswith('{"kind":'):
        with suppress(ValidationError):
            return _CHANGE.validate_json(value)
    return Plan.read(text)


_CHANGE: TypeAdapter[Change] = TypeAdapter(Change)


class FixerRound(PublishedRow):
    """One failed attempt of a sample, and what the tools said of it."""

    body: str | None = None
    status: Status
    error: str

    @classmethod
    def of(cls, node: Node) -> FixerRound:
        """The round that repaired `node`."""
        status, error = node.evaluation.status, node.evaluation.message
        return cls(body=node.source or None, status=status, error=error)


class SampleResult(PublishedRow):
    """One sample of one plan with its verdict: the value under `plan_{i}_{j}`.

    A sample that succeeded has `latency` (ms) and `speedup` over its own baseline; any other has
    `error`. The two metadata fields are JSON text. `status`, `plan`, `rounds` and `reason` (why there
    is no body) are ours.
    """

    body: str | None = None
    spec_code: str | None = None
    baseline: str | None = None
    baseline_latency: float | None = None
    problem: str | None = None
    values: str | None = None
    kernel_metadata: str | None = None
    baseline_metadata: str | None = None
    latency: float | None = None
    speedup: float | None = None
    error: str | list[str] | None = None
    status: Status | None = None
    plan: str | None = None
    reason: str | None = None
    rounds: list[FixerRound] = Field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        """Whether the sample is a correct, timed kernel."""
        return self.error is None and self.speedup is not None and self.body is not None

    @classmethod
    def of(cls, node: Node, reference: str) -> SampleResult:
        """The record of a kernel that was made of its parent."""
        plan = plan_text(node.change) if node.change else None
        evaluation = node.evaluation
        if node.missing and plan:
            reason = evaluation.message or None
            return cls(error=NO_IMPLEMENTATION, status=Status.MISSING, plan=plan, reason=reason)
        assert node.parent is not None
        before = node.parent.profile
        about = cls(
            spec_code=reference,
            baseline=node.parent.source,
            baseline_latency=before.latency if before else None,
            problem=node.case.problem,
            values=to_json(node.case.values),
            baseline_metadata=to_json(before.to_metadata() if before else {}),
            status=evaluation.status,
        )
        if node.missing:
            why = {"error": NO_IMPLEMENTATION, "reason": evaluation.message}
            return about.model_copy(update=why)
        failed = None if node.profile else evaluation.message or evaluation.status.value
        return about.model_copy(
            update={
                "body": node.source,
                "kernel_metadata": to_json(evaluation.to_metadata()),
                "latency": node.latency,
                "speedup": node.speedup,
                "error": failed,
                "plan": plan,
                "rounds": [FixerRound.of(attempt) for attempt in node.failed],
            }
        )

    def node(self, parent: Node, label: str) -> Node:
        """The kernel that the record is about, made of `parent`."""
        metadata = json.loads(self.kernel_metadata or "{}")
        profile = None
        if self.succeeded and self.latency is not None:
            profile = Profile.from_metadata({**metadata, "latency": self.latency})
        evaluation = _evaluation(profile)
        if profile is None:
            status = Status.MISSING if self.body is None else self.status
            known = status if status not in (None, Status.CORRECT) else Status.BENCHMARK_ERROR
            error = " ".join(self.error) if isinstance(self.error, list) else self.error
            evaluation = Evaluation(status=known, message=error or "no result")
        change = plan_change(self.plan) if self.plan else None
        return Node(parent.case, self.body or "", evaluation, parent, change, label)

    def to_record(self) -> dict[str, Any]:
        """The JSON object: keys without a value are left out."""
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)


NO_IMPLEMENTATION = "No implementation found"


class ServiceResult(NamedTuple):
    """All samples of all plans of one candidate, by `plan_{i}_{j}`."""

    service_name: str
    case_name: str
    samples: dict[str, SampleResult]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ServiceResult:
        """An item of `executor_results`."""
        names = {"service_name", "case_name"}
        samples = {
            key: SampleResult.model_validate(value)
            for key, value in record.items()
            if key not in names and isinstance(value, dict)
        }
        return cls(record["service_name"], record["case_name"], samples)

    def to_record(self) -> dict[str, Any]:
        """The item of `executor_results`."""
        samples = {key: sample.to_record() for key, sample in self.samples.items()}
        return {"service_name": self.service_name, "case_name": self.case_name, **samples}

    @property
    def reference(self) -> str:
        """The text of what its kernels compute."""
        return next((s.spec_code for s in self.samples.values() if s.spec_code), "")

    @classmethod
    def of(cls, result: Result, reference: str) -> ServiceResult:
        """The record of a job's kernels, where `reference` is the text of what they compute."""
        parent = result.job.node
        samples = {node.label: SampleResult.of(node, reference) for node in result.nodes}
        return cls(parent.name, parent.case.case_name, samples)

    def result(self) -> Result | None:
        """What the record says, as the loop knows it; None when it tells nothing of the parent."""
        about = next((s for s in self.samples.values() if s.baseline is not None), None)
        if about is None:
            return None
        latency = about.baseline_latency
        if latency is None and about.latency and about.speedup:
            latency = about.latency * about.speedup
        metadata = json.loads(about.baseline_metadata or "{}")
        profile = Profile.from_metadata({**metadata, "latency": latency}) if latency else None
        case = Case(
            service_name=self.service_name,
            case_name=self.case_name,
            problem=about.problem or "",
            values=json.loads(about.values or "{}"),
            task="",
            kernel="",
        )
        parent = Node(case, about.baseline or "", _evaluation(profile))
        known = {key: s for key, s in self.samples.items() if s.baseline is not None}
        nodes = tuple(sample.node(parent, label) for label, sample in known.items())
        return Result(Job(0, 0, Want.DEVELOP, parent), nodes=nodes)


def plan_id(plan: int, sample: int) -> str:
    """The published name of one sample of one plan."""
    return f"plan_{plan}_{sample}"


class Experience(PublishedRow):
    """A slow and a fast kernel and what was learned from them: an item of the rewrite lists.

    `speedup_original` is over the sample's baseline; `speedup` is that or its inverse, whichever
    is at least 1. Ours: `seen` counts merged duplicates, `origin` says where it came from, `change`
    what was done (the kind of change, and the text of the lines that it touched).
    """

    service_name: str
    case_name: str
    id: str
    speedup_original: float
    speedup: float
    slow_kernel: str
    fast_kernel: str
    raw_response: str = ""
    title: str = ""
    summary: str | None = None
    seen: int = 1
    origin: str = ""
    change: str = ""

    def to_record(self) -> dict[str, Any]:
        """The JSON object: no `summary` where nothing was learned."""
        return self.model_dump(mode="json", exclude_none=True)


NO_OPTIMIZATION_TITLE = "**No optimization found**"
