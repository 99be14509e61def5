"""Every row that is kept or passed on, typed; the only place that spells a column or a key.

Rows are frozen. A failing kernel is an `Evaluation` with a status and a message. Units are in the
names or docstrings: latencies are milliseconds, `seconds` are wall time, percent metrics are
fractions between 0 and 1 as `neuron-profile` reports them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class Row(BaseModel):
    """A frozen record; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def faults(error: ValidationError) -> str:
    """What a record lacks or has too much, in one line."""
    found = ((".".join(map(str, item["loc"])), item["msg"]) for item in error.errors())
    return "; ".join(f"{place}: {message}" if place else message for place, message in found)


class Status(str, Enum):
    """How one evaluation ended. Everything but CORRECT says why the kernel cannot win."""

    CORRECT = "correct"
    REFUSED = "refused"  # a static rule of the referee: precision, forbidden source
    COMPILE_ERROR = "compile_error"
    RUN_ERROR = "run_error"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_NUMBERS = "wrong_numbers"
    BENCHMARK_ERROR = "benchmark_error"
    TIMEOUT = "timeout"
    CRASH = "crash"
    MISSING = "missing"  # the proposer returned no implementation
    BASELINE_FAILED = "baseline_failed"


class Case(Row):
    """One problem at one size, with the files that define it."""

    problem: str
    case_id: str
    values: dict[str, int]
    task: str = Field(description="path of the NumPy reference module")
    kernel: str = Field(description="path of the starting kernel")

    @property
    def case_name(self) -> str:
        """Problem and sorted values: `matmul_K5120_M4096_N12288`."""
        return case_name(self.problem, self.values)


def case_name(problem: str, values: dict[str, int]) -> str:
    """`get_case_name` of the published contract: problem, then key and value in key order."""
    return "_".join([problem, *(f"{key}{values[key]}" for key in sorted(values))])


class Profile(Row):
    """What one timed kernel did. `metrics` are the profiler's own fields, by its names."""

    latency: float = Field(description="milliseconds, median of the rounds")
    min_ms: float
    max_ms: float
    rel_diffs: float = Field(description="(max - min) / min of the kept round")
    metrics: dict[str, float] = Field(default_factory=dict)
    target: str = Field(description="trn1, trn2, or a GPU's name")
    simulated: bool
    stable: bool = True
    interval_ms: tuple[float, float] | None = Field(
        default=None, description="confidence interval of the latency"
    )

    def to_metadata(self) -> dict[str, Any]:
        """The flat JSON object of the published `profile` column."""
        return {
            "latency": self.latency,
            "min_ms": self.min_ms,
            "max_ms": self.max_ms,
            "rel_diffs": self.rel_diffs,
            **self.metrics,
            "target": self.target,
            "simulated": self.simulated,
            "stable": self.stable,
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Profile | None:
        """The profile in a `profile` column, ours or a published one; None when it holds none.

        A column without `target` was written by the published profiler, on a real trn1 core.
        """
        numbers = {key: float(v) for key, v in metadata.items() if _is_number(v)}
        latency = numbers.get("latency", 0.0)
        if latency <= 0:
            return None
        own = {"latency", "min_ms", "max_ms", "rel_diffs", "target", "simulated", "stable"}
        return cls(
            latency=latency,
            min_ms=numbers.get("min_ms", latency),
            max_ms=numbers.get("max_ms", latency),
            rel_diffs=numbers.get("rel_diffs", 0.0),
            metrics={key: value for key, value in numbers.items() if key not in own},
            target=metadata.get("target", "trn1"),
            simulated=metadata.get("simulated", False),
            stable=metadata.get("stable", True),
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


class Check(Row):
    """One check of the referee: what was measured, against which limit, and where it was worst."""

    name: str
    passed: bool
    amount: float = 0.0
    limit: float = 0.0
    where: str = ""

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        where = f" {self.where}" if self.where else ""
        return (
            f"{self.name} {verdict}{where}: {self.amount:.3g} against a limit of {self.limit:.3g}"
        )


class Scrutiny(str, Enum):
    """How much the referee asks of a kernel."""

    PUBLISHED = "published"  # the compatible gate alone: five seeds, relative L2, `float16`
    QUICK = "quick"  # every kind of check, on one seed and the stress inputs: for screening
    FULL = "full"  # the gate, and every check that makes it sound


class EvaluationRequest(Row):
    """One kernel to compile, check and time, and the limits it must keep."""

    kernel: str = Field(description="path of the kernel's source")
    task: str = Field(description="path of the NumPy reference module")
    save_fields: tuple[str, ...] = ()
    target: str = "trn1"
    core: int = 0
    rel_tol: float = 2e-5
    perf_tol: float = 0.01
    scrutiny: Scrutiny = Scrutiny.FULL
    allow_low_precision: bool = False
    least_ms: float = Field(
        default=0.0, description="roofline bound of the problem: a faster result is refused"
    )
    compile_seconds: float = Field(default=120.0, description="wall time for tracing or compiling")
    total_seconds: float = Field(default=900.0, description="wall time for everything")
    memory_bytes: int = 12 << 30


class Evaluation(Row):
    """The verdict on one kernel: exactly one status; a profile only when correct."""

    status: Status
    message: str = ""
    traceback: str = ""
    profile: Profile | None = None
    checks: tuple[Check, ...] = Field(default=(), description="the referee's, in order")
    notes: tuple[str, ...] = Field(default=(), description="reported, but no reason to refuse")
    seconds: float = 0.0
    isolation: str = Field(default="", description="the active sandbox level, in words")

    @model_validator(mode="after")
    def _profile_belongs_to_correct(self) -> Evaluation:
        if (self.status is Status.CORRECT) != (self.profile is not None):
            raise ValueError(
                f"an evaluation that is {self.status.value} has profile={self.profile}"
            )
        return self

    def to_metadata(self) -> dict[str, Any]:
        """The published metadata object: the profile, or the error under its published key."""
        if self.profile is not None:
            return self.profile.to_metadata()
        key = _ERROR_KEYS.get(self.status, "compilation_error")
        metadata: dict[str, Any] = {key: self.message or self.status.value}
        if self.traceback:
            metadata["compilation_traceback"] = self.traceback
        return metadata


_ERROR_KEYS = {
    Status.RUN_ERROR: "run_error",
    Status.WRONG_SHAPE: "correctness_error",
    Status.WRONG_DTYPE: "correctness_error",
    Status.WRONG_NUMBERS: "correctness_error",
    Status.REFUSED: "correctness_error",
    Status.BENCHMARK_ERROR: "benchmarking_error",
}


class Confirmation(Row):
    """A winner and its parent measured again, in turns."""

    confirmed: bool
    speedup: float = Field(default=0.0, description="parent's median over the winner's")
    winner_ms: tuple[float, ...] = ()
    parent_ms: tuple[float, ...] = ()
    message: str = Field(default="", description="why there is no measurement")


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


def to_json(values: object) -> str:
    """One JSON form everywhere: compact, keys in given order."""
    return json.dumps(values)
