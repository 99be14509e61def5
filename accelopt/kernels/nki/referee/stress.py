"""Hidden inputs that a problem's own random draws never contain, made from one such draw.

Every vector along the last axis of every floating-point input is left as it is or becomes one of
`Kind`, chosen for each input independently, so that an output sees many combinations. The extreme
kinds go to one input only, of whose vectors the outputs' rows depend separately: in a weight matrix
they would drown everything else in every output. `one_sided` and `swept` treat inputs as a
whole. What is never drawn negative (a variance) or never positive (a decay's exponent) stays so, and so do
masks (arrays of two values) and what is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from accelopt.kernels.nki.referee.precision import in_few_bits

Shapes = Sequence[tuple[int, ...]]

TINY = 1e-3
TINIEST = 1e-6  # where there are many vectors, from a tenth to this: what is added shows somewhere
# Small numbers are numbers: fp32 reaches down to 1e-38.
MINUTE = 1e-32
SMALLER = 1e-10  # times the tiniest, whose squares are numbers too: a least length shows there
HUGE = 1e5
LARGEST = 1e37  # where nothing is reckoned with what is put elsewhere
HALVES = 16  # of so many elements of a sweep one is a multiple of a half
TOP = 12  # the largest power of ten of a sweep: its cube is still a float32


class Severity(NamedTuple):
    """What `large` multiplies by, whether there are zeros, rows of one value, and huge ones, whether such
    are in weights, where they make what is worked out of others equal, and how large the elements of huge rows
    of one sign are."""

    factor: float
    zeros: bool = True
    ties: bool = True
    largest: float = HUGE


# A problem that is undefined on inputs of one severity is tried with the next.
SEVERITIES = (
    *(Severity(factor, zeros) for factor in (30.0, 6.0, 2.0) for zeros in (True, False)),
    Severity(0.1, zeros=False),  # of which an exponential takes the spikes
)
# A spike stands above the rest of its vector by 10 or 100 times the severity, a vector far from zero
# lies as many times its own spread away from it: E[x^2] - E[x]^2 has no digit left there.
FAR = (30.0, 300.0)
FEW_VECTORS = 16
FEW_ELEMENTS = 1 << 16  # of which those places are tried for all together
PLACES = 16  # to which one of them is moved that lies far away, to choose from
UNIT = 2.0**-24  # unit roundoff of float32
MOST_STEPS = 1 << 16  # of a running mean
PART = 128
ANOTHER = 4.0  # times what sums in a line show an honest mean may be off by
SAMPLE = 1 << 14
INVARIANT, SCALED = (
    1e-4,
    1e-2,
)  # of the largest, what rounding, and what an eps makes of outputs that stay
# Of so many vectors of two inputs of few bits one is nearly the other's, to so much: who rounds what cancels shows.
TOGETHER = 0.5  # of the vectors that lie far from zero beside such of another input
NEAR, NEARLY, ALIKE = 1 / 16, 2.0**-6, 4.0
# Times as large as at their beginning elements of some vectors, or their squares, are a fifth of the sum: one of
# few bits loses them.
FALLS, BEGINNING = (3.2e-3, 3.2e-3**0.5), 64
# What all others of a vector are added to and then taken from, and how large these are: a sum on the way that has
# eight bits loses them, in however few parts.
CANCELS, BESIDE, LEFT_OVER = 128.0, 0.5, 8
FEW_BITS = 8  # that bfloat16 holds
SMALL = 1 / 8  # beside the halves, and where a spike is as small as others are
LARGEST_SCALE = 1 << 16
EXTREMES = 16  # of so many neighbours one is the largest and one the smallest


class Kind(IntEnum):
    """What becomes of one vector."""

    AS_IT_IS = 0
    ZERO = 1
    CONSTANT = 2
    TINY = 3
    LARGE = 4
    ONE_HOT = 5
    SPIKE = 6  # one element far larger than all others
    FAR_AWAY = 7  # a large mean, a small spread
    MINUTE = 8
    HUGE = 9
    HALVES = 10  # multiples of a half, many of which are equal


_MILD = (0.4, 0.12, 0.12, 0.12, 0.12, 0.12, 0, 0, 0, 0, 0)
_EXTREME = (0.22, 0.06, 0.06, 0.08, 0.08, 0.08, 0.16, 0.14, 0.06, 0.02, 0.04)
_ONE_SIDED = (0.18, 0, 0, 0.2, 0.4, 0, 0, 0, 0.1, 0.12, 0)
# By what vectors are spoiled that are not finite: here and there, or throughout.
_SPECIALS = (np.nan,), (np.inf,), (-np.inf,), (np.nan, -np.inf), (np.nan, np.inf, -np.inf)
_SPOILED = tuple((share, some) for share in (0.06, 1) for some in _SPECIALS)
_WITH_ZEROS = (Kind.ZERO, Kind.CONSTANT, Kind.ONE_HOT, Kind.MINUTE, Kind.HUGE, Kind.HALVES)
# Where there are few vectors, chance is left out. The two begin differently: there may be only one.
_IN_TURN = (Kind.SPIKE, Kind.FAR_AWAY, Kind.LARGE, Kind.AS_IT_IS, Kind.TINY, Kind.MINUTE)
_THEN = (Kind.FAR_AWAY, Kind.LARGE, Kind.SPIKE, Kind.TINY, Kind.MINUTE, Kind.AS_IT_IS)


def not_finite_places(values: Any) -> np.ndarray | None:
    """Where an array of numbers is drawn infinite or NaN, which stays; None for one that is finite, or
    a mask of one number and infinity."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind == "f"):
        return None
    places = ~np.isfinite(values)
    return places if places.any() and len(np.unique(values[~places])) > 1 else None


