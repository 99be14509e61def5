"""How far an honest kernel may be from the exact result, element by element: in fp32, or in the
narrowest format that its contract allows.

That is worked out with the exact result (`rounding`): a kernel may keep what it works out in its own
formats, and add in any order. Beside it counts the error of the reference itself in fp32. Of a reference
that takes no intervals samples must do, and what is usual among neighbours: in absolute size, as in a
matrix product, and relative to the value, as after exp(). And a function of single elements may round on the scale of its argument: x * sigmoid(x) by way of
tanh does, to half a unit of x in the last place.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernels.nki.referee.norms import blocks
from accelopt.kernels.nki.referee.precision import SINGLE, Precision, in_single, is_float
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.rounding import Formats

BLOCK_OF_ROWS = 1 << 17  # elements
SAME = 1e-5  # of the largest: what rounding makes of it
NEIGHBOURS = 32
# How much worse than the samples an honest algorithm with another order of operations may be.
SLACK = 16.0
# What cancels to zero in float64, as 1 + erf(-9) does, is a unit roundoff of something and not zero.
UNIT_OF_EXACT = 2.0**-53
# How many units in the last place of its argument a function of single elements may be off.
ARGUMENT_SLACK = 4.0
# A thousand times the smallest normal number: what is worked out on the way may be that much smaller.
UNDERFLOW = 1e-35
# Elements known to this relative accuracy are resolved: a kernel that loses them skipped them.
RESOLVED = 1e-4
# Noise that is more than so many times its value is as good as infinite (and infinity times zero is none).
MOST_RELATIVE = np.float32(1e20)
# On the way to a larger result another order of the same products leaves the range of float32.
LARGEST_JUDGED = np.float32(1e30)
# Arrays of the outputs' size that a plain NumPy reference holds at once.
TEMPORARIES = 5


class Exact(NamedTuple):
    """One output in float32: its values, the allowed absolute error (infinite where the reference is
    not finite or not determined), and where even small values are resolved."""

    values: np.ndarray
    allowed: np.ndarray
    resolved: np.ndarray

    @property
    def judged(self) -> float:
        """The fraction of elements that are judged at all."""
        return float(np.isfinite(self.allowed).mean()) if self.allowed.size else 1.0


def exact_outputs(
    reference: Reference,
    inputs: Sequence[Any],
    expected: tuple[np.ndarray, ...],
    precision: Precision = Precision(),  # noqa: B008  (immutable)
    *,
    few_bits: bool = False,
) -> tuple[Exact, ...]:
    """The exact outputs with their tolerances; `expected` are the reference's own in fp32."""
    exact, radii = expected, None
    # Of a reference that insists on fp32, or is too large, the spread of its own results must do.
    if _fits_in_float64(expected):
        with contextlib.suppress(ConfigError, MemoryError):
            exact, radii = rounded(reference, inputs, precision, SLACK, expected, few_bits=few_bits)
        if radii is None:
            with contextlib.suppress(ConfigError, MemoryError):
                exact = reference.forward([_wide(value) for value in inputs], to_lose=True)
    noises = [_sample(expected, exact)]
    if radii is None:
        moved = (reference.forward(_moved(inputs, sign * precision.unit)) for sign in (-1, 1))
        noises += [_sample(outputs, exact) for outputs in moved]
    else:
        with np.errstate(over="ignore"):
            noises.append([(radius / SLACK).astype(np.float32) for radius in radii])
    sampled = radii is None
    return tuple(
        _with_tolerance(
            output, samples, _argument_scale(output, inputs), precision, sampled=sampled
        )
        for output, *samples in zip(exact, *noises, strict=True)
    )


