"""`accelopt cache`: where reusable work lies, how much it may take, and how to clear it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from accelopt.caches import LIMIT_FILE, cache_limit, default_cache
from accelopt.errors import ConfigError
from accelopt.sandbox.scratch import Usage, remove, usage
from accelopt.store import write_atomically

GIB = 1 << 30


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="remove all of it")] = False,
    limit: Annotated[
        float | None, typer.Option(min=0, help="GiB that inputs and reference outputs may take")
    ] = None,
) -> None:
    """Say where reusable work lies and how large it is; set its limit, or clear it."""
    folder = default_cache()
    if limit is not None:
        write_atomically(folder / LIMIT_FILE, f"{int(limit * GIB)}\n")
    if clear:
        _clear(folder)
    whole = Usage(sys.maxsize, sys.maxsize)  # what goes meanwhile counts nothing
    trials, others = (usage(place, whole).bytes for place in (folder / "trials", folder))
    typer.echo(f"{folder}: {_size(others)}")
    typer.echo(
        f"  trials (inputs and reference outputs): {_size(trials)} of at most "
        f"{_size(cache_limit(folder))}"
    )
    typer.echo(f"  verdicts, rewrites, predictions: {_size(others - trials)}")


def _size(count: int) -> str:
    return f"{count / GIB:.3g} GiB" if count >= GIB else f"{count / (1 << 20):.3g} MiB"


def _clear(folder: Path) -> None:
    """Removes everything but the limit."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            if not remove(path):
                raise ConfigError(f"{path} cannot be removed; see whose it is")
        elif path.name != LIMIT_FILE:
            path.unlink(missing_ok=True)
