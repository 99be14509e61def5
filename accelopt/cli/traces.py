"""`accelopt traces`: what stands in FlashInfer-Trace folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.report.trace_comparison import (
    PACKAGE_TIMER,
    REFERENCE,
    as_csv,
    as_svg,
    as_text,
    compare,
)
from accelopt.store import write_atomically

app = typer.Typer(help="FlashInfer-Trace folders.", no_args_is_help=True)


@app.callback()
def _traces() -> None:
    """FlashInfer-Trace folders."""


@app.command("compare")
def compare_command(
    folders: Annotated[list[Path], typer.Argument(help="folders with a folder `traces`")],
    baseline: Annotated[
        str, typer.Option(help="`reference`, or a pattern for solution names")
    ] = REFERENCE,
    timer: Annotated[str, typer.Option(help="package or launch-free")] = PACKAGE_TIMER,
    hardware: Annotated[str | None, typer.Option(help="only traces of this device")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="write the lines here")] = None,
    plot: Annotated[Path | None, typer.Option(help="write a bar chart (SVG) here")] = None,
) -> None:
    """Latency and speedup of every solution on every workload, with geometric means."""
    comparison = compare(folders, baseline=baseline, timer=timer, hardware=hardware)
    typer.echo(as_text(comparison), nl=False)
    if csv_file is not None:
        write_atomically(csv_file, as_csv(comparison))
    if plot is not None:
        write_atomically(plot, as_svg(comparison))
