"""`accelopt check KERNEL`: every rule that a kernel breaks, where and how to mend it; the memory it
uses over time; and, with a reference, whether it computes the right thing.

The kernel's Python runs in a confined child process, as in a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelopt.evaluation import Status
from accelopt.kernels.nki.arguments import argument_of, shaped_outputs
from accelopt.kernels.nki.benchmark import REL_TOL, relative_tolerance
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.simulated import (
    TRACE_SECONDS,
    SimulatedDevice,
    SimulatedExecutable,
    Survey,
)
from accelopt.kernels.nki.referee.comparison import output_dtypes, relative_l2, same_layout
from accelopt.kernels.nki.referee.precision import Precision, contract, in_single
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.report.memory import MemoryUse, memory_use
from accelopt.sim.errors import KernelError, SourceLine
from accelopt.sim.ordering import order_differences
from accelopt.sim.program import Program

MOST_INSTRUCTIONS = 5_000_000
"""To time one takes some 16 microseconds and a kilobyte; NKIBench's matmul runs 155,000."""


class Violation(NamedTuple):
    """One broken rule."""

    identifier: str
    message: str
    mend: str
    source: SourceLine


class OutputError(NamedTuple):
    """The relative 2-norm by which one output differs from the reference, or the `fault` for which
    the two cannot be compared."""

    output: int
    relative: float
    fault: str = ""


class CheckReport(NamedTuple):
    """What there is to say about one kernel. `errors` and `order` are None where they could not be
    worked out; `printed` is what the kernel's Python wrote while it was traced."""

    kernel: str
    target: str
    violations: tuple[Violation, ...]
    memory: tuple[MemoryUse, ...] = ()
    errors: tuple[OutputError, ...] | None = None
    rel_tol: float = REL_TOL
    precision: Precision = Precision()
    order: str | None = None
    problem: str = ""
    printed: str = ""

    @property
    def passed(self) -> bool:
        """True when no rule is broken and no output is wrong."""
        wrong = any(not error.relative < self.rel_tol for error in self.errors or ())
        return not (self.violations or wrong or self.problem or self.order)


def check(
    kernel: Path,
    reference: Path | None = None,
    target: str = "trn1",
    seed: int = 0,
    *,
    precision: Sequence[str] = (),
    seconds: float = TRACE_SECONDS,
) -> CheckReport:
    """Traces and verifies the kernel in a file, for the arguments that the reference makes (or, with
    no reference, that the kernel's own annotations tell), and compares what it computes.

    `seconds` is the limit of the trace. Raises ConfigError for what is wrong with the reference.
    """
    problem = None if reference is None else Reference(reference)
    inputs = None if problem is None else problem.inputs(seed)
    given = None if problem is None or inputs is None else problem.kernel_inputs(inputs)
    declared = () if problem is None else problem.precision
    allowed = contract(given or (), declared, precision)
    rel_tol = allowed.rel_tol(relative_tolerance(kernel.name))
    report = CheckReport(kernel.name, target, (), rel_tol=rel_tol, precision=allowed)
    try:
        arguments = None if given is None else [argument_of(value) for value in given]
        survey = SimulatedDevice(target).survey(str(kernel), arguments, seconds=seconds)
        report = _violations(report, survey)
        if survey.program is None or report.violations or report.problem or problem is None:
            return report
        assert inputs is not None and given is not None
        return _numbers(report, survey.program, problem, inputs, given)
    except KernelFailure as failure:
        printed = report.printed or failure.traceback
        return report._replace(problem=stopped(failure), printed=printed)
    except KernelError as error:  # of the timing
        return report._replace(problem=str(error))


def stopped(failure: KernelFailure) -> str:
    """Why a kernel got no further, and the option that helps where one does."""
    longer = "; --timeout gives it longer" if failure.status is Status.TIMEOUT else ""
    return failure.message + longer


def _violations(report: CheckReport, survey: Survey) -> CheckReport:
    """What tracing found."""
    distinct = {(e.identifier, e.source): e for e in reversed(survey.violations)}
    violations = [Violation(e.identifier, e.message, e.mend, e.source) for e in distinct.values()]
    violations.sort(key=lambda violation: violation.source)
    report = report._replace(
        violations=tuple(violations), problem=survey.failure, printed=survey.output
    )
    if survey.program is None or violations:
        return report
    if said := endless(survey.program):
        return report._replace(problem=said)
    return report._replace(memory=memory_use(survey.program))


