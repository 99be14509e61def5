"""The `accelopt` command. Each subcommand is a function in a module of its own."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from accelopt import __version__
from accelopt.errors import AcceloptError, about_file

COMMANDS = {
    "run": "accelopt.cli.run:run",
    "optimize": "accelopt.cli.optimize:optimize",
    "peak": "accelopt.cli.peak:peak",
    "check": "accelopt.cli.check:check",
    "profile": "accelopt.cli.profile:profile",
    "timeline": "accelopt.cli.profile:timeline",
    "cache": "accelopt.cli.cache:cache",
    "report": "accelopt.cli.report:report",
}
GROUPS = {"traces": "accelopt.report.traces:app"}

app = typer.Typer(
    help="Makes kernels for AI accelerators faster, by itself.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"accelopt {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="say which, and end"),
    ] = False,
) -> None:
    """Makes kernels for AI accelerators faster, by itself."""


def main() -> None:
    """Entry point: what the user can mend ends in one sentence and exit status 1."""
    for name, place in COMMANDS.items():
        app.command(name)(_load(place))
    for name, place in GROUPS.items():
        app.add_typer(_load(place), name=name)
    try:
        app()
    except AcceloptError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.filename is None:  # not about a file that somebody named
            raise
        sys.exit(f"error: {about_file(error)}")


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
