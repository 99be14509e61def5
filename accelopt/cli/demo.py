"""`accelopt demo`: a first improvement, on a small kernel that comes along."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from accelopt.api import DEFAULTS, ROUNDS, base_folder, optimize_kernel, own_kernel
from accelopt.cli.optimize import show
from accelopt.store import write_atomically


def demo(
    out: Annotated[Path, typer.Option(help="the folder that takes the kernel and its run")] = Path(
        "accelopt_demo"
    ),
) -> None:
    """Make a small kernel faster, by rule: a few seconds, no model, no device."""
    kernel, reference = out / "kernel.py", out / "reference.py"
    for path in (kernel, reference):
        if not path.exists():
            write_atomically(path, (base_folder() / "templates" / "demo" / path.name).read_bytes())
    files = [str(kernel), "--reference", str(reference)]
    made = ["accelopt", "optimize", *files, "--out", str(out / "run")]
    typer.echo(f"{kernel} computes what {reference} says. This is\n  {shlex.join(made)}", err=True)
    optimize_kernel(
        kernel,
        own_kernel(kernel, reference),
        DEFAULTS.with_rounds(ROUNDS),
        out / "run",
        resume=(out / "run" / "journal.jsonl").exists(),
        told=lambda outcomes: show(outcomes, out / "run", made),
    )
    said = "\n  ".join(f"{shlex.join(['accelopt', name, *files])}" for name in ("profile", "check"))
    typer.echo(f"Next, here and on a kernel of your own:\n  {said}")
