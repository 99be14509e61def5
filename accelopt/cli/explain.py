"""`accelopt explain`: what a kernel computes, and how it goes about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from accelopt.cli import kernel_file
from accelopt.cli.child_process import Said, ask
from accelopt.cli.solution_file import solution_of
from accelopt.errors import ConfigError
from accelopt.hardware.gpus import DEFAULT_GPU, GPUS
from accelopt.report.explain_text import problem_text, solution_text
from accelopt.time_limits import TRACE_SECONDS


def explain(
    kernel: kernel_file.KernelFile,
    reference: kernel_file.ReferenceOption = None,
    definition: kernel_file.DefinitionOption = None,
    workload: kernel_file.WorkloadOption = None,
    target: kernel_file.TargetOption = None,
    seconds: kernel_file.Seconds = TRACE_SECONDS,
    compiler: kernel_file.CompilerOption = "",
    machine: kernel_file.MachineOption = None,
) -> None:
    """Say what KERNEL computes, in which loops and tiles, and what limits it; of a Triton solution, what it
    computes, from which lines, and the least time of its problem."""
    if solution := solution_of(kernel, reference, definition, workload):
        if (name := target or DEFAULT_GPU) not in GPUS:
            raise ConfigError(f"no GPU {name!r}; there are {', '.join(GPUS)}")
        gpu = GPUS[name]
        typer.echo(solution_text(solution.lifted, solution.bound(gpu), gpu), nl=False)
        return
    if reference is None:
        raise ConfigError("--reference is needed: the NumPy module that says what to compute")
    asked = kernel_file.order(kernel, reference, target, seconds, compiler, machine)
    typer.echo(ask(explain_job, asked, seconds, kernel, reference).text, nl=False)


def explain_job(asked: Mapping[str, Any]) -> Said:
    """The work of `explain`, in a child process."""
    return Said(text=problem_text(kernel_file.simulated(asked)))
