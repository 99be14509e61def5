"""A kernel's file from the command line, simulated with the arguments that its reference makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from accelopt.devices import TARGETS, Argument, KernelFailure, TensorArgument
from accelopt.devices.simulated import SimulatedDevice
from accelopt.errors import ConfigError
from accelopt.referee.reference import Reference
from accelopt.sim import timing
from accelopt.sim.spec import SPECS


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


def simulate(kernel: Path, reference: Path, target: str) -> timing.KernelProfile:
    """The simulated profile of a kernel. Raises ConfigError where there can be none."""
    problem = Reference(existing(reference))
    arguments = [_argument(value) for value in problem.kernel_inputs(problem.inputs(0))]
    try:
        executable = SimulatedDevice(known(target)).compile(str(existing(kernel)), arguments)
    except KernelFailure as failure:
        raise ConfigError(f"{kernel}: {failure.message}") from failure
    return timing.profile(executable.program, SPECS[target])


def _argument(value: object) -> Argument:
    if isinstance(value, np.ndarray) and value.ndim:
        return TensorArgument(value.shape, value.dtype.name)
    return value.item() if isinstance(value, (np.ndarray, np.generic)) else value  # type: ignore[return-value]
