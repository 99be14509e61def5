"""Everything that is wrong with a kernel that failed, for whoever repairs it: every violated rule in the
kernel's own lines, or where and how its outputs differ. Runs in a worker's child process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from accelopt.errors import ConfigError
from accelopt.evaluation import Evaluation, Row, Status
from accelopt.kernels.nki.arguments import argument_of, shaped_outputs
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.simulated import WARM, SimulatedDevice, SimulatedExecutable
from accelopt.kernels.nki.referee.precision import in_single
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.source_lines import Sources
from accelopt.sandbox.workers import Call
from accelopt.sim.errors import NOWHERE, KernelError
from accelopt.time_limits import FAULTS_SECONDS, RETRACE_SECONDS

Array = np.ndarray

PERIODS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
MOST_RANGES = 3
MOST_SAMPLES = 3
STEP = 128  # tiles begin at multiples of it
PROBE = 8  # neighbouring values that must agree for two places to hold the same
MOST_COMPARED = 1 << 26  # elements; of a larger array the beginning is looked at
EXACT = 1e-3  # relative: two values that are meant to be equal
WRONG = 1e-4  # of the usual size of a value: what counts as wrong


def describe(output: Array, wanted: Array) -> list[str]:
    """Sentences on the elements of `output` that are not those of `wanted`, of the same shape; none where all are
    nearly right. They say what share is wrong, which indices of which axis, and what the wrong values look like:
    zeros, a constant factor, neighbours' values, a part of a sum. It judges nothing; the referee does."""
    output, wanted = _comparable(output), _comparable(wanted)
    with np.errstate(all="ignore"):
        finite = wanted[np.isfinite(wanted)]
        usual = float(np.sqrt(np.mean(np.square(finite)))) if finite.any() else 1.0
        limit = WRONG * np.maximum(np.abs(wanted), usual)
        wrong = ~(np.abs(output - wanted) <= limit) & ~(np.isnan(output) & np.isnan(wanted))
    count = int(wrong.sum())
    if not count:
        return []
    said = [f"{count:,} of {wrong.size:,} elements are wrong ({count / wrong.size:.2%})."]
    said += [line for axis in range(wrong.ndim) if (line := _where(wrong, axis))]
    said += _how(output, wanted, wrong)
    said.append("For instance " + "; ".join(_samples(output, wanted, wrong)) + ".")
    return said


