"""One kernel's verdict: what was asked of it, how it ended, what it cost, and why it cost that.

Rows are frozen and typed. A failing kernel is an `Evaluation` with a status and a message. Units
are in the names or docstrings: latencies are milliseconds, `seconds` are wall time, percent metrics
are fractions between 0 and 1 as `neuron-profile` reports them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from accelopt.hardware import TARGETS
from accelopt.hardware.front_ends import front_end
from accelopt.time_limits import EVALUATION_SECONDS, TRACE_SECONDS

MOST_NAME_BYTES = 200
_CALLED_BEFORE = {"flashinfer": "triton"}


def language_called(name: str) -> str:
    """What a kernel language is called now, where files and commands may say what it was called."""
    return _CALLED_BEFORE.get(name, name)


LanguageName = Annotated[str, AfterValidator(language_called)]

FORMER_METHODS = {
    "heads_together": "pack_gqa_heads",
    "one_launch": "batch_launches",
    "look_up_ahead": "prefetch_addresses",
    "most_work_first": "longest_first",
    "split_loop": "split_k",
    "stop_at_bound": "tighten_loop_bound",
    "team_a_row": "row_per_warp",
    "walking_grid": "grid_stride_loop",
    "turn_tiles": "transpose_in_shared_memory",
    "share_tiles": "tile_in_shared_memory",
}
"""Moves that are called otherwise now, by the names that earlier runs wrote down."""


def method_called(name: str) -> str:
    """What a move, or several joined by `+`, is called now."""
    return "+".join(FORMER_METHODS.get(part, part) for part in name.split("+"))


MethodName = Annotated[str, AfterValidator(method_called)]


class Row(BaseModel):
    """A frozen record; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def but(self, **fields: object) -> Self:
        """The same with other values of some fields, which are not checked."""
        return self.model_copy(update=fields)


def faults(error: ValidationError) -> str:
    """What a record lacks or has too much, in one line."""
    found = ((".".join(map(str, item["loc"])), item["msg"]) for item in error.errors())
    return "; ".join(f"{place}: {message}" if place else message for place, message in found)


class Status(StrEnum):
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
    FAULT = "fault"  # of the machine or of AccelOpt: a full disk, a killed process, a bug


NO_VERDICTS = frozenset({Status.BASELINE_FAILED, Status.FAULT})
"""What says nothing of a kernel, and may be another another time: it is not kept."""


def file_name(name: str) -> str:
    """`name`, of which a file or folder is made. Raises ValueError for what leads elsewhere."""
    said = ascii(name[:60])
    if name in ("", ".", "..") or len(name.encode("utf-8", "replace")) > MOST_NAME_BYTES:
        raise ValueError(f"{said} cannot name a folder")
    if not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError(f"{said} cannot name a folder: it has separators or control characters")
    return name


FileName = Annotated[str, AfterValidator(file_name)]


class Case(Row):
    """One problem at one size, with the files that define it.

    `case_name` is by default problem and sorted values (`matmul_K5120_M4096_N12288`), and
    `service_name`, which the starting kernel goes by, that with `_ID0`.
    """

    problem: str
    values: dict[str, Any]
    task: str = Field(description="path of the reference: a NumPy module, a definition")
    kernel: str = Field(description="path of the starting kernel")
    case_id: str = "0"
    case_name: FileName = ""
    service_name: FileName = ""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, fields: dict[str, Any]) -> dict[str, Any]:
        if not {"problem", "values"} <= fields.keys():
            return fields  # pydantic says what is missing
        name = fields.get("case_name") or case_name(fields["problem"], fields["values"])
        return {
            **fields,
            "case_name": name,
            "service_name": fields.get("service_name") or f"{name}_ID0",
        }


