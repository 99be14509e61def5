"""How far an honest kernel may be from the exact result, element by element: in fp32, or in the
narrowest format that its contract allows.

That is worked out with the exact result (`rounding`): a kernel may keep what it works out in its own
formats, and add in any order. Beside it counts the error of the reference itself in fp32. Of a reference
that takes no intervals samples must do, and what is usual among neighbours: in absolute size, as in a
matrix product, and relative to the value, as after exp(). And a function of single elements may round on the scale
of its complement: x * sigmoid(x) by way of tanh does, to half a unit of x in the last place.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernels.nki.referee.norms import blocks, l2
from accelopt.kernels.nki.referee.precision import SINGLE, Precision, in_double, in_single, is_float
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.rounding import Formats, apart, given_as
from accelopt.kernels.nki.referee.rows import row_blocks

EVERY_BLOCK = 8  # of many, where one number is asked of all
Rows = tuple[slice, ...]
NEIGHBOURS = 32
# How much worse than the samples an honest algorithm with another order of operations may be.
SLACK = 16.0
# What cancels to zero in float64, as 1 + erf(-9) does, is a unit roundoff of something and not zero.
UNIT_OF_EXACT = 2.0**-53
# How many units in the last place of its argument a function of single elements may be off.
ARGUMENT_SLACK = 2.0
COMPLEMENT = 1e-5  # of the argument, or of the number, that f(x) and f(-x) make together
SAMPLE = 1 << 14
FAR = 1e4
FAR_ENDS = ((-1, -1, 1, 1), (-2, -1, 2, 1))
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


FORMATS = (np.float32, np.float32, np.bool_)


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
    if _fits_in_float64(expected):
        with contextlib.suppress(ConfigError, MemoryError):
            blocks = rounded(reference, inputs, precision, SLACK, expected, few_bits=few_bits)
            known = ((rows, true, [r / SLACK for r in radii]) for rows, true, radii in blocks)
            return _tolerated(reference, inputs, expected, known, precision, sampled=False)
    # Of a reference that insists on fp32, or is too large, the spread of its own results must do.
    exact = expected
    if _fits_in_float64(expected):
        with contextlib.suppress(ConfigError, MemoryError):
            found = reference.forward(list(map(in_double, inputs)), to_lose=True)
            if list(map(np.shape, found)) == list(map(np.shape, expected)):  # it may read bits
                exact = found
    moved = [reference.forward(_moved(inputs, sign * precision.unit)) for sign in (-1, 1)]
    with np.errstate(all="ignore"):
        noises = [
            reduce(np.maximum, (apart(one, true) for one in some))
            for true, *some in zip(exact, *moved, strict=True)
        ]
    return _tolerated(reference, inputs, expected, [((), exact, noises)], precision, sampled=True)


def _tolerated(
    reference: Reference,
    inputs: Sequence[Any],
    expected: tuple[np.ndarray, ...],
    parts: Iterable[tuple[Rows, Sequence[np.ndarray], Sequence[np.ndarray]]],
    precision: Precision,
    *,
    sampled: bool,
) -> tuple[Exact, ...]:
    """Exact outputs with tolerances, of `parts`: places, exact values, and what noise they show."""
    found = [Exact(*(np.empty(one.shape, form) for form in FORMATS)) for one in expected]
    largest = [0.0] * len(expected)
    scales = _scales(reference, inputs, expected)
    for rows, exact, noises in parts:
        for number, (true, noise) in enumerate(zip(exact, noises, strict=True)):
            given, *own_scales = (
                np.atleast_1d(one[rows or ...]) for one in (expected[number], *scales[number])
            )
            own = Exact(*(np.atleast_1d(one[rows or ...]) for one in found[number]))
            with np.errstate(all="ignore"):
                noise = np.maximum(apart(given, true), noise).astype(np.float32)
            _tolerate(own, true, noise, own_scales, precision, sampled=sampled)
            largest[number] = max(largest[number], _largest(np.ravel(true)))
    for output, size in zip(found, largest, strict=True):
        with np.errstate(over="ignore"):
            output.allowed[output.values == 0] += np.float32(SLACK * UNIT_OF_EXACT * size)
        if sampled:
            values, allowed, _ = (one.reshape(-1) for one in output)
            _allow_alone(values, allowed, max(UNDERFLOW, precision.least), precision.unit)
    return tuple(found)


def rounded(
    reference: Reference,
    inputs: Sequence[Any],
    precision: Precision,
    slack: float,
    expected: Sequence[np.ndarray],
    *,
    few_bits: bool = False,
    every: int = 1,
) -> Iterator[tuple[Rows, tuple[np.ndarray, ...], tuple[np.ndarray, ...]]]:
    """In blocks, each with its place in the outputs: the exact outputs, and how far honest rounding may
    move them, times `slack`; `expected` are the reference's own. Raises ConfigError for a reference of
    which that is not known. With `every`, only one block of so many."""
    formats = Formats(slack * precision.unit, slack * SINGLE.unit, precision.largest, few_bits)
    singles = [in_single(value) for value in inputs]
    shared: dict[tuple[int, Formats], Any] = {}

    def given(number: int, value: Any, formats: Formats) -> Any:
        """What all blocks share is made once, unless a reference writes into its inputs."""
        if value is not singles[number]:
            return given_as(value, formats)
        key = number, formats
        if key not in shared or not getattr(shared[key], "is_exact", True):
            shared[key] = given_as(value, formats)
        return shared[key]

    def of(part: list[Any], formats: Formats) -> tuple[Any, Any]:
        return reference.rounded([given(n, v, formats) for n, v in enumerate(part)], formats)

    for rows, part in itertools.islice(row_blocks(reference, singles, expected), 0, None, every):
        try:
            yield rows, *of(part, formats)
        except ConfigError:  # it works with numbers that have no ends: these are tried
            (true, radii), *ends = (of(part, formats._replace(plain=end)) for end in (0, 1, -1))
            for other, further in ends:
                moved = [apart(o, t) + f for o, t, f in zip(other, true, further, strict=True)]
                radii = tuple(map(np.maximum, radii, moved))
            yield rows, true, radii


def radii_norms(
    reference: Reference,
    inputs: Sequence[Any],
    expected: Sequence[np.ndarray],
    exact: Sequence[Exact] = (),
) -> list[float]:
    """The norms of what rounding in float32 may move each output by, where it is judged; of many rows
    by some of their blocks. Raises ConfigError."""
    squares, seen = [0.0] * len(expected), [0] * len(expected)
    parts = rounded(reference, inputs, Precision(), 1.0, expected, every=EVERY_BLOCK)
    for rows, _, radii in parts:
        for number, radius in enumerate(radii):
            judged = np.isfinite(radius)
            if exact:
                judged &= np.isfinite(exact[number].allowed[rows or ...])
            squares[number] += l2(np.where(judged, radius, 0)) ** 2
            seen[number] += radius.size
    counts = (max(1, one.size) / max(1, n) for one, n in zip(expected, seen, strict=True))
    return [(square * times) ** 0.5 for square, times in zip(squares, counts, strict=True)]


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


def _scales(
    reference: Reference, inputs: Sequence[Any], expected: Sequence[np.ndarray]
) -> list[list[np.ndarray]]:
    """Of each output what an honest form of its function may cancel: where f(x) - f(-x) is a multiple of x
    (SiLU, GELU, softplus), or f(x) + f(-x) one number (a sigmoid), one end is the other's complement, and
    rounds as that does. An exponential has no such form, and no end that may be zero. With other inputs,
    as a bias, the argument is not known: it is as large as they are."""
    found: list[list[np.ndarray]] = [[] for _ in expected]
    for number, output in enumerate(expected):
        if (argument := _argument(output, inputs)) is None:
            continue
        x = np.asarray(in_single(inputs[argument]), np.float32)
        others = [v for n, v in enumerate(inputs) if n != argument and _is_array_of_floats(v)]
        if others:
            biases = [np.abs(in_single(v)) for v in others if v.shape == x.shape[-v.ndim :]]
            found[number] = [reduce(np.add, biases, np.abs(x))]
            continue
        mirrored = [_with_far_ends(-x) if n == argument else v for n, v in enumerate(inputs)]
        with contextlib.suppress(ConfigError):
            other = reference.forward(mirrored)[number]
            found[number] = [np.maximum(_complement(output, other, x), _limit(other))]
    return found


def _with_far_ends(x: np.ndarray) -> np.ndarray:
    """`x` with numbers far from zero in its first two rows: once, and twice as far and twice."""
    found = np.array(x)
    if found.ndim > 1 and found.shape[-1] > len(FAR_ENDS[0]):
        rows = found.reshape(-1, found.shape[-1])
        rows[: len(FAR_ENDS), : len(FAR_ENDS[0])] = np.multiply(FAR_ENDS, FAR)[: len(rows)]
    return found


def _limit(output: np.ndarray) -> np.float32:
    """What a function of single elements tends to, the larger of both ends, as -1 of an exponential less
    one, which rounds on that scale; zero of a function of rows, or one that tends to no number."""
    rows = np.asarray(output).reshape(-1, output.shape[-1] if output.ndim else 1)
    ends = rows[: len(FAR_ENDS), : len(FAR_ENDS[0])]
    if ends.shape != np.shape(FAR_ENDS):
        return np.float32(0)
    same = [part[0, 0] for part in np.split(ends, 2, axis=1) if (part == part[0, 0]).all()]
    return np.float32(max((abs(one) for one in same if np.isfinite(one)), default=0))


def _complement(output: np.ndarray, other: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What the ends f(x) and f(-x) of a function are complements of, where they are, else zero: the larger
    of them where the function is a factor of x, or leaves the range between zero and the number that both
    make together; else that number, or one of the multiple, as for what a logarithm of a sum cancels."""
    with np.errstate(all="ignore"):
        largest, size = np.maximum(np.abs(output), np.abs(other)), np.abs(x)
        odd, even = output - other, output + other
        slope, constant = _middle(odd / x), _middle(even)
        if slope and _mostly(held := np.abs(odd - slope * x) <= COMPLEMENT * size):
            factor = bool((largest <= abs(slope) * size * (1 + COMPLEMENT))[held].all())
            return (
                np.where(held, largest, abs(slope) * size)
                if factor
                else np.full_like(x, abs(slope))
            )
        if constant and _mostly(held := np.abs(even - constant) <= COMPLEMENT * abs(constant)):
            inside = bool((largest <= abs(constant) * (1 + COMPLEMENT))[held].all())
            return np.full_like(x, abs(constant)) if inside else np.maximum(size, largest)
    return np.zeros_like(x)