def _comparable(array: Array) -> Array:
    array = np.asarray(array)
    array = array.reshape(1, -1) if array.ndim < 2 else array
    rows = max(1, MOST_COMPARED // max(1, array[0].size))
    return array[:rows].astype(np.float64)


def _where(wrong: Array, axis: int) -> str:
    """Which indices of one axis hold something wrong; empty where all do."""
    others = tuple(other for other in range(wrong.ndim) if other != axis)
    held = wrong.any(axis=others)
    if held.all():
        return ""
    ranges = _ranges(np.flatnonzero(held))
    name = f"Axis {axis} (of {held.size})"
    if len(ranges) <= MOST_RANGES:
        return f"{name}: wrong only at {', '.join(ranges)}."
    for period in PERIODS:
        if held.size % period or held.size == period:
            continue
        folded = held.reshape(-1, period)
        if (folded == folded[0]).all():
            within = ", ".join(_ranges(np.flatnonzero(folded[0]))[:MOST_RANGES])
            return f"{name}: wrong at {within} of every {period}."
    return (
        f"{name}: wrong at {int(held.sum())} indices, the first {', '.join(ranges[:MOST_RANGES])}."
    )


def _ranges(indices: Array) -> list[str]:
    """Runs of neighbouring indices, as `0..127`."""
    if not indices.size:
        return []
    cuts = np.flatnonzero(np.diff(indices) > 1) + 1
    runs = np.split(indices, cuts)
    return [f"{run[0]}..{run[-1]}" if run.size > 1 else str(run[0]) for run in runs]


def _how(output: Array, wanted: Array, wrong: Array) -> list[str]:
    """What the wrong values have in common."""
    found, due = output[wrong], wanted[wrong]
    finite = np.isfinite(found)
    if not finite.all():
        kinds = f"{int(np.isnan(found).sum()):,} are NaN, {int(np.isinf(found).sum()):,} infinite"
        at = tuple(map(int, np.argwhere(wrong & ~np.isfinite(output))[0]))
        return [
            f"Of the wrong ones {kinds}, the first at {at}: memory that was never written, "
            "0 / 0, inf - inf, or an overflow."
        ]
    if not found.any():
        return ["All wrong ones are 0: nothing was stored or added there."]
    simple = itertools.chain(
        _factor(found, due), _moved(output, wanted, wrong), _scaled(output, wanted)
    )
    return [*itertools.islice(simple, 1)] or _parts(found, due)


def _factor(found: Array, due: Array) -> list[str]:
    solid = np.abs(due) > 1e-2 * np.sqrt(np.mean(np.square(due)))
    if not solid.any():
        return []
    ratios = found[solid] / due[solid]
    middle = float(np.median(ratios))
    if np.allclose(ratios, middle, rtol=EXACT, atol=0) and abs(middle - 1) > EXACT:
        return [f"All wrong ones are {middle:.6g} times what is wanted."]
    shift = float(np.median(found - due))
    if abs(shift) > 0 and np.allclose(found - due, shift, rtol=EXACT, atol=0):
        return [f"All wrong ones are {shift:.6g} more than what is wanted."]
    return []


def _scaled(output: Array, wanted: Array) -> Iterator[str]:
    """Whether every row, or every column, is off by a factor of its own."""
    if output.ndim != 2:
        return
    for axis, name in ((1, "row"), (0, "column")):
        with np.errstate(all="ignore"):
            factors = (output * wanted).sum(axis, keepdims=True) / np.square(wanted).sum(
                axis, keepdims=True
            )
            scale = float(np.sqrt(np.mean(np.square(wanted))))
            same = np.abs(output - factors * wanted) <= EXACT * np.maximum(np.abs(wanted), scale)
        if same.all():
            low, high = float(factors.min()), float(factors.max())
            yield (
                f"Each {name} is what is wanted times a factor of its own, {low:.4g} to {high:.4g}: "
                f"a scale, norm or sum of the {name}."
            )
            return


def _moved(output: Array, wanted: Array, wrong: Array) -> Iterator[str]:
    """Whether a wrong tile holds what belongs elsewhere: the transpose, or another tile."""
    square = output.ndim == 2 and output.shape[0] == output.shape[1]
    if square and np.allclose(output, wanted.T, EXACT, 1e-6 * float(np.abs(wanted).max())):
        yield "It is the transpose of what is wanted."
    at = tuple(map(int, np.argwhere(wrong)[0]))
    start = (*at[:-1], at[-1] - at[-1] % PROBE)
    probe = output[start[:-1]][start[-1] : start[-1] + PROBE]
    if probe.size < PROBE or np.ptp(probe) == 0:
        return
    steps = [
        range(index % STEP, size, STEP) for index, size in zip(start, output.shape, strict=True)
    ]
    for place in itertools.product(*steps):
        if place == start:
            continue
        other = wanted[place[:-1]][place[-1] : place[-1] + PROBE]
        if other.size == PROBE and np.allclose(probe, other, rtol=EXACT, atol=0):
            yield f"At {start} stands what belongs at {place}: a wrong tile, index or order."
            return


def _parts(found: Array, due: Array) -> list[str]:
    """How much of what is wanted is in what was found, when nothing simpler fits."""
    sizes = float(np.linalg.norm(found)), float(np.linalg.norm(due))
    if not all(sizes):
        return []
    correlation = float(found @ due) / (sizes[0] * sizes[1])
    ratio = sizes[0] / sizes[1]
    said = f"Their norm is {ratio:.3g} times what is wanted, their correlation with it {correlation:.3g}"
    if correlation > 0.999:
        hint = "right but for small errors: precision, an epsilon, a boundary"
    elif correlation > 0.3:
        hint = "a part of the sum is missing or added twice, or a scale differs from row to row"
    else:
        hint = "unrelated to it: a wrong operand, layout or index"
    return [f"{said}: {hint}."]


def _samples(output: Array, wanted: Array, wrong: Array) -> Iterator[str]:
    places = np.flatnonzero(wrong.ravel())
    for flat in places[:: max(1, places.size // MOST_SAMPLES)][:MOST_SAMPLES]:
        at = tuple(int(index) for index in np.unravel_index(int(flat), wrong.shape))
        yield f"at {at} {output[at]:.6g} where {wanted[at]:.6g} is wanted"


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
