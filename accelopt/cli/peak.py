"""`accelopt peak`: percent of the bound, per problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from accelopt.errors import AcceloptError, ConfigError
from accelopt.kernels.measurement import geometric_mean
from accelopt.report.console import output
from accelopt.report.result_table import names_of
from accelopt.stages.roofline_standings import Standing, standings, write_standings


def peak(
    profiles: Annotated[
        Path | None,
        typer.Argument(
            help="a profile_results.csv; by default what was measured on trn1 for the published "
            "baselines of NKIBench"
        ),
    ] = None,
    best: Annotated[
        Path | None, typer.Option(help="what was reached: a table of case_name and best_speedup")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="also write the headroom table here")] = None,
) -> None:
    """Show how near each problem's kernel is to what no kernel of it can beat, before and now."""
    rows = standings(profiles, best)
    if not rows:
        raise ConfigError(
            f"{profiles or 'the table'} holds no profile of a kernel whose file, and its reference's, are there"
        )
    output().print(peak_table(rows))
    if out is not None:
        write_standings(out, rows)
    impossible = [row.case_name for row in rows if not row.possible]
    if impossible:
        raise AcceloptError(f"faster than physics, do not believe it: {', '.join(impossible)}")


def peak_table(rows: list[Standing]) -> Table:
    """The standings with their geometric means."""
    table = Table(
        title="Percent of bound", box=box.SIMPLE_HEAD, title_justify="left", collapse_padding=True
    )
    names = names_of({row.case_name: row.problem for row in rows})
    table.add_column("problem", overflow="fold")
    table.add_column("bound", no_wrap=True)
    for name in ("bound ms", "baseline ms", "before", "now", "speedup"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            names[row.case_name],
            row.bound_key,
            f"{row.theoretical_peak_latency:.3f}",
            f"{row.baseline_latency:.3f}",
            f"{row.baseline_percentage:.1%}",
            f"{row.achieved_percentage:.1%}",
            f"{row.best_speedup:.2f}x",
        )
    table.add_section()
    means = [
        geometric_mean([getattr(row, name) for row in rows])
        for name in ("baseline_percentage", "achieved_percentage", "best_speedup")
    ]
    before, now, speedup = means
    table.add_row("geometric mean", "", "", "", f"{before:.1%}", f"{now:.1%}", f"{speedup:.2f}x")
    return table
