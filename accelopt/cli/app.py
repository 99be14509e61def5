"""The subcommands of `accelopt`: each is a function in a module of its own."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from accelopt import __version__
from accelopt.errors import AcceloptError, sentence
from accelopt.sandbox import sweep

COMMANDS = {
    "demo": "accelopt.cli.demo:demo",
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
    "export": "accelopt.cli.export:export",
    "compare": "accelopt.cli.compare:compare",
    "translate": "accelopt.cli.translate:translate",
    "python": "accelopt.cli.python:python",
    "ptx": "accelopt.cli.ptx:ptx",
    "serve": "accelopt.cli.serve:serve",
    "cache": "accelopt.cli.cache:cache",
    "report": "accelopt.cli.report:report",
    "fsm": "accelopt.cli.fsm:fsm",
}
SETTINGS = {"python": {"ignore_unknown_options": True, "allow_interspersed_args": False}}
"""Of commands that hand the words after their own to somebody else."""
GROUPS = {"db": "accelopt.cli.db:app"}

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


def command(arguments: Sequence[str] | None = None) -> Callable[[], None]:
    """What the command line does, with everything that it needs imported: the subcommand that
    `arguments` name; of all others where they name none, their summaries; without `arguments`, all."""
    for table, add in ((COMMANDS, _add_command), (GROUPS, _add_group)):
        for name, place in table.items():
            if arguments is None or name in arguments[:1]:
                add(name, _load(place))
            elif not {*COMMANDS, *GROUPS} & {*arguments[:1]}:
                app.command(name, help=_summary(place))(_named_alone)
    return _call


class _Command(TyperCommand):
    """A subcommand that says which option a file too many belongs to."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises UsageError."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            takes = any("--reference" in parameter.opts for parameter in self.params)
            if takes and "extra argument" in (said := str(getattr(error, "message", ""))):
                error.message = f"{said}. The reference is an option: --reference FILE"  # type: ignore[attr-defined]
            raise


def _add_command(name: str, function: Any) -> None:
    app.command(name, cls=_Command, context_settings=SETTINGS.get(name))(function)


def _add_group(name: str, group: Any) -> None:
    app.add_typer(group, name=name)


def _named_alone() -> None:
    """Stands for a subcommand that was not asked for."""


def _summary(place: str) -> str:
    """The first paragraph of a subcommand's docstring, or a group's `help`, read and not imported."""
    module, _, name = place.partition(":")
    found = find_spec(module)
    assert found is not None and found.origin is not None
    for node in ast.parse(Path(found.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=function) if function == name:
                return (ast.get_docstring(node) or "").partition("\n\n")[0]
            case ast.Assign([ast.Name(id=group)], ast.Call(keywords=words)) if group == name:
                return str(next(ast.literal_eval(one.value) for one in words if one.arg == "help"))
    raise AssertionError(f"{place} has no summary")


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
