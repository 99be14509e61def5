"""`accelopt export`: a kernel as a custom operation of PyTorch or JAX, or what it took on a real core as a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from accelopt.cli import kernel_file
from accelopt.cli.child_process import Said, ask
from accelopt.cli.compare import target_of
from accelopt.cli.profile import ReferenceFile
from accelopt.errors import ConfigError
from accelopt.kernels.nki.default_target import dialect_of_file
from accelopt.kernels.nki.devices.measured_profile import read_profile
from accelopt.kernels.nki.framework_export import Framework, files_of, operation_of
from accelopt.measured import PUBLIC, add_row
from accelopt.report.profile_comparison import another_kernel
from accelopt.sim.dtypes import name_of
from accelopt.store import write_atomically
from accelopt.time_limits import TRACE_SECONDS


def export(
    kernel: kernel_file.KernelFile,
    reference: ReferenceFile,
    torch: Annotated[bool, typer.Option("--torch", help="for PyTorch")] = False,
    jax: Annotated[bool, typer.Option("--jax", help="for JAX")] = False,
    name: Annotated[
        str, typer.Option(help="of the operation", show_default="the kernel file's")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the folder", show_default="NAME_op")
    ] = None,
    target: kernel_file.TargetOption = None,
    seconds: kernel_file.Seconds = TRACE_SECONDS,
    measured: Annotated[
        Path | None,
        typer.Option(help="a profile of a real core: a row for accelopt/measured, added to --out"),
    ] = None,
) -> None:
    """Write KERNEL as a custom operation of PyTorch or JAX, with a test of it, or what it took on a core."""
    called = name or kernel.stem
    if measured is not None:
        if torch or jax:
            raise ConfigError(
                "--measured writes a row, --torch and --jax an operation: one at a time"
            )
        table = out or Path(f"{called}.csv")
        of = target_of(measured, target, seconds)
        asked = {**kernel_file.order(kernel, reference, of, seconds), "measured": str(measured.absolute()),
                 "set": called, "path": str(kernel)}  # fmt: skip
        row = json.loads(ask(row_job, asked, seconds, kernel, reference).text)
        try:
            add_row(table, PUBLIC, row)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{table}: {error}") from error
        typer.echo(f"{table}: {row['measured_us']} us; fill in repository, commit and SDK")
        return
    if not (torch or jax):
        raise ConfigError("say --torch or --jax, or both, or --measured")
    if not called.isidentifier():
        raise ConfigError(
            f"--name {called}: the operation is a function, and this is no name of one"
        )
    folder = out or Path(f"{called}_op")
    frameworks = [word for word, asked in (("torch", torch), ("jax", jax)) if asked]
    asked = {
        **kernel_file.order(kernel, reference, target, seconds),
        "name": called, "frameworks": frameworks, "folder": str(folder.absolute()),
    }  # fmt: skip
    ask(export_job, asked, seconds, kernel, reference)
    for framework in frameworks:
        typer.echo(f"{folder}/{called}_{framework}.py: from {called}_{framework} import {called}")
        test = f"{folder}/test_{called}_{framework}.py"
        typer.echo(f"{test}: python -m pytest here, accelopt python -m pytest for the kernel too")


TAGS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""Formats as the rows of `measured/` name them."""


def row_job(asked: Mapping[str, Any]) -> Said:
    """What a profile says of a kernel, as a row of `measured/trn2_public.csv`, in JSON."""
    profile, found = read_profile(Path(asked["measured"])), kernel_file.simulated(asked)
    if other := another_kernel(found, profile):
        raise ConfigError(f"{asked['measured']} is not of {asked['path']} as it is here: {other}")
    program, moved = (
        found.run.program,
        [profile.summary.get(f"hbm_{way}_bytes") for way in ("read", "write")],
    )
    given = [
        f"{TAGS.get(str(t.dtype), name_of(t.dtype))}[{','.join(map(str, t.shape))}]"
        for t in program.arguments
    ]
    busy = {
        key: profile.busy_ns(engine) for key, engine in (("te_busy", "tensor"), ("dma_busy", "dma"))
    }
    row = {
        "set": asked["set"], "kernel_path": asked["path"], "kernel": program.name,
        "dialect": dialect_of_file(Path(asked["kernel"])), "arguments": json.dumps([given]),
        "cores": found.run.stream.cores, "measured_us": round(profile.latency_ms * 1e3, 2),
        "measured_how": f"{profile.form} of {profile.instance or program.target}, one capture",
        **{key: round(ns / profile.latency_ms * 1e-6, 4) for key, ns in busy.items() if ns},
        "bytes": None if None in moved else round(sum(map(float, filter(None, moved)))),
    }  # fmt: skip
    return Said(text=json.dumps(row))


def export_job(asked: Mapping[str, Any]) -> Said:
    """The work of `export`, in a child process."""
    kernel, reference = Path(asked["kernel"]), Path(asked["reference"])
    made = operation_of(kernel, reference, asked["name"], asked["target"], asked["seconds"])
    for framework in asked["frameworks"]:
        for name, text in files_of(made, cast(Framework, framework), kernel, reference).items():
            write_atomically(Path(asked["folder"], name), text)
    return Said()
