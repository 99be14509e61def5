"""A Triton solution from the command line, with its definition and workload or its PyTorch module."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.hardware.gpus import GPU
from accelopt.kernels.gpu.bench.files.tracefiles import Solution, SourceFile
from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.kernels.gpu.cases import COMPILED, ProblemFiles
from accelopt.kernels.gpu.problems import is_torch_problem
from accelopt.kernels.triton.lift.problem import LiftedProblem, lifted_problem, problem_bound

TRITON = re.compile(r"^\s*(import|from)\s+triton\b", re.MULTILINE)


class GivenSolution(NamedTuple):
    """A solution on its problem, and what tracing both found."""

    problem: ProblemFiles
    solution: Solution
    lifted: LiftedProblem

    def bound(self, target: GPU) -> Bound:
        """The least time of the problem."""
        workload = self.problem.workload.workload
        return problem_bound(self.lifted.algorithm, self.problem.definition, workload, target)


def solution_of(
    kernel: Path, reference: Path | None, definition: Path | None, workload: Path | None
) -> GivenSolution | None:
    """The Triton solution that a command is about; None where it is about a kernel with a NumPy
    reference. Raises ConfigError."""
    torch = reference is not None and reference.is_file() and is_torch_problem(reference)
    if definition is None and workload is None and not torch:
        if kernel.is_file() and TRITON.search(kernel.read_text(encoding="utf-8", errors="replace")):
            raise ConfigError(
                f"{kernel} is a Triton kernel: it needs --definition and --workload, or a PyTorch module "
                "(Model, get_inputs, get_init_inputs) as --reference"
            )
        return None
    from accelopt.api import (
        starting_case,
    )  # and with it all searches, which most kernels do without

    with tempfile.TemporaryDirectory() as folder:
        case = starting_case(kernel, reference, definition, workload, Path(folder))
        files = ProblemFiles(case.values)
        solution = files.template
    if solution.spec.language in COMPILED:
        raise ConfigError(
            f"{kernel} is a {solution.spec.language} solution, which is not read: `accelopt optimize` "
            "has hints and knobs for it"
        )
    if kernel.suffix == ".py" and kernel.stem.isidentifier():  # lines are told of the user's file
        entry = f"{kernel.name}::{solution.spec.entry_point.rpartition('::')[2]}"
        spec = solution.spec.model_copy(update={"entry_point": entry})
        sources = [SourceFile(path=kernel.name, content=solution.main_source)]
        named = {"name": kernel.stem, "sources": sources, "spec": spec}
        solution = solution.model_copy(update=named)
    found = lifted_problem(solution, files.definition, files.workload.workload)
    return GivenSolution(files, solution, found)
