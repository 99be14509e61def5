"""Columns and keys of the files that people's shell loops read: the only place that spells one.

Used where files are read and written; inside of the house travel `nodes` and `evaluation`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from accelopt.evaluation import Profile, Row, Status, to_json


class Candidate(Row):
    """A correct kernel that the next iteration may start from: a row of profile_results.csv.

    The columns are those of the published tables; `from_row` and `to_row` are their CSV form.
    """

    service_name: str
    case_name: str
    problem: str
    values: dict[str, Any]
    task: str
    kernel: str
    plan_id: str = ""
    profile: Profile | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> Candidate:
        """A line of candidates.csv or profile_results.csv. Raises KeyError, ValueError."""
        metadata = json.loads(row["profile"]) if row.get("profile") else {}
        if not isinstance(metadata, dict):
            raise ValueError("its profile is not a JSON object")
        return cls(
            service_name=row["service_name"],
            case_name=row["case_name"],
            problem=row["problem"],
            values=json.loads(row["values"]),
            task=row["task"],
            kernel=row["kernel"],
            plan_id=row.get("plan_id") or "",
            profile=Profile.from_metadata(metadata),
        )

    def to_row(self) -> dict[str, str]:
        """The columns of candidates.csv as selection writes it."""
        return {
            "service_name": self.service_name,
            "task": self.task,
            "kernel": self.kernel,
            "problem": self.problem,
            "values": to_json(self.values),
            "plan_id": self.plan_id,
            "case_name": self.case_name,
        }


class PublishedRow(BaseModel):
    """A row of a published JSON file: keys that we do not know are left aside."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PlannerResult(PublishedRow):
    """The plans drawn for one candidate: an item of the planner's output."""

    service_name: str
    reasonings: list[str] = Field(default_factory=list)
    plans: list[str]


class FixerRound(PublishedRow):
    """One failed attempt of a sample, and what the tools said of it."""

    body: str | None = None
    status: Status
    error: str


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


def plan_id(plan: int, sample: int) -> str:
    """The published name of one sample of one plan."""
    return f"plan_{plan}_{sample}"


class Experience(PublishedRow):
    """A slow and a fast kernel and what was learned from them: an item of the rewrite lists.

    `speedup_original` is over the sample's baseline; `speedup` is that or its inverse, whichever
    is at least 1. `seen` counts merged duplicates and `origin` says where it came from (ours).
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

    def to_record(self) -> dict[str, Any]:
        """The JSON object: no `summary` where nothing was learned."""
        return self.model_dump(mode="json", exclude_none=True)


NO_OPTIMIZATION_TITLE = "**No optimization found**"
