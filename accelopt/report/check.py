"""`accelopt check KERNEL`: every rule that a kernel breaks, where and how to mend it; the memory it
uses over time; and, with a reference, whether it computes the right thing.

The kernel's Python runs in this process: for kernels of one's own. A search judges its kernels in
child processes instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernel_source import KERNEL_NAMES
from accelopt.referee.comparison import relative_l2
from accelopt.referee.reference import Reference
from accelopt.report.memory import MemoryUse, memory_use
from accelopt.sim import compute, rules
from accelopt.sim.errors import KernelError, SourceLine
from accelopt.sim.kernel_text import load, specs_of
from accelopt.sim.nki.kernel import Kernel, annotations_of, trace_kernel
from accelopt.sim.nki.typing import TensorAnnotation
from accelopt.sim.ordering import order_differences
from accelopt.sim.program import Program
from accelopt.sim.trace import TensorSpec

REL_TOL = 2e-5
REL_TOL_MAMBA = 3e-5


class Violation(NamedTuple):
    """One broken rule."""

    identifier: str
    message: str
    mend: str
    source: SourceLine


class OutputError(NamedTuple):
    """The relative 2-norm by which one output differs from the reference."""

    output: int
    relative: float


class CheckReport(NamedTuple):
    """What there is to say about one kernel. `errors` and `order` are None where they could not be
    worked out."""

    kernel: str
    target: str
    violations: tuple[Violation, ...]
    memory: tuple[MemoryUse, ...] = ()
    errors: tuple[OutputError, ...] | None = None
    rel_tol: float = REL_TOL
    order: str | None = None
    problem: str = ""

    @property
    def passed(self) -> bool:
        """True when no rule is broken and no output is wrong."""
        wrong = any(not error.relative < self.rel_tol for error in self.errors or ())
        return not (self.violations or wrong or self.problem or self.order)


def check(
    kernel: Path, reference: Path | None = None, target: str = "trn1", seed: int = 0
) -> CheckReport:
    """Traces and verifies the kernel in a file, for the arguments that the reference makes (or, with
    no reference, that the kernel's own annotations tell), and compares what it computes."""
    try:
        module = load(kernel.read_text(), str(kernel))
    except Exception as error:  # the file's own Python, or no Python at all
        said = f"{type(error).__name__}: {error}"
        return CheckReport(kernel.name, target, (), problem=f"the file cannot be loaded: {said}")
    function = _entry(module.__dict__, kernel)
    problem = None if reference is None else Reference(reference)
    inputs = None if problem is None else problem.inputs(seed)
    if problem is not None and inputs is not None:
        arguments: Sequence[Any] = problem.kernel_inputs(inputs)
    else:
        arguments = _annotated_arguments(function, kernel)
    program, violations, failure = violations_of(function, arguments, target)
    report = CheckReport(kernel.name, target, tuple(violations), problem=failure)
    if program is None or violations or failure:
        return report
    report = report._replace(memory=memory_use(program))
    if problem is None or inputs is None:
        return report
    arrays = [value for value in arguments if isinstance(value, np.ndarray) and value.ndim]
    expected = problem.forward(inputs)
    outputs = tuple(out for out in compute.execute(program, arrays) if out is not None)
    shaped = problem.kernel_outputs(outputs, expected)
    if len(shaped) != len(expected):
        return report._replace(problem=f"{len(shaped)} outputs, the reference has {len(expected)}")
    differences = order_differences(program, arrays)
    return report._replace(
        errors=tuple(_errors(shaped, expected)),
        rel_tol=REL_TOL_MAMBA if "mamba" in kernel.name else REL_TOL,
        order=None if not differences else _in_words(differences[0].relative),
    )


def violations_of(
    function: Any, arguments: Sequence[Any], target: str = "trn1"
) -> tuple[Program | None, list[Violation], str]:
    """Every violation that can be found; the Program when the trace came to its end, and what
    stopped it otherwise."""
    found: list[KernelError] = []
    program: Program | None = None
    failure = ""
    try:
        program = trace_kernel(function, specs_of(arguments), target=target, report=found.append)
    except KernelError as error:
        found.append(error)
    except Exception as error:  # the kernel's own Python
        failure = f"{type(error).__name__}: {error}"
    broken = bool(found)
    if program is not None and not broken:
        found += rules.verify(program)
    elif program is not None:  # instructions are missing: only rules of single ones still speak
        found += [e for e in rules.verify(program) if e.identifier != "uninitialised_read"]
    distinct = {(e.identifier, e.source): e for e in reversed(found)}
    violations = [Violation(e.identifier, e.message, e.mend, e.source) for e in distinct.values()]
    return program, sorted(violations, key=lambda v: (v.source.file, v.source.line)), failure


def _entry(names: dict[str, Any], kernel: Path) -> Any:
    for name in KERNEL_NAMES:
        if callable(names.get(name)):
            return names[name]
    decorated = [value for value in names.values() if isinstance(value, Kernel)]
    if not decorated:
        raise ConfigError(f"{kernel} defines no function named {' or '.join(KERNEL_NAMES)}")
    return decorated[-1]


def _annotated_arguments(function: Any, kernel: Path) -> list[TensorSpec]:
    inner = function.function if isinstance(function, Kernel) else function
    annotations = {n: a for n, a in annotations_of(inner).items() if n != "return"}
    shapes = [getattr(a, "shape", None) for a in annotations.values()]
    complete = len(annotations) == inner.__code__.co_argcount and None not in shapes
    if not complete or not all(isinstance(a, TensorAnnotation) for a in annotations.values()):
        raise ConfigError(
            f"the shapes of {kernel.name}'s parameters are not known: give --reference, or annotate "
            "every parameter with nt.tensor[...]"
        )
    return [TensorSpec(tuple(shape), np.dtype(np.float32)) for shape in shapes if shape]


def _errors(outputs: Sequence[Any], expected: Sequence[np.ndarray]) -> list[OutputError]:
    found = []
    for number, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        array = np.asarray(output)
        same = array.shape == wanted.shape and bool(np.isfinite(array.astype(np.float64)).all())
        found.append(OutputError(number, relative_l2(array, wanted) if same else float("inf")))
    return found


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
    for use in report.memory:
        lines += ["", use.text()]
    for error in report.errors or ():
        verdict = "correct" if error.relative < report.rel_tol else "wrong"
        limit = f"{error.relative:.3g}, allowed below {report.rel_tol:g}"
        lines += ["", f"output {error.output}: {verdict}, relative 2-norm {limit}"]
    if report.order:
        lines += ["", report.order]
    return "\n".join(lines) + "\n"
