"""What an ended evaluation means: statuses from errors and logs, and the trace to keep of it."""

from __future__ import annotations

import datetime

from pydantic import Field

from accelopt.evaluation import Evaluation, Row, Status
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Correctness,
    Environment,
    Performance,
    Trace,
    TraceEvaluation,
)
from accelopt.kernels.gpu.bench.process.comparison import Figures
from accelopt.kernels.gpu.bench.process.timing import Statistics

COMPILER_ERRORS = {
    "CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct",
    "OutOfResources", "PTXASError", "AssemblyError", "MLIRCompilationError", "BuildError",
    "SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError",
}  # fmt: skip
COMPILER_PHRASES = (
    "PassManager::run failed",
    "ptxas fatal",
    "Internal Triton PTX codegen error",
    "out of resource: shared memory",
    "error: Failures have been detected while processing an MLIR pass pipeline",
)
_TRACE_STATUS = {
    Status.CORRECT: "PASSED",
    Status.COMPILE_ERROR: "COMPILE_ERROR",
    Status.WRONG_SHAPE: "INCORRECT_SHAPE",
    Status.WRONG_DTYPE: "INCORRECT_DTYPE",
    Status.WRONG_NUMBERS: "INCORRECT_NUMERICAL",
    Status.TIMEOUT: "TIMEOUT",
}


class Verdict(Row):
    """Everything one evaluation on a device found out about one solution."""

    evaluation: Evaluation
    hardware: str = ""
    libs: dict[str, str] = Field(default_factory=dict)
    latency: Statistics | None = Field(default=None, description="launch-free, milliseconds")
    package_latency_ms: float | None = None
    outside_latency_ms: float | None = Field(
        default=None, description="per call, back to back, by the parent's clock; L2 warm"
    )
    figures: tuple[Figures, ...] = ()
    log: str = ""


def status_of_error(error: str, message: str) -> Status:
    """COMPILE_ERROR or RUN_ERROR, from an exception's qualified name and text."""
    if error.rsplit(".", 1)[-1] in COMPILER_ERRORS or "triton.compiler" in error:
        return Status.COMPILE_ERROR
    if any(phrase in message for phrase in COMPILER_PHRASES):
        return Status.COMPILE_ERROR
    return Status.RUN_ERROR


LAUNCH_FREE_KEY = "launch_free_latency_ms"
REFERENCE_LAUNCH_FREE_KEY = "reference_launch_free_latency_ms"


def to_trace(
    workload: Trace,
    solution: str,
    verdict: Verdict,
    reference_ms: float = 0.0,
    reference_launch_free_ms: float | None = None,
) -> Trace:
    """The verdict as a trace that other readers of the format understand.

    `latency_ms` is by the package's timer, as others expect; where that was not run it is 0 and
    only the launch-free latency stands in `correctness.extra`. A refusal, a crash and a run error
    are all RUNTIME_ERROR there, with the reason in the log.
    """
    evaluation = verdict.evaluation
    status = _TRACE_STATUS.get(evaluation.status, "RUNTIME_ERROR")
    log = "\n".join(part for part in (evaluation.message, evaluation.traceback) if part)
    correctness, performance = None, None
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        extra = {"relative_l2": max((f.relative_l2 for f in verdict.figures), default=0.0)}
        if verdict.latency is not None:
            extra[LAUNCH_FREE_KEY] = verdict.latency.median
        if reference_launch_free_ms is not None:
            extra[REFERENCE_LAUNCH_FREE_KEY] = reference_launch_free_ms
        correctness = Correctness(
            max_relative_error=max((f.max_relative_error for f in verdict.figures), default=0.0),
            max_absolute_error=max((f.max_absolute_error for f in verdict.figures), default=0.0),
            extra=extra,
        )
    if status == "PASSED":
        latency = verdict.package_latency_ms or 0.0
        performance = Performance(
            latency_ms=latency,
            reference_latency_ms=reference_ms,
            speedup_factor=reference_ms / latency if latency else 0.0,
        )
    return Trace(
        definition=workload.definition,
        workload=workload.workload,
        solution=solution,
        evaluation=TraceEvaluation(
            status=status,
            environment=Environment(hardware=verdict.hardware or "unknown", libs=verdict.libs),
            timestamp=datetime.datetime.now(datetime.UTC).isoformat(),
            log=log,
            correctness=correctness,
            performance=performance,
        ),
    )
