"""`accelopt report`: what a run did, as one HTML file; several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.errors import ConfigError
from accelopt.report.page import REPORT, page
from accelopt.report.story import read_story
from accelopt.store import write_atomically


def report(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="by default report.html in the run")
    ] = None,
) -> None:
    """Write what RUNS did as one HTML file that needs no network."""
    if output is None and len(runs) > 1:
        raise ConfigError("several runs go into one page: say where with --output")
    stories = [read_story(run) for run in runs]
    place = output or runs[0] / REPORT
    write_atomically(place, page(stories))
    typer.echo(f"{place}: open it in a browser")
