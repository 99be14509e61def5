"""A kernel's file from the command line, simulated with the arguments that its reference makes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.report.simulation import simulate
from accelopt.sim import timing

KernelFile = Annotated[Path, typer.Argument(help="the kernel's file")]
Target = Annotated[str, typer.Option(help="trn1 or trn2")]
Seconds = Annotated[
    float,
    typer.Option("--timeout", min=1, max=86400, help="seconds that tracing the kernel may take"),
]


def existing(path: Path) -> Path:
    """`path`. Raises ConfigError when it is not a file."""
    if not path.is_file():
        raise ConfigError(f"{path} is not a file")
    return path


def known(target: str) -> str:
    """`target`. Raises ConfigError when there is no such generation."""
    if target not in TARGETS:
        raise ConfigError(f"no target {target!r}; there are {', '.join(TARGETS)}")
    return target


def simulated(kernel: Path, reference: Path, target: str, seconds: float) -> timing.KernelProfile:
    """The simulated profile of a kernel. Raises ConfigError where there can be none."""
    return simulate(existing(kernel), existing(reference), known(target), seconds)
