"""`accelopt export`: a kernel as a custom operation of PyTorch or JAX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from accelopt.cli.child_process import Said, ask, said_by
from accelopt.cli.kernel_file import KernelFile, Seconds, TargetOption, naming, order
from accelopt.cli.profile import ReferenceFile
from accelopt.errors import ConfigError
from accelopt.kernels.nki.framework_export import Framework, files_of, operation_of
from accelopt.store import write_atomically
from accelopt.time_limits import TRACE_SECONDS


def export(
    kernel: KernelFile,
    reference: ReferenceFile,
    torch: Annotated[bool, typer.Option("--torch", help="for PyTorch")] = False,
    jax: Annotated[bool, typer.Option("--jax", help="for JAX")] = False,
    name: Annotated[
        str, typer.Option(help="of the operation", show_default="the kernel file's")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the folder", show_default="NAME_op")
    ] = None,
    target: TargetOption = None,
    seconds: Seconds = TRACE_SECONDS,
) -> None:
    """Write KERNEL as a custom operation of PyTorch or JAX, with a test of it."""
    if not (torch or jax):
        raise ConfigError("say --torch or --jax, or both")
    called = name or kernel.stem
    if not called.isidentifier():
        raise ConfigError(
            f"--name {called}: the operation is a function, and this is no name of one"
        )
    folder = out or Path(f"{called}_op")
    frameworks = [word for word, asked in (("torch", torch), ("jax", jax)) if asked]
    asked = {
        **order(kernel, reference, target, seconds),
        "name": called, "frameworks": frameworks, "folder": str(folder.absolute()),
    }  # fmt: skip
    with naming(kernel, reference):
        ask("accelopt.cli.export:export_job", asked, seconds)
    for framework in frameworks:
        typer.echo(f"{folder}/{called}_{framework}.py: from {called}_{framework} import {called}")
        test = f"{folder}/test_{called}_{framework}.py"
        typer.echo(f"{test}: python -m pytest here, accelopt python -m pytest for the kernel too")


def export_job(asked: Mapping[str, Any]) -> Said:
    """The work of `export`, in a child process."""

    def work() -> Said:
        kernel, reference = Path(asked["kernel"]), Path(asked["reference"])
        made = operation_of(kernel, reference, asked["name"], asked["target"], asked["seconds"])
        for framework in asked["frameworks"]:
            for name, text in files_of(made, cast(Framework, framework), kernel, reference).items():
                write_atomically(Path(asked["folder"], name), text)
        return Said()

    return said_by(work)
