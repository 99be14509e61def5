"""`accelopt check`: every rule that a kernel breaks, its memory, and its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt.cli import kernel_file
from accelopt.cli.child_process import Said, ask
from accelopt.cli.solution_file import solution_of
from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.kernels.nki.referee.precision import formats_of
from accelopt.report.console import output
from accelopt.report.explain_text import solution_check_text
from accelopt.report.rule_check import check as examine
from accelopt.report.rule_check import check_text
from accelopt.time_limits import TRACE_SECONDS


def check(
    kernel: kernel_file.KernelFile,
    reference: kernel_file.ReferenceOption = None,
    definition: kernel_file.DefinitionOption = None,
    workload: kernel_file.WorkloadOption = None,
    target: kernel_file.TargetOption = None,
    precision: Annotated[
        str, typer.Option(help="formats allowed below the inputs' own, such as bfloat16")
    ] = "float32",
    rel_tol: kernel_file.RelTol = None,
    seconds: kernel_file.Seconds = TRACE_SECONDS,
    nki: kernel_file.NkiVersion = "",
) -> None:
    """Trace KERNEL, report every violated rule, and judge it by REFERENCE as a search does; a Triton solution
    is compared with its definition in real numbers, and not run."""
    if given := solution_of(kernel, reference, definition, workload):
        typer.echo(solution_check_text(given.solution, given.lifted), nl=False)
        if violations(given.solution):
            raise typer.Exit(1)
        return
    asked = {
        **kernel_file.order(kernel, reference, target, seconds),
        "precision": formats_of(precision),
        "rel_tol": rel_tol,
        "version": kernel_file.known_version(nki),
        "columns": output().width,
    }
    said = ask(check_job, asked, seconds, kernel, reference)
    typer.echo(kernel_file.named(said.text, kernel, reference), nl=False)
    if not said.passed:
        raise typer.Exit(1)


def check_job(asked: Mapping[str, Any]) -> Said:
    """The work of `check`, in a child process."""
    report = examine(
        Path(asked["kernel"]),
        Path(asked["reference"]) if asked["reference"] else None,
        asked["target"],
        rel_tol=asked["rel_tol"],
        precision=asked["precision"],
        seconds=asked["seconds"],
        version=asked["version"],
    )
    return Said(text=check_text(report, asked["columns"]), passed=report.passed)
