"""`accelopt db`: what all runs have found, in one database."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from accelopt.errors import ConfigError
from accelopt.report.console import output

if TYPE_CHECKING:
    from accelopt.database.connection import Database

DATABASE = Annotated[
    str, typer.Option("--database", metavar="URL", help="a SQLite file, or postgresql://...")
]
FILE = "kernels.sqlite"
app = typer.Typer(help="What all runs have found, in one database.", no_args_is_help=True)


@app.command("import")
def import_(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs, ended or not")],
    database: DATABASE = FILE,
) -> None:
    """Put into the database what RUNS found; what is there already is not put there twice."""
    from accelopt.database.connection import Database
    from accelopt.database.run_rows import keep_run

    journals = [run / "journal.jsonl" if run.is_dir() else run for run in runs]
    for journal in journals:
        if not journal.is_file():
            raise ConfigError(f"{journal} is not the journal of a run")
    opened = Database(database)
    for journal in journals:
        number = keep_run(journal, opened)
        output().print(f"{journal.parent}: {number} kernels")


@app.command()
def best(
    problem: Annotated[str, typer.Argument(help="the name of a problem or of a case")],
    database: DATABASE = FILE,
    target: Annotated[str, typer.Option(help="trn1, trn2, ... ; all of them by default")] = "",
    limit: Annotated[int, typer.Option(min=1, help="kernels of each case and target")] = 5,
    out: Annotated[Path | None, typer.Option(help="write the fastest one's source there")] = None,
) -> None:
    """List the fastest correct kernels of PROBLEM."""
    opened = _existing(database)
    from accelopt.database import queries
    from accelopt.store import write_atomically

    found = queries.best(opened, problem, target, limit)
    if not found:
        where = f" for {target}" if target else ""
        raise ConfigError(f"{opened.name} knows no correct kernel of {problem!r}{where}")
    table = Table(box=None)
    for column in ("kernel", "case", "target", "ms", ""):
        table.add_column(column, justify="right" if column == "ms" else "left")
    for one in found:
        kind = "simulated" if one.simulated else "measured"
        table.add_row(one.key[:12], one.case_name, one.target, f"{one.latency_ms:.4g}", kind)
    output().print(table)
    if out is not None:
        write_atomically(out, found[0].source)
        output().print(f"{found[0].key[:12]} is in {out}.")


@app.command()
def lineage(
    kernel: Annotated[str, typer.Argument(help="a kernel's key, or its first letters")],
    database: DATABASE = FILE,
) -> None:
    """Tell how KERNEL came about, step by step from the start."""
    opened = _existing(database)
    from accelopt.database import queries

    for step in queries.lineage(opened, kernel):
        time = f"{step.latency_ms:.4g} ms" if step.latency_ms is not None else step.status
        output().print(f"{step.key[:12]}  {time:>12}  {step.method}", highlight=False)
        output().print(f"              {step.sentence}", highlight=False, markup=False)


@app.command()
def methods(database: DATABASE = FILE, target: str = "") -> None:
    """List what each method brought, by the resource that limited the kernel before."""
    opened = _existing(database)
    from accelopt.database import queries

    table = Table(box=None)
    for column in ("limited by", "method", "tried", "correct", "speedup"):
        table.add_column(column, justify="left" if column in ("limited by", "method") else "right")
    for one in queries.reliefs(opened, target):
        gain = f"{math.exp(one.gain):.3f}" if one.correct else ""
        table.add_row(
            one.bottleneck or "not known", one.method, str(one.tried), str(one.correct), gain
        )
    output().print(table)


@app.command()
def export(
    to: Annotated[Path, typer.Argument(help="a .parquet or .csv file, or a folder for traces")],
    database: DATABASE = FILE,
) -> None:
    """Write every verdict to a table, or the Triton solutions to a folder of FlashInfer traces."""
    opened = _existing(database)
    from accelopt.database.export import export_to

    output().print(f"{export_to(to, opened)} in {to}.")


def _existing(database: str) -> Database:
    """The database, opened before anything else of its room is imported: that says in a sentence what
    is not installed."""
    from accelopt.database.connection import existing

    return existing(database)