def _mostly(held: np.ndarray) -> bool:
    return 2 * int(np.count_nonzero(held)) > held.size


def _middle(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite[:: max(1, finite.size // SAMPLE)])) if finite.size else 0.0


def _argument(output: np.ndarray, inputs: Sequence[Any]) -> int | None:
    """The input that an element-wise function would have as its argument. Of several, each could hide
    what the others make small (exp(rate) * x)."""
    shape = output.shape
    found = [n for n, v in enumerate(inputs) if _is_array_of_floats(v) and v.shape == shape]
    return found[0] if len(found) == 1 and is_float(output.dtype) else None


def _is_array_of_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_float(value.dtype)


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


def _tolerate(
    found: Exact,
    exact: np.ndarray,
    noise: np.ndarray,
    scales: Sequence[np.ndarray],
    precision: Precision,
    *,
    sampled: bool,
) -> None:
    """Writes into `found` what honest rounding may make of a part of an output that shows such noise."""
    least = max(UNDERFLOW, precision.least)
    sharp = max(RESOLVED, 2 * precision.unit)
    with np.errstate(all="ignore"):
        found.values[...] = exact  # in float32 beyond its range infinite, and not judged
        magnitude = np.abs(found.values)
        allowed = _allowed(magnitude, noise, precision.unit, sampled=sampled)
        allowed += np.float32(least)
        allowed[magnitude > LARGEST_JUDGED] = np.inf
        for scale in scales:
            units = np.float32(ARGUMENT_SLACK * precision.unit)
            np.maximum(allowed, units * scale, out=allowed)
        found.allowed[...] = allowed
        found.resolved[...] = (magnitude > least) & (noise < np.float32(sharp) * magnitude)


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
    padding = -noise.size % NEIGHBOURS
    groups = np.pad(noise.reshape(-1), (0, padding)) if padding else noise
    sampled = np.ascontiguousarray(groups.reshape(-1, NEIGHBOURS)[:, :: NEIGHBOURS // 8].T)
    largest, second = sampled[0], np.zeros_like(sampled[0])
    for row in sampled[1:]:
        second = np.maximum(second, np.minimum(largest, row))
        largest = np.maximum(largest, row)
    return np.repeat(second, NEIGHBOURS)[: noise.size].reshape(noise.shape)
