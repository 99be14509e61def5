"""Whether a kernel is its reference in real numbers: both have one normal form."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accelopt.algorithm.equality import difference
from accelopt.algorithm.reference_trace import trace_reference
from accelopt.algorithm.traced_array import NotTraced
from accelopt.evaluation import Row
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.devices.simulated import TRACING, SimulatedDevice
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.rescheduling.lifted_reference import with_numbers
from accelopt.kernels.nki.rescheduling.scalar_arguments import FIRST, stand_in
from accelopt.sandbox.workers import Call, Fault, perform
from accelopt.store import read_text
from accelopt.time_limits import SAME_SECONDS

SAME_BYTES = 4 << 30
"""Memory of the process that compares."""


FAR = (2.0**-9 + 2.0**-13, 2.0**9 + 2.0**5)
"""Times what `get_inputs` draws: a kernel may take one plain number otherwise than another."""
DIFFER = "kernel | reference: "


class Same(Row):
    """The answer of `same_job`; `why` says what keeps it from being known."""

    same: bool
    why: str = ""


def compared(
    kernel: Path, reference: Path, target: str, version: str, seconds: float = SAME_SECONDS
) -> Same | Fault:
    """Whether they are, found out in a process of its own within so many seconds; else why that is not
    known."""
    payload = {"kernel": str(kernel), "reference": str(reference)}
    payload |= {"target": target, "version": version}
    call = Call(f"{__name__}:same_job", payload, seconds, SAME_BYTES, warm=(__name__, *TRACING))
    return perform(call, Same)


def same_job(payload: Mapping[str, Any]) -> Same:
    """The work of `compared`."""
    device = SimulatedDevice(payload["target"], version=payload["version"])
    problem = Reference(Path(payload["reference"]))
    return same_in_real_numbers(Path(payload["kernel"]), problem, device)


def same_in_real_numbers(kernel: Path, problem: Reference, device: SimulatedDevice) -> Same:
    """Whether kernel and reference are one function of real numbers. Not known where one of them has no
    Algorithm, or both have others. Plain numbers among the inputs are other ones than those that
    `get_inputs` draws, for a kernel must take any: near those, and far smaller and larger where the kernel takes
    such."""
    inputs = problem.inputs(0)
    plain = [v for v in inputs if not isinstance(v, np.ndarray)]
    if any(type(v) not in (int, float) for v in plain):
        return Same(same=False, why="an input is neither an array nor a plain number")
    floats = {n: stand_in(v, n, FIRST) for n, v in enumerate(plain) if type(v) is float}
    others = {n: v + 1 for n, v in enumerate(plain) if type(v) is int}
    # A kernel may assert the integers that it is for; then it takes no others.
    given = {n: plain[n] for n in others}
    try:
        near = _compared(kernel, problem, device, {**floats, **others})
    except KernelFailure as error:
        if not others:
            return Same(same=False, why=f"with other numbers the kernel fails: {error}")
        others = given
        try:
            near = _compared(kernel, problem, device, {**floats, **others})
        except KernelFailure as error:
            return Same(same=False, why=f"with other numbers the kernel fails: {error}")
    for factor in FAR if near.same and floats else ():
        far = {n: stand_in(plain[n] * factor or factor, n, FIRST) for n in floats}
        with contextlib.suppress(KernelFailure):
            found = _compared(kernel, problem, device, {**far, **others})
            if found.why.startswith(DIFFER):
                said = ", ".join(f"{number:.4g}" for number in far.values())
                return Same(same=False, why=f"with {said} for the plain numbers, {found.why}")
    return near


def _compared(
    kernel: Path, problem: Reference, device: SimulatedDevice, numbers: Mapping[int, float]
) -> Same:
    """Whether kernel and reference are the same with these plain numbers. Raises KernelFailure."""
    given = with_numbers(problem.inputs(0), numbers)
    try:
        reference = trace_reference(problem.path, read_text(problem.path), given).algorithm
    except NotTraced as error:
        return Same(same=False, why=f"the proof ends at the reference: {error}")
    arguments = [argument_of(value) for value in problem.kernel_inputs(given)]
    program = device.compile(str(kernel), arguments).program
    try:
        other = difference(lift(program, SAME_SECONDS, strict=True), reference)
    except NotLifted as error:
        return Same(same=False, why=f"the proof ends at the kernel: {error}")
    return Same(same=not other, why=f"{DIFFER}{other}" if other else "")