def endless(program: Program) -> str:
    """Why it would take for ever to execute and time a Program; empty when it would not."""
    counts = [
        (math.prod(loop.variable.trips for loop in loops), instruction.source)
        for loops, instruction in program.walk()
    ]
    total = sum(count for count, _ in counts)
    if total <= MOST_INSTRUCTIONS:
        return ""
    most, source = max(counts)
    return (
        f"the kernel runs {total:,} instructions, {most:,} of them at {source}; the simulated core "
        f"takes at most {MOST_INSTRUCTIONS:,}"
    )


def _numbers(
    report: CheckReport,
    program: Program,
    problem: Reference,
    inputs: list[Any],
    arguments: list[Any],
) -> CheckReport:
    """What a legal Program computes against the reference. Raises KernelFailure."""
    expected = problem.forward(inputs)
    outputs = SimulatedExecutable(program, ()).run(arguments)
    shaped = shaped_outputs(problem, outputs, expected)
    if not len(outputs) == len(shaped) == len(expected):
        return report._replace(problem=f"{len(outputs)} outputs, the reference has {len(expected)}")
    errors = tuple(
        _error(number, *pair, inputs, report.precision)
        for number, pair in enumerate(zip(outputs, shaped, expected, strict=True))
    )
    arrays = [value for value in arguments if isinstance(value, np.ndarray) and value.ndim]
    differences = order_differences(program, arrays)
    return report._replace(
        errors=errors,
        order=None if not differences else _in_words(differences[0].relative),
    )


def _error(
    number: int,
    returned: np.ndarray,
    shaped: Any,
    wanted: np.ndarray,
    inputs: Sequence[Any],
    precision: Precision,
) -> OutputError:
    """What the kernel `returned` and how it looks in the reference's shape against what is wanted."""
    output, infinite = in_single(np.asarray(shaped)), float("inf")
    if output.shape != wanted.shape or not same_layout(returned.shape, wanted.shape):
        said = f"shape {returned.shape}, the reference has {wanted.shape}"
        return OutputError(number, infinite, said)
    if returned.dtype.name not in (formats := output_dtypes(wanted, inputs, precision)):
        said = f"dtype {returned.dtype}, the reference has {' or '.join(formats)}"
        return OutputError(number, infinite, said)
    unlike = np.isfinite(output.astype(np.float64)) != np.isfinite(wanted.astype(np.float64))
    if unlike.any():
        first = tuple(map(int, np.argwhere(unlike)[0]))
        said = f"{int(unlike.sum())} elements are finite here or there alone, the first at {first}"
        return OutputError(number, infinite, said)
    return OutputError(number, relative_l2(output, wanted))


def _in_words(relative: float) -> str:
    return (
        "the result changes when the iterations of nl.affine_range run in another order "
        f"(relative 2-norm {relative:.2g}); use nl.sequential_range where they depend on each other"
    )


def check_text(report: CheckReport) -> str:
    """The report for people."""
    lines = [f"{report.kernel} for {report.target}: {'passes' if report.passed else 'refused'}"]
    for violation in report.violations:
        lines += ["", f"{violation.source}: {violation.identifier}", f"  {violation.message}"]
        lines += [f"  {violation.mend}"] if violation.mend else []
    if report.problem:
        lines += ["", f"stopped: {report.problem}"]
    if report.printed:
        lines += ["", "the kernel's Python wrote:", report.printed.rstrip()]
    for use in report.memory:
        lines += ["", use.text()]
    for error in report.errors or ():
        verdict = "correct" if error.relative < report.rel_tol else "wrong"
        limit = f"{error.relative:.3g}, allowed below {report.rel_tol:g}"
        why = error.fault or f"relative 2-norm {limit}"
        lines += ["", f"output {error.output}: {verdict}, {why}"]
    if report.order:
        lines += ["", report.order]
    return "\n".join(lines) + "\n"
