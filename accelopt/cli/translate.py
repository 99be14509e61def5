"""`accelopt translate`: a kernel of an older SDK in the NKI of today."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt import api
from accelopt.cli.child_process import waiting
from accelopt.cli.kernel_file import KernelFile, MachineOption
from accelopt.cli.profile import ReferenceFile
from accelopt.cli.write import WriteSeconds, told
from accelopt.errors import ConfigError
from accelopt.store import write_atomically
from accelopt.time_limits import WRITE_SECONDS


def translate(
    kernel: KernelFile,
    reference: ReferenceFile,
    to: Annotated[str, typer.Option(help="nki, the dialect of today's SDK")] = "nki",
    target: Annotated[str | None, typer.Option(help="trn2 or trn3; without it trn2")] = None,
    machine: MachineOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="the translation; by default KERNEL_nki.py"),
    ] = None,
    seconds: WriteSeconds = WRITE_SECONDS,
) -> None:
    """Write KERNEL in today's NKI, by the fastest schedule that a search finds and the referee accepts."""
    if to != "nki":
        raise ConfigError(
            f"--to {to}: kernels are translated to nki; `accelopt write` writes one for an older SDK"
        )
    place = output or kernel.with_name(f"{kernel.stem}_{to}.py")
    with waiting(seconds) as watch:
        found = api.translate(
            kernel, reference, target=target, machine=machine, seconds=seconds, watch=watch
        )
    write_atomically(place, found.source)
    typer.echo(told(found, place))
