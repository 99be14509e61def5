"""What a Triton solution computes, what its problem's PyTorch reference does, and the least time of that."""

from __future__ import annotations

from typing import NamedTuple

from accelopt.algorithm.equality import same_function
from accelopt.algorithm.ir import Algorithm
from accelopt.algorithm.traced_array import NotTraced
from accelopt.hardware.gpus import GPU
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, InputSource, Solution, Workload
from accelopt.kernels.gpu.bench.roofline import Bound, bound, bound_of
from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.kernels.triton.lift.confined import lift_reference, lift_solution
from accelopt.kernels.triton.lift.lifting import LiftedLaunches


class LiftedProblem(NamedTuple):
    """A solution and the reference of its definition, each lifted or refused. `same` says that both are
    one function of real numbers; `unequal` says why that is not known, where it is not."""

    solution: LiftedLaunches | NotTraced
    reference: LiftedLaunches | NotTraced
    same: bool = False
    unequal: str = ""

    @property
    def algorithm(self) -> Algorithm | None:
        """That of the problem: the reference's, else the solution's."""
        for found in (self.reference, self.solution):
            if not isinstance(found, NotTraced):
                return found.algorithm
        return None


def problem_algorithm(
    solution: Solution, definition: Definition, workload: Workload
) -> Algorithm | None:
    """What a problem's reference computes, else its solution; None where neither is traced."""
    for one in (None, solution):
        found = _lifted(one, definition, workload)
        if not isinstance(found, NotTraced):
            return found.algorithm
    return None


def problem_bound(
    algorithm: Algorithm | None, definition: Definition, workload: Workload, target: GPU
) -> Bound:
    """The least time of a problem: of what is computed, else of the definition's kind."""
    plain = bound(definition, workload, target)
    return plain if algorithm is None else bound_of(algorithm, plain, target)


def lifted_problem(solution: Solution, definition: Definition, workload: Workload) -> LiftedProblem:
    """Both sides of a problem on a workload's shapes, traced in confined children.

    They are called the same only where the solution keeps to the rules on sources, by which none reaches
    for the tracer, and where both are so for other plain numbers than the workload's: a kernel must take
    any.
    """
    own, reference = _lifted(solution, definition, workload), _lifted(None, definition, workload)
    found = LiftedProblem(own, reference)
    if isinstance(reference, NotTraced):
        return found._replace(unequal=f"the reference is not traced: {reference}")
    if isinstance(own, NotTraced):
        return found._replace(unequal=f"the kernel is not traced: {own}")
    if broken := violations(solution):
        return found._replace(unequal=str(broken[0]))
    other = _with_other_numbers(workload)
    if other is not workload:
        own, reference = _lifted(solution, definition, other), _lifted(None, definition, other)
        for side in (own, reference):
            if isinstance(side, NotTraced):
                return found._replace(unequal=f"for other plain numbers: {side}")
    assert not isinstance(own, NotTraced)
    assert not isinstance(reference, NotTraced)
    if same_function(own.algorithm, reference.algorithm):
        return found._replace(same=True)
    return found._replace(unequal="they have different normal forms, which proves nothing")


def _lifted(
    solution: Solution | None, definition: Definition, workload: Workload
) -> LiftedLaunches | NotTraced:
    try:
        if solution is None:
            return lift_reference(definition, workload)
        return lift_solution(solution, definition, workload)
    except NotTraced as refusal:
        return refusal


def _with_other_numbers(workload: Workload) -> Workload:
    """The workload with other floating-point numbers among its inputs; itself where it has none."""
    inputs = dict[str, InputSource]()
    for name, source in workload.inputs.items():
        moved = type(source.value) is float
        value = source.value * 1.0625 + 0.03125 if moved and source.value is not None else None
        inputs[name] = source.model_copy(update={"value": value}) if moved else source
    changed = inputs != workload.inputs
    return workload.model_copy(update={"inputs": inputs}) if changed else workload
