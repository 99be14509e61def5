"""`accelopt explain`: what a kernel computes, and how it goes about it."""

from __future__ import annotations

import typer

from accelopt.cli.kernel_file import KernelFile, Seconds, Target, simulated
from accelopt.cli.profile import ReferenceFile
from accelopt.kernels.nki.devices.simulated import TRACE_SECONDS
from accelopt.report.problem import problem_text


def explain(
    kernel: KernelFile,
    reference: ReferenceFile,
    target: Target = "trn1",
    seconds: Seconds = TRACE_SECONDS,
) -> None:
    """Say what KERNEL computes, in which loops and tiles, and what limits it."""
    typer.echo(problem_text(simulated(kernel, reference, target, seconds)), nl=False)
