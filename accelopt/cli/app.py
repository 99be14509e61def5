"""The subcommands of `accelopt`: each is a function in a module of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from accelopt import __version__
from accelopt.errors import AcceloptError, sentence
from accelopt.sandbox import sweep

COMMANDS = {
    "run": "accelopt.cli.run:run",
    "optimize": "accelopt.cli.optimize:optimize",
    "write": "accelopt.cli.write:write",
    "tune": "accelopt.cli.tune:tune",
    "doctor": "accelopt.cli.doctor:doctor",
    "peak": "accelopt.cli.peak:peak",
    "calibrate": "accelopt.cli.calibrate:calibrate",
    "check": "accelopt.cli.check:check",
    "explain": "accelopt.cli.explain:explain",
    "profile": "accelopt.cli.profile:profile",
    "timeline": "accelopt.cli.profile:timeline",
    "translate": "accelopt.cli.translate:translate",
    "ptx": "accelopt.cli.ptx:ptx",
    "serve": "accelopt.cli.serve:serve",
    "cache": "accelopt.cli.cache:cache",
    "report": "accelopt.cli.report:report",
    "fsm": "accelopt.cli.fsm:fsm",
}
GROUPS = {"traces": "accelopt.cli.traces:app", "db": "accelopt.cli.db:app"}

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


def command(arguments: Sequence[str] = ()) -> Callable[[], None]:
    """What the command line does, with everything that it needs imported: of the subcommands the one
    that `arguments` name, or all."""
    asked = set(arguments[:1]) & {*COMMANDS, *GROUPS} or {*COMMANDS, *GROUPS}
    for name in (name for name in COMMANDS if name in asked):
        app.command(name)(_load(COMMANDS[name]))
    for name in (name for name in GROUPS if name in asked):
        app.add_typer(_load(GROUPS[name]), name=name)
    return _call


def _call() -> None:
    for folder in (None, "/dev/shm"):  # GPU evaluations pass their outputs through memory
        sweep(folder)
    try:
        app()
    except (AcceloptError, OSError) as error:
        sys.exit(f"error: {sentence(error)}")


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
