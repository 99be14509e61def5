"""`accelopt check`: every rule that a kernel breaks, its memory, and its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.cli.kernel_file import KernelFile, Seconds, Target, existing, known
from accelopt.kernels.nki.devices.simulated import TRACE_SECONDS
from accelopt.kernels.nki.referee.precision import formats_of
from accelopt.report.check import check as examine
from accelopt.report.check import check_text
from accelopt.report.simulation import as_given


def check(
    kernel: KernelFile,
    reference: Annotated[
        Path | None, typer.Option(help="NumPy module that says what the kernel computes")
    ] = None,
    target: Target = "trn1",
    precision: Annotated[
        str, typer.Option(help="formats allowed below the inputs' own, such as bfloat16")
    ] = "float32",
    seconds: Seconds = TRACE_SECONDS,
) -> None:
    """Trace KERNEL, report every violated rule, and compare it with REFERENCE."""
    judge = existing(reference) if reference else None
    allowed = formats_of(precision)
    report = examine(existing(kernel), judge, known(target), precision=allowed, seconds=seconds)
    typer.echo(as_given(check_text(report), kernel), nl=False)
    if not report.passed:
        raise typer.Exit(1)