def rounded(
    reference: Reference,
    inputs: Sequence[Any],
    precision: Precision,
    slack: float,
    expected: Sequence[np.ndarray],
    *,
    few_bits: bool = False,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """The exact outputs, and how far honest rounding may move them, times `slack`; `expected` are the
    reference's own. Raises ConfigError for a reference of which that is not known."""
    formats = Formats(slack * precision.unit, slack * SINGLE.unit, precision.largest, few_bits)
    singles = [in_single(value) for value in inputs]
    parts = [
        reference.rounded([_wide(value) for value in part], formats)
        for part in _row_blocks(reference, singles, expected)
    ]
    if len(parts) == 1:
        return parts[0]
    exact, radii = (
        tuple(np.concatenate(column) for column in zip(*side, strict=True))
        for side in zip(*parts, strict=True)
    )
    return exact, radii


def _row_blocks(
    reference: Reference, inputs: list[Any], expected: Sequence[np.ndarray]
) -> Iterator[list[Any]]:
    """`inputs` in blocks of rows that the reference works out one by one: what it makes of some of them
    is what it makes of all, there. Each stays in the processor's cache. Else all of them at once."""
    count = len(expected[0]) if expected[0].ndim else 1
    alike = [isinstance(v, np.ndarray) and v.ndim > 0 and len(v) == count for v in inputs]
    sizes = [v.size if isinstance(v, np.ndarray) else 0 for v in inputs]
    largest = max(
        1, *(s for s, one in zip(sizes, alike, strict=True) if one), *(v.size for v in expected)
    )

    def rows_of(cut: Sequence[bool]) -> int:
        """Rows of a block: what it shares with the others must not be most of the work."""
        shared = sum(size for size, one in zip(sizes, cut, strict=True) if not one)
        return max(1, count * max(BLOCK_OF_ROWS, 4 * shared) // largest)

    def block(start: int, rows: int, cut: Sequence[bool]) -> list[Any]:
        return [v[start : start + rows] if c else v for v, c in zip(inputs, cut, strict=True)]

    def separate(rows: int, cut: Sequence[bool]) -> bool:
        for start in (0, count // 2, count - rows):
            try:
                found = reference.forward(block(start, rows, cut))
            except ConfigError:
                return False
            if not all(map(_same, found, (one[start : start + rows] for one in expected))):
                return False
        return True

    first = [number == alike.index(True) for number in range(len(alike))] if any(alike) else []
    if not reference.agreement.rules:
        for cut in (alike, first) if any(alike) else ():
            rows = rows_of(cut)
            if count >= 4 * rows and separate(rows, cut):
                yield from (block(start, rows, cut) for start in range(0, count, rows))
                return
    yield inputs


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """True for what differs by a rounding at most."""
    if one.shape != other.shape:
        return False
    with np.errstate(all="ignore"):
        near = np.abs(one - other) <= SAME * np.abs(other).max(initial=0, where=np.isfinite(other))
        return bool((near | (one == other) | (np.isnan(one) & np.isnan(other))).all())


def _fits_in_float64(expected: tuple[np.ndarray, ...]) -> bool:
    """True when the host has room for the float64 outputs and a few temporaries of their size."""
    needed = TEMPORARIES * 8 * sum(output.size for output in expected)
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit != resource.RLIM_INFINITY and needed > limit:
        return False
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        return needed < int(available.split()[1]) * 1024
    return True


def _sample(outputs: tuple[np.ndarray, ...], exact: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """What each output is off by; float32, to keep it small."""
    with np.errstate(all="ignore"):
        return [
            np.subtract(near, true, out=np.empty(true.shape, np.float32), casting="unsafe")
            for near, true in zip(outputs, exact, strict=True)
        ]


def _argument_scale(output: np.ndarray, inputs: Sequence[Any]) -> list[np.ndarray]:
    """The inputs that an element-wise function would have as arguments."""
    return [
        value.reshape(-1)
        for value in inputs
        if isinstance(value, np.ndarray) and value.shape == output.shape and is_float(value.dtype)
    ]


def _wide(value: Any) -> Any:
    if isinstance(value, np.ndarray) and is_float(value.dtype):
        return value.astype(np.float64)
    return value


def _moved(inputs: Sequence[Any], step: float) -> list[Any]:
    """`inputs` with every element larger or smaller by `step`, relatively; drawn for each."""
    generator = np.random.default_rng(0)
    singles = map(in_single, inputs)
    return [
        value * (1 + step * generator.choice((-1, 1), value.shape)).astype(value.dtype)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        else value
        for value in singles
    ]


def _with_tolerance(
    exact: np.ndarray,
    noises: Sequence[np.ndarray],
    arguments: Sequence[np.ndarray],
    precision: Precision,
    *,
    sampled: bool,
) -> Exact:
    least = max(UNDERFLOW, precision.least)
    sharp = max(RESOLVED, 2 * precision.unit)
    shape, count = exact.shape, exact.size
    exact = exact.reshape(-1)
    zero = SLACK * UNIT_OF_EXACT * _largest(exact)
    values = np.empty(count, np.float32)
    allowed = np.empty(count, np.float32)
    resolved = np.empty(count, np.bool_)
    with np.errstate(all="ignore"):
        for part in blocks(count):
            values[part] = exact[part]  # in float32 beyond its range infinite, and not judged
            noise = np.maximum.reduce([np.abs(sample.reshape(-1)[part]) for sample in noises])
            magnitude = np.abs(values[part])
            allowed[part] = _allowed(magnitude, noise, precision.unit, sampled=sampled)
            allowed[part] += np.float32(least)
            allowed[part][magnitude > LARGEST_JUDGED] = np.inf
            for argument in arguments:
                scale = np.float32(ARGUMENT_SLACK * precision.unit)
                own = scale * np.abs(in_single(argument[part]))
                np.maximum(allowed[part], own, out=allowed[part], casting="same_kind")
            allowed[part][exact[part] == 0] += np.float32(zero)
            resolved[part] = (magnitude > least) & (noise < np.float32(sharp) * magnitude)
        if sampled:
            _allow_alone(values, allowed, least, precision.unit)
    return Exact(values.reshape(shape), allowed.reshape(shape), resolved.reshape(shape))


def _allow_alone(values: np.ndarray, allowed: np.ndarray, least: float, unit: float) -> None:
    """Raises what is allowed of small elements whose neighbours have vanished, as all but a few of a
    row have after the softmax of far scores, to what is usual among such elements: where no
    neighbour tells, samples that are small by luck are many in millions. Those are meant that are
    below a roundoff of the largest."""
    largest = np.float32(unit * _largest(values))
    found = []
    for part in blocks(values.size):
        magnitude = np.abs(values[part])
        there = magnitude > least
        groups = np.pad(there, (0, -len(there) % NEIGHBOURS)).reshape(-1, NEIGHBOURS)
        alone = np.repeat(groups.sum(axis=1) <= NEIGHBOURS // 4, NEIGHBOURS)[: len(there)]
        found.append(part.start + np.flatnonzero(there & alone & (magnitude < largest)))
    places = np.concatenate(found) if found else np.zeros(0, np.intp)
    places = places[np.isfinite(allowed[places])]
    if places.size:
        sizes = np.abs(values[places])
        usual = np.float32(np.quantile(allowed[places] / sizes, 0.75))
        allowed[places] = np.maximum(allowed[places], usual * sizes)


def _largest(values: np.ndarray) -> float:
    """The largest finite magnitude."""
    finite = (np.abs(values[part]) for part in blocks(values.size))
    return max(
        (float(part.max(initial=0.0, where=np.isfinite(part))) for part in finite), default=0.0
    )


def _allowed(magnitude: np.ndarray, noise: np.ndarray, unit: float, *, sampled: bool) -> np.ndarray:
    """What values of these magnitudes may be off by that showed such noise; float32 like both. Samples
    may be small by luck, so what is usual among neighbours counts too."""
    unusable = ~(np.isfinite(noise) & np.isfinite(magnitude))
    usable = np.where(unusable, np.float32(0), noise)
    allowed = np.maximum(usable, np.float32(2 * unit) * magnitude)
    if sampled:
        relative = np.divide(usable, magnitude, out=np.zeros_like(usable), where=magnitude > 0)
        np.minimum(relative, MOST_RELATIVE, out=relative)
        for other in (_usual(relative) * magnitude, _usual(usable)):
            np.maximum(allowed, other, out=allowed)
    allowed *= np.float32(SLACK)
    allowed[unusable] = np.inf
    return np.asarray(allowed)


def _usual(noise: np.ndarray) -> np.ndarray:
    """The upper quartile of each group of neighbours, for every element of the group: of eight of
    them the second largest."""
    padding = -len(noise) % NEIGHBOURS
    groups = np.pad(noise, (0, padding)) if padding else noise
    sampled = np.ascontiguousarray(groups.reshape(-1, NEIGHBOURS)[:, :: NEIGHBOURS // 8].T)
    largest, second = sampled[0], np.zeros_like(sampled[0])
    for row in sampled[1:]:
        second = np.maximum(second, np.minimum(largest, row))
        largest = np.maximum(largest, row)
    return np.repeat(second, NEIGHBOURS)[: len(noise)]