def case_name(problem: str, values: Mapping[str, object]) -> str:
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
    compiler: str = Field(default="", description="version of the front end that was emulated")
    stable: bool = True
    interval_ms: tuple[float, float] | None = Field(
        default=None, description="confidence interval of the latency"
    )

    @property
    def device(self) -> str:
        """On what it was taken, in words."""
        if not self.simulated:
            return f"a real {self.target}"
        known = self.target not in TARGETS or TARGETS[self.target].was_measured
        words = [f"the simulated {self.target} NeuronCore", front_end(self.compiler)]
        return ", ".join(filter(None, (*words, "" if known else "nothing was measured there")))

    def to_metadata(self) -> dict[str, Any]:
        """The flat JSON object of the published `profile` column."""
        numbers, words = ({name: getattr(self, name) for name in part} for part in COLUMNS)
        said = words if self.compiler else {k: v for k, v in words.items() if k != "compiler"}
        return {**numbers, **self.metrics, **said}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Profile | None:
        """The profile in a `profile` column, ours or a published one; None when it holds none.

        A column without `target` was written by the published profiler, on a real trn1 core.
        """
        numbers = {key: float(v) for key, v in metadata.items() if _is_number(v)}
        latency = numbers.get("latency", 0.0)
        if latency <= 0:
            return None
        own = {*COLUMNS[0], *COLUMNS[1]}
        return cls(
            latency=latency,
            min_ms=numbers.get("min_ms", latency),
            max_ms=numbers.get("max_ms", latency),
            rel_diffs=numbers.get("rel_diffs", 0.0),
            metrics={key: value for key, value in numbers.items() if key not in own},
            target=metadata.get("target", "trn1"),
            simulated=metadata.get("simulated", False),
            stable=metadata.get("stable", True),
            compiler=str(metadata.get("compiler", "")),
        )


COLUMNS = ("latency min_ms max_ms rel_diffs".split(), "target simulated stable compiler".split())
"""Of a profile's fields, which stand before and behind its metrics in the `profile` column."""


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
        if not self.limit and self.where:  # right or wrong: the place says it all
            return f"{self.name} {verdict}{where}"
        return (
            f"{self.name} {verdict}{where}: {self.amount:.3g} against a limit of {self.limit:.3g}"
        )


class CostlyLine(Row):
    """What one line of a kernel costs. `busy_ms` is by resource, `critical_ms` its part of the path
    that decides the latency."""

    number: int
    text: str
    operations: str
    count: int = Field(description="instructions that it became")
    busy_ms: dict[str, float]
    critical_ms: float
    bytes: int = Field(description="moved from or to device memory")


class Bottleneck(Row):
    """One resource that limits a kernel."""

    category: str = Field(description="memory, compute, or latency: something waits")
    resource: str = Field(description="by its name in `kernels.moves`")
    share: float = Field(description="of the time that it works, 0 to 1; of overlap, is idle")
    gain: float | None = Field(default=None, description="share of the time saved if it took none")
    reason: str
    lines: tuple[int, ...] = Field(default=(), description="that cost most of it, the most first")
    methods: tuple[str, ...] = Field(default=(), description="the moves that relieve it")


class Diagnosis(Row):
    """Where the time of a kernel goes. Resources are named as in `kernels.moves`.

    `bottlenecks` are of distinct resources, the largest gain first, else the largest share.
    `compute_sol` and `memory_sol` are the fractions of the peak rates that are reached (each None
    where unknown, like all below them), `fraction_of_peak` the least possible time over the latency.
    """

    origin: str = Field(description="who says so: simulated trn1, neuron-profile, roofline, ...")
    utilisation: dict[str, float] = Field(default_factory=dict)
    bottlenecks: tuple[Bottleneck, ...] = ()
    lines: tuple[CostlyLine, ...] = Field(default=(), description="largest part of the path first")
    compute_sol: float | None = None
    memory_sol: float | None = None
    fraction_of_peak: float | None = None
    registers: int | None = Field(default=None, description="of a thread")
    shared_bytes: int | None = Field(default=None, description="of a block")
    shared_share: float | None = Field(default=None, description="of what a block may have")
    spilled_bytes: int | None = Field(default=None, description="of the whole run; GPU: a thread")
    occupancy: float | None = None
    missed: bool | None = Field(
        default=None, description="whether its change left alone what limited the kernel before it"
    )
    notes: tuple[str, ...] = ()
    counters: dict[str, Any] | None = Field(
        default=None,
        description="a profiler's summary in its own JSON, or why it has none; None: not asked",
    )

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The one that holds the kernel up most."""
        return self.bottlenecks[0] if self.bottlenecks else None


class Scrutiny(StrEnum):
    """How much the referee asks of a kernel."""

    PUBLISHED = "published"  # the compatible gate alone: five seeds, relative L2, `float16`
    QUICK = "quick"  # every kind of check, on one seed and the stress inputs: for screening
    FULL = "full"  # the gate, and every check that makes it sound


class Exactness(Row):
    """How exact one output is on ordinary hidden inputs. Errors are relative, in the 2-norm: its own,
    that of one unit in the last place of its format, and that of sums in float32 of the same inputs.
    Where the exact values are `rounded` to its format by the reference, only what was rounded otherwise counts."""

    error: float
    unit: float
    summed: float
    rounded: bool = False

    @property
    def ulps(self) -> float:
        """The error in units of the last place of the output's format."""
        return self.error / self.unit

    def times_less(self, baseline: Exactness) -> float:
        """How many times less exact it is than `baseline`. Rounding the output once (a fifth of a unit,
        root mean square) and sums in float32 in any order make nothing less exact."""
        honest = max(baseline.error, self.unit / 5, self.summed)
        return self.error / honest


