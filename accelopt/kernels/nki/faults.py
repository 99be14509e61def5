"""Everything that is wrong with a kernel that failed, for whoever repairs it: every violated rule in the
kernel's own lines, or where and how its outputs differ. Runs in a worker's child process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from accelopt.errors import ConfigError
from accelopt.evaluation import Evaluation, Row, Status
from accelopt.kernels.nki.arguments import argument_of, shaped_outputs
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.simulated import SimulatedDevice, SimulatedExecutable
from accelopt.kernels.nki.differences import describe
from accelopt.kernels.nki.inspection import WARM
from accelopt.kernels.nki.referee.precision import in_single
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.source_lines import Sources
from accelopt.sandbox.workers import Call
from accelopt.sim.errors import NOWHERE, KernelError
from accelopt.time_limits import FAULTS_SECONDS, RETRACE_SECONDS

FAULTS = "accelopt.kernels.nki.faults:faults_job"
BYTES = 12 << 30
MOST_VIOLATIONS = 12
LOOKED_INTO = frozenset({Status.COMPILE_ERROR, Status.WRONG_NUMBERS, Status.RUN_ERROR})
"""Verdicts of which more can be said than their message."""


class Faults(Row):
    """What is wrong, in lines; empty where nothing more was found."""

    text: str = ""


def faults_call(kernel: str, task: str, target: str, evaluation: Evaluation) -> Call | None:
    """What a worker does to find out more of a failed evaluation; None where there is nothing to."""
    if evaluation.status not in LOOKED_INTO:
        return None
    payload = {"kernel": kernel, "task": task, "target": target}
    return Call(FAULTS, payload, FAULTS_SECONDS, BYTES, warm=WARM)


def faults_job(payload: Mapping[str, Any]) -> Faults:
    """The rules that the kernel breaks, else how its outputs differ on the reference's own inputs."""
    try:
        problem = Reference(payload["task"])
        inputs = problem.inputs(0)
        given = problem.kernel_inputs(inputs)
        device = SimulatedDevice(payload["target"])
        arguments = [argument_of(value) for value in given]
        survey = device.survey(payload["kernel"], arguments, seconds=RETRACE_SECONDS)
        if survey.violations or survey.failure or survey.program is None:
            return Faults(text="\n".join(_broken(survey.violations, survey.failure)))
        outputs = SimulatedExecutable(survey.program, ()).run(given)
        expected = problem.forward(inputs)
        shaped = shaped_outputs(problem, outputs, expected)
    except (KernelFailure, KernelError, ConfigError):
        return Faults()  # the evaluation's own message says it
    return Faults(text="\n".join(_differing(shaped, expected)))


def _broken(violations: tuple[KernelError, ...], failure: str) -> Iterator[str]:
    """Every rule once for each line, in the order of the kernel's text."""
    sources = Sources()
    distinct = {(one.identifier, one.source): one for one in reversed(violations)}
    ordered = sorted(distinct.values(), key=lambda one: one.source)
    for one in ordered[:MOST_VIOLATIONS]:
        where = ""
        if one.source != NOWHERE:
            where = f"line {one.source.line}: {sources.text(one.source)}\n    "
        mend = f"\n    {one.mend}" if one.mend else ""
        yield f"{where}[{one.identifier}] {one.message}{mend}"
    if len(ordered) > MOST_VIOLATIONS:
        yield f"and {len(ordered) - MOST_VIOLATIONS} more of these kinds"
    if failure:
        yield f"Tracing stopped: {failure}"


def _differing(shaped: Sequence[Any], expected: Sequence[np.ndarray]) -> Iterator[str]:
    for number, (value, wanted) in enumerate(zip(shaped, expected, strict=False)):
        output = in_single(np.asarray(value))
        if output.shape != wanted.shape:
            yield f"Output {number} has shape {output.shape}; {wanted.shape} is wanted."
            continue
        lines = describe(output, wanted)
        if lines:
            yield "\n".join([f"Output {number} {wanted.shape}, on ordinary inputs:", *lines])
        else:
            off = np.linalg.norm(np.subtract(output, wanted, dtype=np.float64).ravel())
            error = off / (np.linalg.norm(wanted.astype(np.float64).ravel()) or 1.0)
            yield (
                f"Output {number}, on ordinary inputs: relative L2 error {error:.2g}, no element far off. Where "
                "that is allowed, extreme inputs tell (large values, constant or zero rows), or iterations "
                "in another order."
            )
