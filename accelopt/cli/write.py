"""`accelopt write`: a kernel from a NumPy reference alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt import api
from accelopt.cli.child_process import waiting
from accelopt.cli.kernel_file import MachineOption
from accelopt.errors import ConfigError
from accelopt.evaluation import exactness_words
from accelopt.kernels.nki.kernel_from_reference import WrittenKernel
from accelopt.store import write_atomically
from accelopt.time_limits import WRITE_SECONDS

WriteSeconds = Annotated[
    float, typer.Option("--timeout", min=1, max=86400, help="seconds that all of it may take")
]


def write(
    reference: Annotated[Path, typer.Argument(help="the NumPy module with get_inputs and forward")],
    target: Annotated[
        str | None,
        typer.Option(help="trn1, trn2 or trn3; without it trn2 for nki, trn1 for neuronxcc"),
    ] = None,
    dialect: Annotated[str, typer.Option(help="nki or neuronxcc")] = "nki",
    machine: MachineOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="the kernel; by default kernel.py")
    ] = None,
    seconds: WriteSeconds = WRITE_SECONDS,
) -> None:
    """Write the fastest kernel of REFERENCE that a search finds and the referee accepts."""
    place = output or Path("kernel.py")
    if place.exists() and output is None:
        raise ConfigError(f"{place} is there already; choose a file with -o")
    with waiting(seconds) as watch:
        found = api.write(
            reference, dialect=dialect, target=target, machine=machine, seconds=seconds, watch=watch
        )
    write_atomically(place, found.source)
    typer.echo(told(found, place))


def told(found: WrittenKernel, place: Path) -> str:
    """What was written, in lines."""
    exact = exactness_words(found.verdict.exactness)
    return (
        f"{found.sentence}.\n"
        f"{found.latency_ms:.4g} ms on the simulated {found.target}; no kernel of this problem takes "
        f"less than {found.bound_ms:.4g} ms ({found.bound_ms / found.latency_ms:.0%} of bound).\n"
        f"Correct: {len(found.verdict.checks)} checks of the referee{exact and '; '}{exact}.\n"
        f"{place} has the kernel."
    )