LESS_EXACT = "times less exact than the baseline"
MOST_TIMES_LESS_EXACT = 4.0


def exactness_words(own: Sequence[Exactness], baseline: Sequence[Exactness] = ()) -> str:
    """How exact the outputs are, in words: the worst one's ulps, and those of the baseline."""
    if not own:
        return ""
    alike = " results rounded to the same format" if all(one.rounded for one in own) else ""
    said = f"{max(one.ulps for one in own):.2g} ulps from exact{alike}"
    if len(baseline) != len(own):
        return said
    times = max(one.times_less(other) for one, other in zip(own, baseline, strict=True))
    worst, theirs = (max(one.ulps for one in of) for of in (own, baseline))
    less = "as exact as" if f"{worst:.2g}" == f"{theirs:.2g}" else "no less exact than"
    less = f"{times:.1f} times less exact than" if times > 1 else less
    but = " but for a rounding or the order of sums" if times <= 1 and worst > theirs else ""
    return f"{said}, {less} the baseline with {theirs:.2g}{but}"


REL_TOL = 2e-5
"""The published bound of the relative L2 error."""


class EvaluationRequest(Row):
    """One kernel to compile, check and time, and the limits it must keep."""

    kernel: str = Field(description="path of the kernel's source")
    task: str = Field(description="path of the NumPy reference module")
    save_fields: tuple[str, ...] = ()
    target: str = "trn1"
    core: int = 0
    constants: dict[str, float] = Field(
        default_factory=dict, description="of the simulated core, in place of the table's"
    )
    compiler: str = Field(default="", description="version of the front end; empty: the default")
    rel_tol: float = REL_TOL
    perf_tol: float = 0.01
    scrutiny: Scrutiny = Scrutiny.FULL
    half: Literal[0, 1] | None = Field(
        default=None,
        description="of full scrutiny only this half: two workers share one kernel, the first times it",
    )
    precision: tuple[str, ...] = Field(
        default=(), description="formats below float32 that are allowed besides the inputs' own"
    )
    baseline: tuple[Exactness, ...] = Field(
        default=(),
        description="how exact the baseline's outputs are; a kernel that is much less is refused",
    )
    least_ms: float = Field(
        default=0.0, description="bound of the problem: a faster result is refused"
    )
    compile_seconds: float = Field(
        default=TRACE_SECONDS, description="wall time for tracing or compiling"
    )
    total_seconds: float = Field(
        default=EVALUATION_SECONDS,
        description="time for everything; up to four times as long where processors are busy",
    )
    memory_bytes: int = 12 << 30


class Evaluation(Row):
    """The verdict on one kernel: exactly one status; a profile only when correct, and then always
    but for the half of a judgement that leaves the timing to the other."""

    status: Status
    message: str = ""
    traceback: str = ""
    profile: Profile | None = None
    checks: tuple[Check, ...] = Field(default=(), description="the referee's, in order")
    notes: tuple[str, ...] = Field(default=(), description="reported, but no reason to refuse")
    holds_for: str = Field(
        default="", description="`these shapes`, or `any`; empty where that was not asked"
    )
    exactness: tuple[Exactness, ...] = Field(
        default=(), description="of each output in a floating-point format, with full scrutiny"
    )
    diagnosis: Diagnosis | None = Field(
        default=None, description="of a kernel that was inspected, not judged"
    )
    untimed: bool = Field(default=False, description="correct, and timed in the other half")
    seconds: float = 0.0
    isolation: str = Field(default="", description="the active sandbox level, in words")

    @model_validator(mode="after")
    def _profile_belongs_to_correct(self) -> Evaluation:
        if (self.status is Status.CORRECT) != ((self.profile is not None) != self.untimed):
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
    depends_on: tuple[str, ...] = Field(
        default=(), description="what the compiler may do otherwise, and then nothing is gained"
    )
    between: tuple[float, float] | None = Field(
        default=None, description="what eight of ten gains predicted like this one measure between"
    )


def to_json(values: object) -> str:
    """One JSON form everywhere: compact, keys in given order."""
    return json.dumps(values)
