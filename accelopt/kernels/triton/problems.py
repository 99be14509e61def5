"""Problems for Triton kernels, whatever file they are written in."""

from __future__ import annotations

from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.evaluation import Case
from accelopt.kernels.triton.language import case_of


def is_torch_problem(path: Path) -> bool:
    """Whether a Python file is a KernelBench-style problem: it defines a class `Model`."""
    return False


def case_of_problem(problem: Path, kernel: Path, workload: Path | None) -> Case:
    """The case of a Triton kernel. Raises ConfigError."""
    if workload is None:
        raise ConfigError("a FlashInfer-Bench definition needs the option workload")
    return case_of(problem.resolve(), kernel.resolve(), workload.resolve())