def never_positive(values: Any) -> bool:
    """True for an array of which every draw is negative or zero."""
    return changeable(values) and bool(values.max() <= 0 and values.min() < 0)


def stressed(
    inputs: Sequence[Any],
    outputs: Shapes,
    generator: np.random.Generator,
    severity: Severity,
    apart: Container[int] = (),
) -> list[Any]:
    """`inputs` with their vectors changed; integers, booleans and plain values stay. `outputs` are
    the shapes of what the reference makes of them. Of those whose rows are `apart`, as those that determine the outputs'
    rows are, some vectors of one value or far from zero are so in several inputs."""
    extreme = rows_of_outputs(inputs, outputs)
    named = _named(inputs, extreme)
    changed = [
        _stressed(value, generator, severity, named, extreme=number == extreme)
        if changeable(value)
        else value
        for number, value in enumerate(inputs)
    ]
    for number in (n for n, value in enumerate(inputs) if n in apart and changeable(value)):
        value = inputs[number]
        if number != extreme and extreme in apart and value.shape == inputs[extreme].shape:
            rows, others = (changed[n].reshape(-1, value.shape[-1]) for n in (number, extreme))
            _move_together(rows, others, generator, severity)
    for number in (n for n, value in enumerate(inputs) if n != extreme and changeable(value)):
        if _alike_in_kind(inputs[extreme], inputs[number]):
            rows, others = (changed[n].reshape(-1, changed[n].shape[-1]) for n in (number, extreme))
            near = generator.random(len(rows)) < NEAR
            spread = generator.normal(0, NEARLY, (int(near.sum()), rows.shape[1]))
            rows[near] = others[near] * (1 + spread).astype(rows.dtype)
    return changed


def _move_together(
    rows: np.ndarray, others: np.ndarray, generator: np.random.Generator, severity: Severity
) -> None:
    """Moves some vectors away from zero, in place, where those beside them lie there as well."""
    with np.errstate(all="ignore"):
        far = others.std(axis=1, dtype=np.float64) * FAR[0] <= np.abs(others.mean(axis=1))
    chosen = np.flatnonzero(far & (generator.random(len(rows)) < TOGETHER))
    kinds = np.full(len(chosen), Kind.FAR_AWAY)
    moved = rows[chosen]
    if len(chosen):
        _apply(moved, kinds, generator, severity.factor, signed=bool(rows.min() < 0))
    rows[chosen] = moved


def _alike_in_kind(one: np.ndarray, other: np.ndarray) -> bool:
    """True for vectors of formats below float32 of which one may be nearly another: of one shape, size and signs."""
    if one.shape != other.shape or one.ndim < 2 or (one.min() < 0) != (other.min() < 0):
        return False
    with np.errstate(over="ignore"):
        if not any((one == one.astype(form)).all() for form in (np.float16, ml_dtypes.bfloat16)):
            return False
    sizes = np.sqrt([np.mean(np.square(v, dtype=np.float64)) for v in (one, other)])
    return bool(sizes.max() <= ALIKE * sizes.min())


