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
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernels.nki.referee.norms import blocks, l2
from accelopt.kernels.nki.referee.precision import SINGLE, Precision, in_double, in_single, is_float
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.rounding import Formats, apart, given_as
from accelopt.kernels.nki.referee.rows import row_blocks
from accelopt.kernels.nki.referee.variation import exchanged

EVERY_BLOCK = 8  # of many, where one number is asked of all
Rows = tuple[slice, ...]
NEIGHBOURS = 32
# Where the reference itself is farther off than intervals say at more elements than this, its errors go together, as
# those of a recurrence whose weights are rounded do: they are as large where they happen to be zero.
MOST_OF_ITS_OWN = 0.125
# How much worse than the samples an honest algorithm with another order of operations may be.
SLACK = 16.0
# Where rounding decides between two numbers a step is added to the noise, of which the intervals know the root
# of the sum of squares.
STEP_AND_NOISE = 1 + 1 / (2 * SLACK**2)
MOST = 2.0  # and of most of its elements
BETWEEN = 0.5  # from the middle of two whole numbers of which rounding decides
# What cancels to zero in float64, as 1 + erf(-9) does, is a unit roundoff of something and not zero.
UNIT_OF_EXACT = 2.0**-53
# How many units in the last place of its complement a function of single elements may be off.
ARGUMENT_SLACK = 2.0
# Where what cancels is so many times what is allowed else, and the value as many times more than that,
# some errors show whether a kernel cancels: of those who do, half and more.
SHOWS, THERE, LEAST_SHOWN, MOST_HIDDEN, MOST_SHOWN = 16, 4, 16, 0.05, 1 << 16
NEAREST = 4.0  # times what is rounded to the nearest number, who rounds his result is off by
FINER = 2.0**16  # of steps of bfloat16, those of float32
FAR, FAR_ENDS = 1e4, (40, 80, -40, -80)
FEW_ROUNDINGS = 8  # that four values of a function may have together
WAYS = (1, 2, -1, -2)  # out, and twice as far, to either side
GROWS = 1e6  # times from 40 to 80: an exponential, of which no form cancels as much as exp(-x)
# A thousand times the smallest normal number: what is worked out on the way may be that much smaller.
UNDERFLOW = 1e-35
# Elements known to this relative accuracy are resolved: a kernel that loses them skipped them.
RESOLVED = 1e-4
# Noise that is more than so many times its value is as good as infinite (and infinity times zero is none).
MOST_RELATIVE = np.float32(1e20)
# On the way to a larger result another order of the same products leaves the range of float32.
LARGEST_JUDGED = np.float32(1e30)
ALONE = 1.01  # times its own rounding, what is only put elsewhere may be off


FORMATS = (np.float32, np.float32, np.bool_)
NONE = np.zeros((), np.float32)


