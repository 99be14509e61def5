"""`accelopt explain`: what a kernel computes, and how it goes about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from accelopt.cli.child_process import Said, ask, said_by
from accelopt.cli.kernel_file import (
    CompilerOption,
    KernelFile,
    MachineOption,
    Seconds,
    TargetOption,
    naming,
    order,
    simulated,
)
from accelopt.cli.profile import ReferenceFile
from accelopt.report.explain_text import problem_text
from accelopt.time_limits import TRACE_SECONDS


def explain(
    kernel: KernelFile,
    reference: ReferenceFile,
    target: TargetOption = None,
    seconds: Seconds = TRACE_SECONDS,
    compiler: CompilerOption = "",
    machine: MachineOption = None,
) -> None:
    """Say what KERNEL computes, in which loops and tiles, and what limits it."""
    asked = order(kernel, reference, target, seconds, compiler, machine)
    with naming(kernel, reference):
        typer.echo(ask("accelopt.cli.explain:explain_job", asked, seconds).text, nl=False)


def explain_job(asked: Mapping[str, Any]) -> Said:
    """The work of `explain`, in a child process."""
    return said_by(lambda: Said(text=problem_text(simulated(asked))))
