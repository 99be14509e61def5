"""The `accelopt` command. Each subcommand is a function in a module of its own."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from accelopt.errors import AcceloptError

COMMANDS = {
    "run": "accelopt.cli.run:run",
    "optimize": "accelopt.cli.optimize:optimize",
    "peak": "accelopt.cli.peak:peak",
}

app = typer.Typer(
    help="Makes kernels for AI accelerators faster, by itself.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point: what the user can mend ends in one sentence and exit status 1."""
    for name, place in COMMANDS.items():
        module, _, function = place.partition(":")
        app.command(name)(getattr(import_module(module), function))
    try:
        app()
    except AcceloptError as error:
        sys.exit(f"error: {error}")
