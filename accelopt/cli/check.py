"""`accelopt check`: every rule that a kernel breaks, its memory, and its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.cli.kernel_file import existing, known
from accelopt.report.check import check as examine
from accelopt.report.check import check_text


def check(
    kernel: Annotated[Path, typer.Argument(help="the kernel's file")],
    reference: Annotated[
        Path | None, typer.Option(help="NumPy module that says what the kernel computes")
    ] = None,
    target: Annotated[str, typer.Option(help="trn1 or trn2")] = "trn1",
) -> None:
    """Trace KERNEL, report every violated rule, and compare it with REFERENCE."""
    report = examine(existing(kernel), existing(reference) if reference else None, known(target))
    typer.echo(check_text(report))
    if not report.passed:
        raise typer.Exit(1)