def _named(inputs: Sequence[Any], extreme: int) -> np.ndarray | None:
    """Which element of each vector of an input another input names: by its number, as a label, or as the only one
    that is not zero there."""
    if extreme < 0 or not (width := np.shape(inputs[extreme])[-1:]):
        return None
    arrays = ((n, v) for n, v in enumerate(inputs) if isinstance(v, np.ndarray) and v.size)
    for value in (array for number, array in arrays if number != extreme):
        if value.dtype.kind in "iu" and value.size * width[0] == inputs[extreme].size:
            if value.min() >= 0 and value.max() < width[0]:
                return np.asarray(value.reshape(-1))
        elif value.shape == inputs[extreme].shape:
            there = value.reshape(-1, *width) != 0
            if (np.count_nonzero(there, axis=1) == 1).all():
                return np.asarray(there.argmax(axis=1))
    return None


def changeable(value: Any) -> bool:
    """True for an array of finite floating-point numbers that is not a mask."""
    if not (isinstance(value, np.ndarray) and value.size and value.dtype.kind == "f"):
        return False
    sample = value.reshape(-1)[:: max(1, value.size // SAMPLE)]
    mask = value.size > 2 and len(np.unique(sample)) == 2
    return bool(np.isfinite(sample).all()) and not mask


def rows_of_outputs(inputs: Sequence[Any], outputs: Shapes) -> int:
    """The input that an output's rows stem from: the first of the largest that share its first
    dimension, or, where none does, of all."""
    arrays = [number for number, value in enumerate(inputs) if changeable(value)]
    leading = {shape[0] for shape in outputs if shape}
    alike = [number for number in arrays if inputs[number].shape[:1] and inputs[number].ndim > 1]
    alike = [number for number in alike if inputs[number].shape[0] in leading]
    return max(alike or arrays, key=lambda number: int(inputs[number].size), default=-1)


def _rows(values: np.ndarray, *, whole: bool) -> np.ndarray:
    """A copy as vectors along the last axis; an array with one axis is one (`whole`), or every
    element of it is."""
    width = values.shape[-1] if values.ndim > 1 or whole else 1
    return np.array(values).reshape(-1, width)


def _stressed(
    values: np.ndarray, generator: Any, severity: Severity, named: Any, *, extreme: bool
) -> np.ndarray:
    values = varied(values, generator)
    # A vector that all others share, as a gain of shape (1, D), hides all where it is zero: its elements differ.
    alone = not extreme and values.size == max(values.shape, default=1)
    rows = _rows(values.reshape(-1) if alone else values, whole=extreme)
    kinds = generator.choice(len(Kind), size=len(rows), p=_EXTREME if extreme else _MILD)
    if values.size == 1:
        kinds[kinds == Kind.ZERO] = Kind.AS_IT_IS
    if extreme and len(rows) < FEW_VECTORS:
        kinds = np.resize(np.array(_IN_TURN), len(rows))
    elif extreme:  # of the first and the last, where remainders are cut, there is one each
        kinds[0] = kinds[-1] = Kind.SPIKE
    if not (severity.zeros and (extreme or severity.ties)):
        kinds[np.isin(kinds, _WITH_ZEROS)] = Kind.AS_IT_IS
    _apply(rows, kinds, generator, severity.factor, signed=bool(values.min() < 0), named=named)
    return rows.reshape(values.shape)


def varied(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """An array of one value (a gain of ones, a bias of zeros) as it is meant: of any values."""
    first = values.reshape(-1)[0]
    if values.size == 1 or not (values == first).all():
        return values
    low, high = (0.0, 1.0) if first == 0 else (0.5, 1.5)
    factors = generator.uniform(low, high, values.shape).astype(values.dtype)
    return factors if first == 0 else factors * first


def _apply(
    rows: np.ndarray,
    kinds: np.ndarray,
    generator: np.random.Generator,
    severity: float,
    *,
    signed: bool,
    named: np.ndarray | None = None,
) -> None:
    """Changes vectors to their kinds, in place. Some spikes are at the element that is `named`, and of numbers of both
    signs some stay as small as they were: all others lie far below, or above."""
    count, width = rows.shape
    places = _places(count, width, generator)
    picked = rows[np.arange(count), places]
    tiny, large, minute = np.full((3, count), ((TINY,), (severity,), (MINUTE,)))
    if count >= FEW_VECTORS:  # of all sizes, and half of the large ones as large as may be
        spread = generator.permutation(np.arange(count) / count)
        tiny, large[::2] = 0.1 * (10 * TINIEST) ** spread, severity ** spread[::2]
        minute[::2] = 0.1 * TINIEST * SMALLER ** spread[::2]
    factors = np.select(
        [kinds == kind for kind in (Kind.ZERO, Kind.TINY, Kind.LARGE, Kind.MINUTE, Kind.HUGE)],
        [0.0, tiny, large, minute, HUGE],
        1.0,
    )
    rows *= factors.astype(rows.dtype)[:, None]
    constant = kinds == Kind.CONSTANT
    rows[constant] = picked[constant, None]
    halves = np.flatnonzero((kinds == Kind.HALVES) & rows.any(axis=1))
    size = np.sqrt(np.mean(np.square(rows[halves], dtype=np.float64), axis=1, keepdims=True))
    rows[halves] = np.rint(2 * rows[halves] / size) / 2
    one_hot = np.flatnonzero(kinds == Kind.ONE_HOT)
    rows[one_hot] = 0
    rows[one_hot, places[one_hot]] = picked[one_hot] * rows.dtype.type(severity)
    for kind in (Kind.SPIKE, Kind.FAR_AWAY):
        chosen = np.flatnonzero(kinds == kind)
        if not len(chosen):
            continue
        size = np.sqrt(np.mean(np.square(rows[chosen]), axis=1)) + np.finfo(np.float32).tiny
        far = size * severity * np.resize(FAR[::-1], len(chosen))
        if signed:
            far[2::3] *= -1
        far = far.astype(rows.dtype)
        if kind is Kind.SPIKE:
            places = _places(len(chosen), width, generator, ends=True)
            if named is not None:
                places[2::2] = named[chosen[2::2]]
            if signed:
                below = np.arange(len(chosen)) % 4 >= 2
                rows[chosen[below]] -= far[below, None]
                far[below] = picked[chosen[below]] * rows.dtype.type(SMALL)
            rows[chosen, places] = far
        elif count < FEW_VECTORS:
            for row, distance in zip(chosen, far, strict=True):
                rows[row] = _far_away(rows[row], float(distance), generator)
        else:
            rows[chosen] += far[:, None]


def _far_away(row: np.ndarray, distance: float, generator: np.random.Generator) -> np.ndarray:
    """A vector moved away from zero where chance is left out: to the one of some places, at most at
    `distance`, that tells most. Numbers of few bits are among them: there even long sums are nearly
    exact."""
    drawn = distance * generator.uniform(0.5, 1, PLACES)
    powers = 2.0 ** (np.floor(np.log2(max(distance, TINY))) - np.arange(6))
    places = np.concatenate([drawn, np.outer(powers, (1, 1.25, 1.5, 1.75)).ravel()])
    moved = row - row.mean() + places[:, None].astype(row.dtype)
    nudged = moved * (1 + generator.choice((-UNIT, UNIT), row.shape).astype(row.dtype) * 2)
    return np.asarray(moved[np.argmax(_telling(moved, nudged))])


def _telling(rows: np.ndarray, nudged: np.ndarray) -> np.ndarray:
    """How much more each row's E[x^2] - E[x]^2 is off by in float32 than honest rounding allows its
    mean to be, which shows in sums of values `nudged` by a unit; 0 where another honest mean (of
    values divided before they are added, kept up to date, of a part) would be off by more than that."""
    count, scale = np.float32(rows.shape[1]), np.abs(rows).max(axis=1)
    mean, spread = rows.mean(axis=1, dtype=np.float64), rows.std(axis=1, dtype=np.float64)
    shows = np.maximum(_off([t / count for t in _in_lines(nudged)], mean), 2 * UNIT * scale)
    first = rows[:, :MOST_STEPS]
    honest = _off(_in_lines(rows * (1 / count)), mean)
    honest = np.maximum(honest, _off([_running_mean(first)], first.mean(axis=1, dtype=np.float64)))
    part = rows[:, :PART]
    mean_of_part = _in_lines(part)[0] / np.float32(part.shape[1])
    honest = np.maximum(honest, _off([mean_of_part], part.mean(axis=1, dtype=np.float64)))
    with np.errstate(all="ignore"):  # a row of one element has no spread, and tells nothing
        wrong = [np.abs(found / spread**2 - 1) for found in _variances_by_squares(rows)]
        wrong.append(np.ones_like(mean))  # more than all is no more than all
        told = np.square(np.minimum.reduce(wrong)) * spread / shows
    return np.where(honest > ANOTHER * shows, 0, np.nan_to_num(told))


def _off(found: Sequence[np.ndarray], true: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum.reduce([np.abs(one - true) for one in found]))


def _in_lines(rows: np.ndarray) -> list[np.ndarray]:
    """The sums of rows, one term after another, from both ends."""
    return [np.add.accumulate(r, axis=1)[:, -1] for r in (rows, rows[:, ::-1])]


def _running_mean(rows: np.ndarray) -> np.ndarray:
    """Welford's mean."""
    mean: np.ndarray = rows[:, 0].copy()
    factors = 1 / np.arange(1, rows.shape[1] + 1, dtype=rows.dtype)
    for value, factor in zip(np.ascontiguousarray(rows.T), factors, strict=True):
        mean += (value - mean) * factor
    return mean


def _variances_by_squares(rows: np.ndarray) -> Iterator[np.ndarray]:
    """E[x^2] - E[x]^2 in float32: summed in pairs and in a line, divided before or after."""
    count, squares = np.float32(rows.shape[1]), np.square(rows)
    sums = (squares.sum(axis=1), rows.sum(axis=1)), (_in_lines(squares)[0], _in_lines(rows)[0])
    for square, total in sums:
        mean = total / count
        yield square / count - mean * mean
        yield (square - total * mean) / count


def _places(
    count: int, width: int, generator: np.random.Generator, *, ends: bool = False
) -> np.ndarray:
    """A place in each vector: all parts of the width in turn, so that none is left out by luck.
    With `ends`, the first two are the last and the first of the width, where remainders are
    forgotten and conditions are off by one."""
    start = generator.uniform()
    spread = (start + np.arange(count) * 0.6180339887498949) % 1  # the golden ratio: evenly
    places = np.minimum((spread * width).astype(np.int64), width - 1)
    if ends:
        places[:2] = (width - 1, 0)[:count]
    return places


def one_sided(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` in which no sum cancels: every vector has one sign. Inputs take turns: of the first,
    third, ... an eighth is positive and large, some are huge, and the others have signs of their own, the second,
    fourth, ... are negative throughout. So some products of two inputs are large and negative in
    every term, as attention's scores must be before a mask of -100 shows."""
    changed: list[Any] = []
    turn = 0
    throughout, falls = np.zeros(0, bool), np.zeros(0)
    extreme = rows_of_outputs(inputs, outputs)
    for number, value in enumerate(inputs):
        if not changeable(value):
            changed.append(value)
            continue
        values = varied(value, generator)
        signed = bool(values.min() < 0)
        rows = _rows(values, whole=number == extreme)
        if signed:
            np.abs(rows, out=rows)
        if turn % 2:
            rows *= rows.dtype.type(np.sqrt(severity.factor))
            if len(rows) == len(throughout):  # a shift of all that a row is made of
                rows[throughout] *= rows.dtype.type(HUGE)
            signs = np.full(len(rows), -1)
        else:
            signs = generator.choice((-1, 1), len(rows))
            eighth = max(1, len(rows) // 8)
            signs[:eighth] = 1
            kinds = generator.choice(len(Kind), size=len(rows), p=_ONE_SIDED)
            kinds[:eighth] = Kind.LARGE
            if number == extreme and len(rows) < FEW_VECTORS:
                kinds = np.resize(np.array(_THEN), len(rows))
                if severity.largest > HUGE:
                    kinds[kinds == Kind.MINUTE] = Kind.HUGE
            if not severity.zeros:
                kinds[np.isin(kinds, _WITH_ZEROS)] = Kind.AS_IT_IS
            huge = kinds == Kind.HUGE  # throughout: a mask of -10,000 shows beside such a row alone
            rows[huge] += rows[huge].mean(axis=1, keepdims=True)
            throughout = huge & (signs < 0) if signed and number == extreme else throughout
            _apply(rows, kinds, generator, severity.factor, signed=False)
            if number == extreme and len(rows) >= FEW_VECTORS:
                falls = np.where(
                    kinds == Kind.AS_IT_IS, generator.choice((1, *FALLS), len(rows)), 1
                )
            if severity.largest > HUGE and (huge := kinds == Kind.HUGE).any():
                most = severity.largest / np.abs(rows[huge]).max(axis=1, keepdims=True)
                powers = generator.uniform(0, 1, most.shape)
                powers[::2] = 1
                rows[huge] *= (most**powers).astype(rows.dtype)
        if values.shape == np.shape(inputs[extreme]) and len(rows) == len(falls):
            rows[:, -(-rows.shape[1] // BEGINNING) :] *= falls[:, None].astype(rows.dtype)
        if signed:
            rows *= signs.astype(rows.dtype)[:, None]
        changed.append(rows.reshape(values.shape))
        turn += 1
    return changed


def swept(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` that take an element-wise function through its range: of the inputs of an output's
    shape each has a stretch of its elements in which it goes through `_range`, while the others stay
    as they were drawn. Neighbours are alike, so the tolerance is as fine as it can be."""
    found = [
        number
        for number, value in enumerate(inputs)
        if changeable(value) and value.shape in set(outputs)
    ]
    changed = list(inputs)
    for turn, number in enumerate(found):
        values = np.array(inputs[number])
        signed = bool(values.min() < 0)
        flat = values.reshape(-1)
        start, stop = (len(flat) * (turn + step) // len(found) for step in (0, 1))
        through = _range(stop - start, generator, severity.factor)
        # Where conditions have their numbers.
        through[::HALVES] = np.rint(2 * through[::HALVES]) / 2
        flat[start:stop] = through if signed else np.abs(through)
        changed[number] = values
    return changed


def at_thresholds(
    inputs: Sequence[Any], thresholds: Mapping[int, set[float]], generator: np.random.Generator
) -> list[Any]:
    """`inputs` of which every so many elements are, but for the sign, a number that the reference compares
    what it makes of them with: at `x > 0.3` there are 0.3 and -0.3."""
    changed = list(inputs)
    for number, found in thresholds.items():
        numbers = sorted({one for value in found if np.isfinite(value) for one in (value, -value)})
        if numbers and changeable(inputs[number]):
            value = np.array(inputs[number])
            some = value.reshape(-1)[HALVES // 2 :: HALVES]
            drawn = generator.choice(numbers, some.shape)
            some[...] = drawn if value.min() < 0 else np.abs(drawn)
            changed[number] = value
    return changed


def with_exact_scale(
    inputs: Sequence[Any], factors: Mapping[int, set[float]], generator: np.random.Generator
) -> list[Any]:
    """`inputs` of which every line along every axis has the same largest and smallest element: a number, and
    its negative, by which the reference multiplies or divides. Of few bits, so that a scale made of both is a power
    of two and halves stay halves; the others are multiples of a half that come back from any such product
    and quotient."""
    changed = list(inputs)
    for number, found in factors.items():
        few = [abs(one) for one in found if _odd(one) > 1]
        if not few or not changeable(inputs[number]):
            continue
        value, factor = np.array(inputs[number]), np.float32(max(few))
        steps = np.arange(-2 * factor, 2 * factor, dtype=np.float32) / 2
        of = np.stack([steps, steps + factor])  # itself, and beside the smallest
        back = [of / factor * factor, of * (1 / factor) * factor]  # whatever is divided first
        steps = steps[(of == back).all(axis=(0, 1)) & in_few_bits(steps)]
        steps = steps[(steps != 0) | (value.min() <= 0)]
        if not steps.size:
            continue
        drawn = generator.choice(steps, value.shape)
        places = sum(np.indices(value.shape, sparse=True)) % EXTREMES
        drawn = np.where(places == 0, factor, np.where(places == EXTREMES // 2, -factor, drawn))
        changed[number] = (np.abs(drawn) if value.min() >= 0 else drawn).astype(value.dtype)
    return changed


def _odd(number: float) -> int:
    """The odd part of a number of few bits; 0 for others."""
    mantissa = math.frexp(number)[0] * (1 << FEW_BITS) if math.isfinite(number) else 0.5
    if mantissa != int(mantissa) or not mantissa or not 2 < abs(number) < LARGEST_SCALE:
        return 0
    return abs(int(mantissa)) // (int(mantissa) & -int(mantissa))


def few_bits(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` of small multiples of a half: many are equal, many lie halfway between integers, and
    what only adds, multiplies and rounds is exact. Of the first all, of the others powers of two; the milder,
    the smaller."""
    most = max(1, round(9 * min(1.0, severity.factor / SEVERITIES[0].factor) ** 0.5))

    def halves(value: np.ndarray, *, first: bool) -> np.ndarray:
        found = generator.integers(-most, most + 1, value.shape) / 2
        # By whose largest element a scale of few bits divides.
        found[::2] = np.clip(found[::2], -4, 4)
        if not first:
            powers = generator.integers(-1, 2 if most > 4 else 1, value.shape)
            found = np.copysign(2.0**powers, found)
        found = np.abs(found) if value.min() >= 0 else found
        found[(found == 0) & (value.min() > 0)] = 1.5
        size = np.sqrt(np.mean(np.square(value, dtype=np.float64)))
        if 0 < size < SMALL:  # as a scale, by which sums stay within the format they are rounded to
            small = np.ldexp(found, round(np.log2(size)))
            found = np.where(generator.random(value.shape) < 0.5, small, found)
        return np.asarray(found, value.dtype)

    able = [number for number, value in enumerate(inputs) if changeable(value)]
    largest = max(able, key=lambda number: int(inputs[number].size), default=-1)
    sizes = {n: np.size(value) for n, value in enumerate(inputs)}
    if able and max(np.shape(inputs[largest])) == sizes[largest] < max(sizes.values()):
        largest = -1  # a vector beside arrays of integers is a scale
    return [
        halves(value, first=number == largest) if number in able else value
        for number, value in enumerate(inputs)
    ]


def larger_at_the_end(inputs: Sequence[Any], outputs: Shapes, severity: Severity) -> list[Any]:
    """`inputs` of which those that do not determine the outputs' rows have their last eighth larger, by a power of
    two: scores that a mask hides from most rows are far above those that these rows see. Along the axis over which
    no product with the rows sums."""
    changed, factor = list(inputs), 2.0 ** max(0, round(math.log2(severity.factor)))
    extreme = rows_of_outputs(inputs, outputs)
    for number, value in enumerate(inputs):
        if number == extreme or not changeable(value) or value.ndim < 2:
            continue
        axis = -1 if value.shape[-2] == inputs[extreme].shape[-1] else -2
        lines = np.moveaxis(np.array(value), axis, 0)
        if len(lines) >= FEW_VECTORS:
            lines[-(len(lines) // 8) :] *= factor
            changed[number] = np.ascontiguousarray(np.moveaxis(lines, 0, axis))
    return changed


def small(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` that are small throughout: what is added to a norm of all elements, and the least that their
    largest is taken for, decide there."""
    factor = TINIEST * 10 ** generator.uniform(0, 2)
    return [
        np.asarray(value * value.dtype.type(factor)) if changeable(value) else value
        for value in inputs
    ]


def far_from_zero(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` of which the one that determines the outputs' rows lies far away from zero as a whole: whatever a
    mean is taken over, it is large beside the spread."""
    number = rows_of_outputs(inputs, outputs)
    changed = [varied(value, generator) if changeable(value) else value for value in inputs]
    value, distance = inputs[number], severity.factor * FAR[0]
    if value.size <= FEW_ELEMENTS:  # all may have one mean
        size = np.sqrt(np.mean(np.square(value, dtype=np.float64)))
        moved = _far_away(value.reshape(-1), float(distance * size), generator)
        changed[number] = moved.reshape(value.shape)
    else:
        changed[number] = _moved(value, distance * generator.uniform(0.5, 1))
    return changed


def _moved(value: np.ndarray, times: float) -> np.ndarray:
    """`value` with so many times its size added to each element."""
    size = np.sqrt(np.mean(np.square(value, dtype=np.float64)))
    return np.asarray(value + value.dtype.type(times * size))


def cancelling(inputs: Sequence[Any], generator: np.random.Generator) -> Iterator[list[Any]]:
    """`inputs` of which sums along the last axis of one, or the first, are small and of few bits at their end, and large on the
    way; the others are ones."""
    ones = [np.ones_like(one) if changeable(one) else one for one in inputs]
    for number, value in enumerate(inputs):
        if not changeable(value) or value.ndim < 2 or value.min() >= 0:
            continue
        for axis in (-1, 0):
            changed = np.full_like(np.moveaxis(value, axis, -1), BESIDE)
            changed[..., ::2] = -BESIDE
            changed[..., :LEFT_OVER] = BESIDE
            changed = generator.permuted(changed, axis=-1)
            changed[..., 0], changed[..., -1] = CANCELS, -CANCELS
            yield [*ones[:number], np.moveaxis(changed, -1, axis), *ones[number + 1 :]]


def is_less_its_mean(
    forward: Callable[[Sequence[Any]], Sequence[np.ndarray]],
    inputs: Sequence[Any],
    outputs: Sequence[np.ndarray],
) -> bool:
    """True where outputs stay what they are when the input that determines their rows is moved as a whole, and are a
    multiple of that when it is twice as large: what is less its mean, a variance, or made of both, not a softmax."""
    number = rows_of_outputs(inputs, [one.shape for one in outputs])
    if number < 0 or np.ndim(inputs[number]) < 2:
        return False

    def alike(other: np.ndarray, powers: Sequence[int], within: float) -> bool:
        found = forward([*inputs[:number], other, *inputs[number + 1 :]])
        return all(
            any(np.abs(a - 2.0**p * b).max() <= within * np.abs(b).max() for p in powers)
            for a, b in zip(found, outputs, strict=True)
            if b.size
        )

    value = inputs[number]
    twice = value * value.dtype.type(2)
    return alike(_moved(value, 1.0), (0,), INVARIANT) and alike(twice, range(-2, 3), SCALED)


def all_in_each(
    forward: Callable[[Sequence[Any]], Sequence[np.ndarray]],
    inputs: Sequence[Any],
    outputs: Sequence[np.ndarray],
) -> bool:
    """True where the first element of an output depends on the last of the input that determines its rows, and
    the last on the first, as by a norm of all."""
    number = rows_of_outputs(inputs, [one.shape for one in outputs])
    if number < 0:
        return False
    for place, end in ((-1, 0), (0, -1)):
        other = np.array(inputs[number])
        other.flat[place] += 4 * np.abs(other).max()
        found = forward([*inputs[:number], other, *inputs[number + 1 :]])
        both = zip(found, outputs, strict=True)
        if not any(one.size and one.flat[end] != before.flat[end] for one, before in both):
            return False
    return True


def selects(inputs: Sequence[Any], outputs: Sequence[np.ndarray], *, least: float = 0) -> bool:
    """True where outputs are elements of `inputs`, but for the sign, as a maximum: no number of the format is too
    large for who finds them. Asked of some elements, or of all that are larger than `least`, where infinities and
    NaN aside every one must be."""
    given = [value for value in inputs if changeable(value)]
    found = [one for one in outputs if one.dtype.kind == "f"]
    if least:
        sizes = map(np.abs, given)
        large = np.concatenate([[np.inf], *(one[one > least] for one in sizes)])
        above = (one[(one > least) & np.isfinite(one)] for one in map(np.abs, found))
        return all(np.isin(one, large).all() for one in above)
    some = (one.flat[:: one.size // (FEW_VECTORS * FEW_VECTORS) + 1] for one in found)
    samples = (np.abs(one[np.isfinite(one)]) for one in some)
    asked = [number for one in samples for number in one[:: one.size // FEW_VECTORS + 1]]
    for number in asked:
        if not any((one == number).any() or (one == -number).any() for one in given):
            return False
    return bool(asked)


def not_finite(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` with NaN and infinities, in each vector of other kinds; some vectors stay as they are."""

    def spoiled(value: np.ndarray) -> np.ndarray:
        found = _rows(value, whole=True)
        kinds = (generator.permutation(len(found)) + 4) % (len(_SPOILED) + 1)
        for kind, (share, specials) in enumerate(_SPOILED):
            places = (kinds == kind)[:, None] & (generator.random(found.shape) < share)
            found[places] = generator.choice(specials, np.count_nonzero(places))
        found = found.reshape(value.shape)
        if value.min() < 0:  # what stands for NaN shows beside others that are less
            found[::4] = -np.abs(found[::4])
        return found

    return [
        spoiled(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
        for value in inputs
    ]


def elementwise(
    forward: Callable[[Sequence[Any]], Sequence[np.ndarray]],
    inputs: Sequence[Any],
    outputs: Shapes,
    generator: np.random.Generator,
) -> bool:
    """True where some input is the argument of an element-wise function: when half of the elements
    of every input of the output's shape change, the outputs of the others are the same bit for bit."""
    shapes = {value.shape for value in inputs if changeable(value)}
    if len(set(outputs)) != 1 or outputs[0] not in shapes:
        return False
    changed = generator.random(outputs[0]) < 0.5
    others = [
        np.where(changed, np.roll(value, 1), value)
        if changeable(value) and value.shape == changed.shape
        else value
        for value in inputs
    ]
    return all(
        np.array_equal(before[~changed], after[~changed], equal_nan=before.dtype.kind == "f")
        for before, after in zip(forward(inputs), forward(others), strict=True)
    )


def _range(count: int, generator: np.random.Generator, severity: float) -> np.ndarray:
    """`count` numbers: where functions bend (within 2 and 20 of zero), farther out, and all powers
    of ten."""
    reach, least = severity / SEVERITIES[0].factor, 34 + TOP
    ends = (np.cumsum((0, 0.4, 0.15, 0.2, 0.13, 0.12)) * count).round().astype(int)
    sizes = [stop - start for start, stop in pairwise(ends)]
    near, nearer, far, below, above = (
        (np.arange(size) + generator.uniform()) / max(size, 1) for size in sizes
    )
    straight = 20 * (2 * near - 1), 2 * (2 * nearer - 1), 100 * reach * (2 * far - 1)
    powers = -(10 ** (TOP * reach - least * below)), 10 ** (TOP * reach - least * (1 - above))
    return np.concatenate([*straight, *powers])
