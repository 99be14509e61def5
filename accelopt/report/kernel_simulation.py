"""A kernel's file simulated with the arguments that its reference makes; traced in a confined child."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS, Hardware
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices import KernelArgument, KernelFailure
from accelopt.kernels.nki.devices.simulated import SimulatedDevice, tensors_of
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.report.rule_check import stopped
from accelopt.sandbox.progress import note
from accelopt.sim import timing
from accelopt.sim.compute.trips import counted
from accelopt.sim.errors import KernelError


class Simulation(NamedTuple):
    """A kernel's simulated profile, and the arguments that it was traced with."""

    profile: timing.KernelProfile
    arguments: tuple[KernelArgument, ...]


def simulate(
    kernel: Path,
    reference: Path,
    target: str,
    seconds: float,
    compiler: str = "",
    core: Hardware | None = None,
) -> Simulation:
    """The simulated profile of a kernel on a target of the table of hardware, or a `core` of that
    generation, with the front end of a version, by default that of its dialect.

    Raises ConfigError where there can be none.
    """
    note("reading the reference")
    device = SimulatedDevice(target)
    problem = Reference(reference)
    inputs = problem.kernel_inputs(problem.inputs(0))
    try:
        arguments = tuple(argument_of(value) for value in inputs)
        note("tracing and timing the kernel")
        program = device.compile(str(kernel), arguments, seconds=seconds).program
        core = core or TARGETS[target]
        built = timing.Compiler.for_program(program, core, compiler)
        found = timing.profile(counted(program, tensors_of(inputs)), core, built)
        return Simulation(found, arguments)
    except KernelFailure as failure:
        raise ConfigError(as_given(f"{kernel}: {stopped(failure)}", kernel)) from failure
    except KernelError as error:
        raise ConfigError(as_given(f"{kernel}: {error}", kernel)) from error


def as_given(text: str, kernel: Path) -> str:
    """`text` with the kernel's file named as the command line names it."""
    return text.replace(str(kernel.resolve()), str(kernel))
