"""`accelopt check KERNEL`: every rule that a kernel breaks, where and how to mend it; the memory it
uses over time; and, with a reference, whether it computes the right thing.

The kernel's Python runs in a confined child process, as in a search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError, quoted
from accelopt.evaluation import Check, Evaluation, EvaluationRequest, Status, exactness_words
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.benchmark import relative_tolerance
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.simulated import SimulatedDevice, Survey, tensors_of
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.real_number_equality import Same, compared
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.source_lines import Sources
from accelopt.report.console import IN_A_FILE, paragraph
from accelopt.sandbox.progress import note
from accelopt.sim.compute.trips import counted
from accelopt.sim.errors import NOWHERE, KernelError
from accelopt.sim.independence import Dependence, dependences
from accelopt.sim.timing.occupancy import MemoryUse, memory_use
from accelopt.time_limits import TRACE_SECONDS

SAME = (
    "the same in real numbers: what the kernel computes and what the reference does have one normal "
    "form; rounding is another matter"
)


class CheckReport(NamedTuple):
    """What there is to say about one kernel. `verdict` is the referee's, None where the kernel did not
    come to it; `printed` is what the kernel's Python wrote while it was traced. `same` is True where
    kernel and reference have one normal form: the same function of real numbers; `unknown` says why that was
    not found out."""

    kernel: str
    target: str
    violations: tuple[KernelError, ...]
    memory: tuple[MemoryUse, ...] = ()
    verdict: Evaluation | None = None
    problem: str = ""
    printed: str = ""
    same: bool = False
    unknown: str = ""

    @property
    def passed(self) -> bool:
        """True when no rule is broken and the referee finds nothing wrong."""
        refused = self.verdict is not None and self.verdict.status is not Status.CORRECT
        return not (self.violations or self.problem or refused)


def check(
    kernel: Path,
    reference: Path | None = None,
    target: str = "trn1",
    *,
    rel_tol: float | None = None,
    precision: Sequence[str] = (),
    seconds: float = TRACE_SECONDS,
    cache: Path | None = None,
    version: str = "",
) -> CheckReport:
    """Traces and verifies the kernel in a file, for the arguments that the reference makes (or, with
    no reference, that the kernel's own annotations tell), and asks the referee everything that it asks
    of a winner.

    `seconds` is the limit of a trace, `cache` the folder of the referee's inputs, the user's own by
    default, `version` that of `nki` which the kernel is said to be for. Raises ConfigError for what is wrong with the reference.
    """
    note("reading the reference" if reference else "tracing the kernel")
    problem = None if reference is None else Reference(reference)
    given = None if problem is None else problem.kernel_inputs(problem.inputs(0))
    report = CheckReport(kernel.name, target, ())
    try:
        arguments = None if given is None else [argument_of(value) for value in given]
        note("tracing the kernel")
        survey = SimulatedDevice(target, version=version).survey(
            str(kernel), arguments, seconds=seconds
        )
        report = _violations(report, survey, given)
        if survey.program is None or report.violations or report.problem or reference is None:
            return report
    except KernelFailure as failure:
        printed = report.printed or failure.traceback
        return report._replace(problem=stopped(failure), printed=printed)
    except KernelError as error:  # of the timing
        return report._replace(problem=str(error))
    request = EvaluationRequest(
        kernel=str(kernel.resolve()),
        task=str(reference.resolve()),
        target=target,
        rel_tol=relative_tolerance(kernel.name) if rel_tol is None else rel_tol,
        precision=tuple(precision),
        compile_seconds=seconds,
    )
    device = SimulatedDevice(target, version=version)
    verdict = evaluate(request, device, trial_store(cache))
    if verdict.status is Status.BASELINE_FAILED:
        raise ConfigError(verdict.message)
    report = report._replace(verdict=verdict)
    if verdict.status not in (Status.CORRECT, Status.WRONG_NUMBERS):
        return report
    note("comparing what kernel and reference compute")
    found = compared(kernel.resolve(), reference.resolve(), target, version)
    if isinstance(found, Same):
        return report._replace(same=found.same, unknown=found.why)
    return report._replace(unknown=found.message.replace("the evaluation's process", "that"))


def stopped(failure: KernelFailure) -> str:
    """Why a kernel got no further, and the option that helps where one does."""
    longer = "; --timeout gives it longer" if failure.status is Status.TIMEOUT else ""
    return failure.message + longer


def _violations(report: CheckReport, survey: Survey, given: Sequence[object] | None) -> CheckReport:
    """What tracing found, and, in a Program that it finds nothing in, what the whole of it tells. How
    often loops of the device run is known of the arguments that are `given`."""
    distinct = {(e.identifier, e.source): e for e in reversed(survey.violations)}
    violations = sorted(distinct.values(), key=lambda found: found.source)
    report = report._replace(
        violations=tuple(violations), problem=survey.failure, printed=survey.output
    )
    if survey.program is None or violations:
        return report
    found = [_needing(dependence) for dependence in dependences(survey.program)]
    report = report._replace(violations=tuple(found))
    try:
        arrays = None if given is None else tensors_of(given)
        return report._replace(memory=memory_use(counted(survey.program, arrays)))
    except KernelError as error:
        if (
            error.identifier == "dynamic_loop"
        ):  # the memory over time is not known, no rule is broken
            return report
        if error.source == NOWHERE:  # of the prediction, not of a line of the kernel
            raise
        return report._replace(violations=(*found, error))


def _needing(found: Dependence) -> KernelError:
    """Iterations that need each other where any order is allowed."""
    what = "the programs of a launch" if found.between_programs else "iterations of nl.affine_range"
    mend = (
        "Give every program all that it needs."
        if found.between_programs
        else "Use nl.sequential_range there."
    )
    message = f"{what} may run in any order, and {found}."
    return KernelError("parallel_dependence", message, mend, found.read.instruction.source)


def check_text(report: CheckReport, columns: int = IN_A_FILE) -> str:
    """The report for people, in lines of so many columns."""
    lines = [f"{report.kernel} for {report.target}: {'passes' if report.passed else 'refused'}"]
    for violation in report.violations:
        lines += ["", f"{violation.source}: {violation.identifier}", f"  {violation.message}"]
        lines += [f"  {violation.mend}"] if violation.mend else []
    if report.problem:
        lines += ["", f"stopped: {report.problem}"]
    if report.printed:
        lines += ["", "the kernel's Python wrote:", quoted(report.printed.rstrip(), whole=True)]
    for use in report.memory:
        lines += ["", memory_text(use)]
    said = [] if report.verdict is None else ["", *_verdict_text(report.verdict)]
    said += [SAME] if report.same else []
    said += (
        [f"not shown to be the same in real numbers: {report.unknown}"] if report.unknown else []
    )
    return "\n".join([*lines, *(paragraph(one, columns) for one in said)]) + "\n"


def _verdict_text(verdict: Evaluation) -> Iterator[str]:
    """What the referee found: each kind of check where it came nearest to its limit."""
    passed = [check for check in verdict.checks if check.passed]
    if verdict.status is Status.CORRECT:
        yield "correct; what the referee asked:"
    else:
        yield f"{verdict.status.value.replace('_', ' ')}: {verdict.message}"
        if passed:
            yield "what passed before that:"
    nearest: dict[str, Check] = {}
    for check in passed:
        known = nearest.get(check.name)
        if known is None or check.amount > known.amount:
            nearest[check.name] = check
    for name, check in nearest.items():
        times = sum(other.name == name for other in passed)
        if not check.limit:  # shapes and formats are right or not
            yield f"  {name}: {'once' if times == 1 else f'{times} times'}"
        else:
            where = f" ({check.where})" if check.where else ""
            yield f"  {name}: at most {check.amount:.3g}, limit {check.limit:.3g}{where}"
    if verdict.exactness:
        yield f"  exactness: {exactness_words(verdict.exactness)}"
    yield from (f"note: {note}" for note in verdict.notes)


BARS = " ▁▂▃▄▅▆▇█"


def memory_text(use: MemoryUse) -> str:
    """A line of bars, and who holds the most at the peak."""
    share = use.peak / use.capacity
    spills = "; what exceeds it is spilled" if share > 1 else ""
    rows = [
        f"{use.memory}: at most {use.peak:,} of {use.capacity:,} bytes a partition "
        f"({share:.0%}){spills}"
    ]
    full = max(use.capacity, use.peak)
    rows.append(
        "  |"
        + "".join(BARS[max(n > 0, round(n / full * (len(BARS) - 1)))] for n in use.over_time)
        + "|"
    )
    name = Sources().name
    rows += [f"  {h.bytes:>10,}  {name(h.tensor, h.source)}  {h.source}" for h in use.holders]
    return "\n".join(rows)