class Exact(NamedTuple):
    """One output in float32: its values, the allowed absolute error (infinite where the reference is
    not finite or not determined), where even small values are resolved, the absolute errors of honest
    `forms` that cancel, along a first axis one of each factor, negative on the side of the smaller of f(x) and f(-x) (where both are
    alike, of x), and, where formats below float32 are allowed, what one rounding to them at the end makes; a single zero
    where there is none."""

    values: np.ndarray
    allowed: np.ndarray
    resolved: np.ndarray
    forms: np.ndarray
    at_end: np.ndarray

    @property
    def cancelled(self) -> np.ndarray:
        """The largest errors of forms that cancel."""
        return _largest_of(self.forms)

    def allowed_to(self, output: np.ndarray, rounding: float) -> np.ndarray:
        """The absolute error that is allowed of a kernel with this output: of one that cancels, or rounds on
        the way, also where that loses the value, and so of one that is `rounding` times coarser than float32,
        as a table is. Which a kernel does is asked of each factor, side and sign alone: ELU cancels below zero only."""
        if not self.forms.ndim and not self.at_end.ndim:
            return self.allowed
        forms = self.forms if self.forms.ndim else self.forms[None]
        found = (self._allowed_if(cancelled, output, rounding) for cancelled in forms)
        return np.asarray(reduce(np.maximum, found))

    def _allowed_if(self, cancelled: np.ndarray, output: np.ndarray, rounding: float) -> np.ndarray:
        """The same, of one form that cancels."""
        values, scale, least, fine = self.values, np.abs(cancelled), self.allowed, 1.0
        with np.errstate(all="ignore"):
            size, found = np.abs(values), np.maximum(self.allowed, scale)
            at_end = NEAREST * self.at_end
            if self.at_end.ndim:  # a value may be inexact, but is there
                least = np.maximum(at_end, np.minimum(found, size / 2))
            error = np.abs(output - values)
            if rounding > 1 or not (error > (self.at_end if self.at_end.ndim else least)).any():
                return np.asarray(found)
            shows = (self.allowed * SHOWS < scale) & (size > THERE * scale)
            beyond = error > least
            if self.at_end.ndim:
                noise, fine, beyond = self.allowed / SLACK, FINER, error > at_end
                shows = (scale > SHOWS * at_end) & (size > scale / 2)
                shows |= (noise > THERE * at_end) & (size > 2 * noise)
                shows &= error <= size / 2  # what is lost is no sign of rounding
            steps = np.floor(values / scale * fine) if cancelled.ndim else values
            for side in itertools.product((True, False), repeat=2):
                own = (np.signbit(cancelled) == side[0]) & (np.signbit(values) == side[1])
                there = np.flatnonzero(shows & own)
                there = there[:: max(1, there.size // MOST_SHOWN)]
                # Equal arguments are rounded alike, by luck well: one of those that are so near counts.
                _, first = np.unique(steps.reshape(-1)[there], return_index=True)
                there = there[first]
                if first.size < LEAST_SHOWN or beyond.reshape(-1)[there].mean() > MOST_HIDDEN:
                    continue
                # Who gives the nearest number where that shows gives it elsewhere.
                nearest = self.at_end.ndim and cancelled.ndim
                nearest = nearest and (error > self.at_end).reshape(-1)[there].mean() <= MOST_HIDDEN
                found = np.where(own, self.at_end if nearest else least, found)
        return np.asarray(found)

    @property
    def judged(self) -> float:
        """The fraction of elements that are judged at all."""
        return float(np.isfinite(self.allowed).mean()) if self.allowed.size else 1.0


def _largest_of(forms: np.ndarray) -> np.ndarray:
    """Of several arrays along a first axis, of each element that of the largest magnitude."""
    if len(np.atleast_1d(forms)) == 1:
        return forms.reshape(forms.shape[1:])
    return np.asarray(reduce(lambda a, b: np.where(np.abs(b) > np.abs(a), b, a), forms))


def exact_outputs(
    reference: Reference,
    inputs: Sequence[Any],
    expected: tuple[np.ndarray, ...],
    precision: Precision = Precision(),  # noqa: B008  (immutable)
    *,
    few_bits: bool = False,
) -> tuple[Exact, ...]:
    """The exact outputs with their tolerances; `expected` are the reference's own in fp32."""
    with contextlib.suppress(ConfigError, MemoryError):
        blocks = rounded(reference, inputs, precision, SLACK, expected, few_bits=few_bits)
        known = ((rows, true, [r / SLACK for r in radii]) for rows, true, radii in blocks)
        return _tolerated(
            reference, inputs, expected, known, precision, sampled=False, few_bits=few_bits
        )
    # Of a reference that insists on fp32, or is too large, the spread of its own results must do.
    exact = expected
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
    reference: Reference, inputs: Sequence[Any], expected: tuple[np.ndarray, ...],
    parts: Iterable[tuple[Rows, Sequence[np.ndarray], Sequence[np.ndarray]]], precision: Precision, *,
    sampled: bool, few_bits: bool = False,
) -> tuple[Exact, ...]:  # fmt: skip
    """Exact outputs with tolerances, of `parts`: places, exact values, and what noise they show."""
    forms = _cancelled(reference, inputs, expected, precision)
    at_end = _rounded_at_end(reference, inputs, expected, precision, forms, few_bits)
    found = [
        Exact._make([*(np.empty(one.shape, form) for form in FORMATS), *more])
        for one, *more in zip(expected, forms, at_end, strict=True)
    ]
    largest = [0.0] * len(expected)
    for rows, exact, noises in parts:
        for number, (true, noise) in enumerate(zip(exact, noises, strict=True)):
            given = np.atleast_1d(expected[number][rows or ...])
            arrays = found[number][: len(FORMATS)]
            own = Exact._make([*(np.atleast_1d(a[rows or ...]) for a in arrays), NONE, NONE])
            whole = given.dtype.kind in "iub"
            with np.errstate(all="ignore"):
                own_error = apart(given, true) / (SLACK if whole else 1)
                beyond = own_error > noise
                if not whole and np.count_nonzero(beyond) > MOST_OF_ITS_OWN * beyond.size:
                    times = np.nan_to_num(own_error / noise, nan=0, posinf=0)
                    noise = noise * np.maximum(1, _usual(times))
                noise = np.maximum(own_error, noise).astype(np.float32)
            _tolerate(own, true, noise, precision, sampled=sampled, whole=whole)
            judged = np.where(np.isfinite(own.allowed), own.values, 0)
            largest[number] = max(largest[number], _largest(judged.reshape(-1)))
    for output, size in zip(found, largest, strict=True):
        with np.errstate(over="ignore"):
            output.allowed[output.values == 0] += np.float32(SLACK * UNIT_OF_EXACT * size)
        if sampled:
            values, allowed = (one.reshape(-1) for one in output[:2])
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
    units = slack * precision.unit, slack * SINGLE.unit
    singles = [in_single(value) for value in inputs]
    shared: dict[tuple[int, Formats], Any] = {}
    uses = reference.uses(singles)
    few_bits &= (
        uses.decides
    )  # else honest forms may round what is exact here, as a softmax by logarithm does
    formats = Formats(*units, precision.largest, few_bits, least=slack * precision.least)
    formats = formats._replace(exact_sums=few_bits and uses.rounds)

    def given(number: int, value: Any, formats: Formats) -> Any:
        """What all blocks share is made once, unless a reference writes into its inputs."""
        reckoned = number not in uses.indices and number not in uses.compared
        if value is not singles[number]:
            return given_as(value, formats, number=reckoned)
        key = number, formats
        if key not in shared or not getattr(shared[key], "is_exact", True):
            shared[key] = given_as(value, formats, number=reckoned)
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


def _cancelled(
    reference: Reference, inputs: Sequence[Any], expected: Sequence[np.ndarray], precision: Precision,
) -> list[np.ndarray]:  # fmt: skip
    """Of each output what an honest form of its function may cancel, where that is one of single elements:
    some units of the larger of f(x) and f(-x), of which one is the other's complement (a sigmoid), or of the
    other less a multiple of x (SiLU, softplus); and of what f tends to, as -1 of an exponential less one:
    where it has come to that, f(-x) is no part of it. What is made of an input of which each output takes
    several elements, as a product's, may cancel otherwise: there float64 tells."""
    none = [NONE] * len(expected)
    places = [n for n, v in enumerate(inputs) if _is_array_of_floats(v)]
    singles = [in_single(value) for value in inputs]
    shapes = [one.shape for one in expected]
    with contextlib.suppress(ConfigError), np.errstate(all="ignore"):
        alone = all(_has_axes_of(shapes[0], inputs[n].shape) for n in places)
        if alone and reference.elementwise(singles, shapes):
            whole = [n for n in places if inputs[n].shape == shapes[0]]

            def far_out(number: int) -> list[tuple[np.ndarray, ...]]:
                others = (exchanged(singles, number, _far_out(singles[number], w)) for w in WAYS)
                return [reference.forward(one) for one in others]

            farther = {n: far_out(n) for n in whole}
            mirrored = [
                (
                    factor[0],
                    reference.forward(_mirrored(singles, factor)),
                    [*map(farther.get, factor)],
                )
                for factor in _factors(reference, singles, expected, whole, places, precision)
            ]
            found = []
            for number, one in enumerate(expected):
                if not is_float(one.dtype):
                    found.append(NONE)
                    continue
                single = in_single(one)
                own = np.nan_to_num(np.abs(single), nan=0, posinf=0)
                near = 4 * SINGLE.unit * np.abs(single)
                forms, telling = list[np.ndarray](), list[bool]()
                for first, others, ends_of in mirrored:
                    limit, size = np.zeros(one.shape, np.float32), np.abs(in_single(others[number]))
                    far = size.reshape(-1)[: len(FAR_ENDS)]
                    if not (far[1::2] <= GROWS * np.maximum(1, far[:-1:2])).all():
                        size, far = np.zeros_like(size), far[:0]
                    far[...] = np.maximum(1, np.abs(singles[first].reshape(-1)[: far.size]))
                    for ends in filter(None, ends_of):
                        here, further, back, beyond = (in_single(end[number]) for end in ends)
                        there = (apart(further, single) <= near) & (apart(back, single) > near)
                        # Of what vanishes on one side f(-x) tells it, but where it has come to that: what a clip ends at
                        # says nothing.
                        vanishes = ((here == 0) & (further == 0)) | ((back == 0) & (beyond == 0))
                        for end, twice in ((here, further), (back, beyond)):
                            settles = apart(end, twice) <= 4 * SINGLE.unit * np.abs(end)
                            settles &= there | ~vanishes
                            limit = np.maximum(limit, np.where(settles, np.abs(end), 0))
                        size[there] = 0
                    known = (own, *(np.nan_to_num(end, nan=0, posinf=0) for end in (size, limit)))
                    most = reduce(np.maximum, known) * np.float32(ARGUMENT_SLACK * precision.unit)
                    cancels = most > FEW_ROUNDINGS * precision.unit * own
                    telling.append(bool(cancels.reshape(-1)[len(FAR_ENDS) :].any()))
                    side = (own < size - near) | ((own <= size + near) & (singles[first] < 0))
                    forms.append(np.where(side, -most, most).astype(np.float32))
                # Where it is no larger than the value itself, nothing cancels.
                found.append(np.stack([*itertools.compress(forms, telling)] or forms[:1]))
            return found
    return none


def _factors(
    reference: Reference, inputs: Sequence[Any], expected: Sequence[np.ndarray], whole: Sequence[int],
    places: Sequence[int], precision: Precision,
) -> list[list[int]]:  # fmt: skip
    """The inputs at `places` in groups of which the outputs are products of functions of each, as the gate and the
    value of a gated unit are; those of them that are `whole`, of the outputs' shape, come first."""
    alone: list[int] = []
    sharp = max(RESOLVED, FEW_ROUNDINGS * precision.unit)
    rest = [*whole, *(n for n in places if n not in whole)]

    def doubled(numbers: Sequence[int]) -> tuple[np.ndarray, ...]:
        return reference.forward([2 * v if n in numbers else v for n, v in enumerate(inputs)])

    for number in whole[1:]:
        others = [n for n in rest if n != number]
        corners = zip(expected, doubled(rest), doubled([number]), doubled(others), strict=True)
        if all(_equal_products([*map(in_single, four)], sharp) for four in corners):
            alone, rest = [*alone, number], others
    return [rest, *([n] for n in alone)]


def _equal_products(corners: Sequence[np.ndarray], sharp: float) -> bool:
    """True where f(x, y) f(2x, 2y) is f(2x, y) f(x, 2y), as it is where f is a product of functions of each."""
    one, both, first, second = (corner.astype(np.float64) for corner in corners)
    left, right = one * both, first * second
    judged = np.isfinite(left) & np.isfinite(right)
    return bool((apart(left, right) <= sharp * np.abs(right) + UNDERFLOW)[judged].all())


def _mirrored(inputs: Sequence[Any], factor: Sequence[int]) -> list[Any]:
    """`inputs` with other signs of those of a factor; of its first some elements are far out."""
    found = [-v if n in factor else v for n, v in enumerate(inputs)]
    flat = found[factor[0]].reshape(-1)
    flat[: len(FAR_ENDS)] = FAR_ENDS[: flat.size]
    return found


def _rounded_at_end(
    reference: Reference, inputs: Sequence[Any], expected: Sequence[np.ndarray], precision: Precision,
    forms: Sequence[np.ndarray], few_bits: bool,
) -> list[np.ndarray]:  # fmt: skip
    """Of each output of a function of single elements what is allowed of a kernel that works in float32 and
    rounds its result to the nearest number of a narrower format; of whole numbers how far most are that a kernel
    makes in its formats."""
    found = [NONE] * len(expected)
    whole = [one.dtype.kind in "iub" for one in expected]
    if not precision.narrow:
        return found
    if any(one.ndim for one in forms) and any(is_float(one.dtype) for one in expected):
        with contextlib.suppress(ConfigError):
            narrower = np.float32(SINGLE.unit / precision.unit)
            least = np.float32(max(UNDERFLOW, precision.least))
            both = [*zip(map(_largest_of, forms), expected, strict=True)]
            at_end = [np.full(e.shape, least) + np.abs(c) * narrower for c, e in both]
            for rows, true, radii in rounded(reference, inputs, Precision(), SLACK, expected):
                for one, value, radius in zip(at_end, true, radii, strict=True):
                    one[rows or ...] += radius + half_spacing(value, precision.unit)
            found = [
                a if is_float(e.dtype) else NONE for a, (_, e) in zip(at_end, both, strict=True)
            ]
    if any(whole):
        with contextlib.suppress(ConfigError):
            parts = [*rounded(reference, inputs, precision, MOST, expected, few_bits=few_bits)]
            for number in (n for n, one in enumerate(whole) if one):
                found[number] = np.empty(expected[number].shape, np.float32)
                for rows, true, radii in parts:
                    own = apart(true[number], expected[number][rows or ...]) + radii[number]
                    found[number][rows or ...] = own
    return found


def half_spacing(values: np.ndarray, unit: float) -> np.ndarray:
    """Half the distance between numbers of a format with this unit roundoff, at each value: what rounding to
    the nearest of them may make."""
    with np.errstate(all="ignore"):
        return np.asarray(np.where(values == 0, 0, unit * 2 ** np.floor(np.log2(np.abs(values)))))


def _far_out(value: np.ndarray, way: int) -> np.ndarray:
    far = np.maximum(np.abs(value), value.dtype.type(FAR)) * abs(way)
    return np.asarray(np.copysign(far, way * value))


def _has_axes_of(output: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """True for an array that has some axes of the output's, in their order."""
    sizes = iter(output)
    return all(size == 1 or size in sizes for size in shape)


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
    precision: Precision,
    *,
    sampled: bool,
    whole: bool,
) -> None:
    """Writes into `found` what honest rounding may make of a part of an output that shows such noise; of
    whole numbers that is the noise itself, of a number that is rounded to one of two."""
    least = max(UNDERFLOW, precision.least)
    sharp = max(RESOLVED, 2 * precision.unit)
    with np.errstate(all="ignore"):
        found.values[...] = exact  # in float32 beyond its range infinite, and not judged
        magnitude = np.abs(found.values)
        allowed = _allowed(magnitude, noise, precision.unit, sampled=sampled)
        allowed += np.float32(least)
        reckoned = noise > np.float32(ALONE * precision.unit) * magnitude
        allowed[(magnitude > LARGEST_JUDGED) & reckoned] = np.inf
        found.allowed[...] = SLACK * noise + least if whole else allowed
        found.resolved[...] = (magnitude > least) & (noise < np.float32(sharp) * magnitude)
        if whole:  # which are compared one by one
            found.resolved[...] = False


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
    allowed *= np.float32(SLACK * STEP_AND_NOISE)
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
