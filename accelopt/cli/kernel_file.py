"""A kernel's file from the command line, simulated with the arguments that its reference makes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.judging import argument_of
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.report.check import endless, stopped
from accelopt.sim import timing
from accelopt.sim.errors import KernelError

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


def as_given(text: str, kernel: Path) -> str:
    """`text` with the kernel's file named as the command line names it."""
    return text.replace(str(kernel.resolve()), str(kernel))


def simulate(kernel: Path, reference: Path, target: str, seconds: float) -> timing.KernelProfile:
    """The simulated profile of a kernel. Raises ConfigError where there can be none."""
    device = SimulatedDevice(known(target))
    existing(kernel)
    problem = Reference(existing(reference))
    inputs = problem.kernel_inputs(problem.inputs(0))
    try:
        arguments = [argument_of(value) for value in inputs]
        program = device.compile(str(kernel), arguments, seconds=seconds).program
        if said := endless(program):
            raise ConfigError(as_given(f"{kernel}: {said}", kernel))
        return timing.profile(program, TARGETS[target])
    except KernelFailure as failure:
        raise ConfigError(as_given(f"{kernel}: {stopped(failure)}", kernel)) from failure
    except KernelError as error:
        raise ConfigError(as_given(f"{kernel}: {error}", kernel)) from error
