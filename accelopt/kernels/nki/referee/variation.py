"""Other arguments than `get_inputs` gives: plain numbers, rows of tables that it never asks for, and
other shapes; and other orders.

A kernel that has its eps or the first hundred rows of a table built in computes something else than
its reference, though no public draw shows it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import zlib
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.stress import SAMPLE
from accelopt.kernels.nki.referee.uses import Uses

Forward = Callable[[Sequence[Any]], object]

ORDER = (
    "in program order it is right: the iterations of nl.affine_range and the programs of a launch run "
    "in another order here, as they may on a core; use nl.sequential_range where one needs another's "
    "result"
)
LEFT_CHANGED = (
    "the kernel changes an argument that it does not return, and what is left there is not judged: {}. Return the "
    "argument as well, or write to a new array."
)
DEPENDENT = (
    "iterations of nl.affine_range and programs of a launch may run in any order, and these need each "
    "other: {}; use nl.sequential_range there"
)

PARTITIONS = 128  # of a tile: dimensions are cut by whole ones
BLOCK = 8  # tiles, the most that kernels take at once
LEAST = 2 * PARTITIONS  # dimensions below are heads, states, taps

NONE_SET = 0.1  # of the rows of a mask
MANY_LEFT = 0.6  # of the numbers of indices
OTHERWISE = 0.3  # of the elements of a mask of which none is drawn otherwise
FEW = 8  # elements of a mask of one row that say otherwise than the others
MORE_BITS = 4  # of integers that results in floating point are made of
MOST_BITS = 52  # that float64 holds
# Smaller or larger than given: of numbers below one a power, so that a slope or an eps stays below. From a half
# on a number may be a temperature, and is tried above one, as far as a reference is defined there.
SHRINK = (0.1, 0.2)
MAY_BE_LARGER = 0.5
PLAIN, WHOLE = (float, np.floating), (int, np.integer)


def other_numbers(
    inputs: Sequence[Any],
    generator: np.random.Generator,
    reckoned: Container[int] = (),
    *,
    larger: bool = False,
    most: float = 1,
) -> list[Any]:
    """`inputs` with every plain floating-point number, and whole ones that are `reckoned` with, made smaller, or
    `larger`: those from `most` on by a factor, the others by a power; other whole numbers, which may be sizes, and
    booleans stay. A whole number above zero stays above."""
    factor = generator.uniform(*SHRINK)

    def other(value: Any) -> Any:
        if not larger:
            least = min(value, 1) if isinstance(value, WHOLE) else -np.inf
            return max(value * factor, least)
        return np.copysign(abs(value) ** factor, value) if abs(value) < most else value / factor

    concerned = [n in reckoned or isinstance(v, PLAIN) for n, v in enumerate(inputs)]
    return [type(v)(other(v)) if c else v for v, c in zip(inputs, concerned, strict=True)]


def numbers_reckoned_with(
    reference: Reference, inputs: Sequence[Any], given: Sequence[Any]
) -> set[int]:
    """Which inputs are plain whole numbers that are no sizes: the reference takes them as floating-point numbers
    too, and makes the same of what is `given` (some rows of `inputs`), of one more as many; and a kernel is told."""
    found = set()
    for number, value in enumerate(inputs):
        if not isinstance(value, WHOLE) or isinstance(value, bool):
            continue
        with contextlib.suppress(ConfigError):
            true, same, more = (
                reference.forward(exchanged(given, number, by))
                for by in (value, float(value), value + 1)
            )
            is_number = all(map(np.array_equal, true, same))
            is_number &= [*map(np.shape, true)] == [*map(np.shape, more)]
            if is_number and _is_told(reference, inputs, exchanged(inputs, number, value + 1)):
                found.add(number)
    return found


def exchanged(inputs: Sequence[Any], number: int, value: Any) -> list[Any]:
    """`inputs` with another one of a number."""
    return [*inputs[:number], value, *inputs[number + 1 :]]


def _is_told(reference: Reference, before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether a kernel is called otherwise."""
    return not all(map(np.array_equal, *map(reference.kernel_inputs, (before, after))))


def masks(inputs: Sequence[Any], uses: Uses) -> dict[int, Any]:
    """The inputs that are masks (of two numbers, or conditions) or have marks (labels that are ignored), with
    the value of what is set: the larger, or the mark."""
    found: dict[int, Any] = {}
    for number, value in enumerate(inputs):
        if not (isinstance(value, np.ndarray) and value.size > 1 and value.dtype.kind in "biuf"):
            continue
        marked = uses.marks.get(number, set()) if value.dtype.kind in "iu" else set()
        sample = np.unique(value.reshape(-1)[:: max(1, value.size // SAMPLE)])
        if len(sample) == 2 and len(np.unique(value)) == 2:
            found[number] = sample[1]
        elif marked:
            found[number] = min(marked)
    return found


def other_masks(
    inputs: Sequence[Any],
    set_to: Mapping[int, Any],
    draws: Sequence[Mapping[int, Any]],
    generator: np.random.Generator,
    *,
    more: bool,
    counted: Container[int] = (),
) -> list[Any]:
    """`inputs` of whose masks more, or fewer, elements are set than in any draw: where one of several `draws`
    sets one, or where all do, so that what none or each sets stays so, as above a diagonal. In half of the
    rows, or of the elements of the only one, of which a few stay; where each has as many set, as one of many, and where no
    row had none or all, that stays, but for some of those that are `counted`: who sees to it that a count is above zero
    takes none."""
    changed = list(inputs)
    for number, high in set_to.items():
        value = np.array(inputs[number])
        width = value.shape[-1] if value.ndim > 1 and value.shape[-1] > 1 else value.size
        others = (draw[number] for draw in draws)
        rows = [np.asarray(one).reshape(-1, width) for one in (value, *others)]
        counts = np.array([np.count_nonzero(one == high, axis=1) for one in rows])
        if (counts == counts.flat[0]).all():
            continue
        found = value.reshape(-1, width)
        chosen = generator.random((len(found), 1) if len(found) > 1 else found.shape) < 0.5
        for one in rows[1:]:
            other = np.where(((one == high) == more) & ((found == high) != more), one, found)
            number_set = np.count_nonzero(other == high, axis=1)
            least = 0 if len(found) > 1 else FEW
            legal = (number_set > least) | (counts.min() <= least)
            legal &= (number_set < width - least) | (counts.max() >= width - least)
            found = np.where(chosen & legal[:, None], other, found)
        if number in counted and not more and value.dtype.kind in "bf":
            found = np.array(found)
            found[generator.random(len(found)) < NONE_SET] = value.min()
        changed[number] = found.reshape(value.shape)
    return changed


def few_counted(
    inputs: Sequence[Any], uses: Uses, generator: np.random.Generator, *, apart: bool | None = None
) -> Iterator[list[Any]]:
    """`inputs` of which no element counts, where the reference keeps a count of such above zero: masks without one
    that is set, labels that are all ignored, integers all on the other side of what they are compared with. Unless
    `apart` is None, one element counts in each row (True) or in all (False), of labels also without such a count."""
    set_to = masks(inputs, uses)
    for number, value in enumerate(inputs):
        if not isinstance(value, np.ndarray) or not value.size:
            continue
        if number not in uses.kept_above and (apart is None or not _is_label(value, uses, number)):
            continue
        least, most, sides = value.min(), value.max(), uses.thresholds.get(number, set())
        if number in set_to and value.dtype.kind in "bf":
            given = [least]
        elif value.dtype.kind in "iu":
            given = [*uses.marks.get(number, ())] + [least, most] * any(
                least <= t <= most for t in sides
            )
        else:
            continue
        for one in given:
            other = np.full_like(value, one)
            if apart is not None:
                rows = value.reshape(len(value) if apart else 1, -1)
                # Of those that count, drawn; of numbers on either side, that which is farthest on the other.
                far = np.abs(rows.astype(np.float64) - float(one)) * generator.random(rows.shape)
                place = np.arange(len(rows)), far.argmax(axis=1)
                other.reshape(rows.shape)[place] = rows[place]
            yield exchanged(inputs, number, other)


def _is_label(value: np.ndarray, uses: Uses, number: int) -> bool:
    """Whether there is one mark among integers that stands apart from all others, as that of a label to ignore."""
    marks = [*uses.marks.get(number, ())]
    others = value[value != marks[0]] if len(marks) == 1 and value.dtype.kind in "iu" else value
    return 0 < others.size < value.size and not others.min() <= marks[0] <= others.max()


def partly_set(
    reference: Reference, inputs: Sequence[Any], uses: Uses, generator: np.random.Generator
) -> list[Any]:
    """`inputs` of whose conditions, of which every draw is alike (a mask that lets all through), and whole ones,
    some elements say otherwise, in half of the rows, never all of one; where the reference is as defined as before
    and a kernel is told of them."""
    changed = list(inputs)
    for number, value in enumerate(inputs):
        able = isinstance(value, np.ndarray) and value.dtype.kind in "biu" and value.size > 1
        if not able or number in uses.indices or (value != value.flat[0]).any():
            continue
        if value.dtype != bool and value.flat[0] != 1:
            continue
        rows = np.array(value).reshape(-1, value.shape[-1] if value.shape[-1] > 1 else value.size)
        other = generator.random(rows.shape) < OTHERWISE
        other &= generator.random((len(rows), 1)) < (0.5 if len(rows) > 1 else 1)
        other[np.arange(len(rows)), generator.integers(rows.shape[1], size=len(rows))] = False
        said = np.where(other, 1 - rows.astype(np.int8), rows).astype(value.dtype)
        trial = exchanged(changed, number, said.reshape(value.shape))
        with contextlib.suppress(ConfigError):
            told = _is_told(reference, changed, trial)
            if told and (_is_defined(reference, trial) or not _is_defined(reference, changed)):
                changed = trial
    return changed


def _is_defined(reference: Reference, inputs: Sequence[Any]) -> bool:
    return all(np.isfinite(one).all() for one in reference.forward(inputs))


def other_signs(inputs: Sequence[Any]) -> list[Any] | None:
    """`inputs` with every plain floating-point number negated; None where there is none but zeros."""
    return _changed_plain(inputs, PLAIN, lambda value: -value)


def other_flags(inputs: Sequence[Any]) -> list[Any] | None:
    """`inputs` with every flag the other way; None where there is none."""
    return _changed_plain(inputs, (bool, np.bool_), lambda value: not value)


def _changed_plain(
    inputs: Sequence[Any], kinds: tuple[type, ...], change: Callable[[Any], Any]
) -> list[Any] | None:
    concerned = [isinstance(value, kinds) and bool(change(value) != value) for value in inputs]
    pairs = zip(inputs, concerned, strict=True)
    return [type(v)(change(v)) if c else v for v, c in pairs] if any(concerned) else None


def other_rows(
    forward: Forward,
    inputs: Sequence[Any],
    generator: np.random.Generator,
    marks: Mapping[int, Collection[float]],
) -> list[Any]:
    """`inputs` with every integer array that `forward` takes for row numbers drawn from all rows; what is one of the
    `marks`, as a label that is ignored, stays."""
    changed = list(inputs)
    for number, value in enumerate(inputs):
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            rows = ~np.isin(value, [*marks.get(number, ())])
            count = _rows_of_table(forward, changed, number, rows)
            if count is not None:
                changed[number] = np.array(value)
                own = value if rows.all() else value[rows]
                changed[number][rows] = _drawn(own, count, generator).reshape(-1)
    return changed


def _rows_of_table(
    forward: Forward, inputs: Sequence[Any], number: int, rows: np.ndarray
) -> int | None:
    """How many rows the table has that input `number` counts where it has `rows`: the largest dimension of another
    input at which `forward` takes the last row, and refuses one more. None when there is none."""
    index = inputs[number][rows]
    if not index.size or index.min() < 0:
        return None
    sizes = {
        size
        for other, value in enumerate(inputs)
        if other != number and isinstance(value, np.ndarray)
        for size in value.shape
        if index.max() < size <= np.iinfo(index.dtype).max
    }
    for size in sorted(sizes, reverse=True):
        if _takes(forward, inputs, number, rows, size - 1):
            return None if _takes(forward, inputs, number, rows, size) else size
    return None


def _takes(
    forward: Forward, inputs: Sequence[Any], number: int, rows: np.ndarray, row: int
) -> bool:
    asked = np.array(inputs[number])
    asked.reshape(-1)[np.flatnonzero(rows)[-1]] = row
    try:
        forward(exchanged(inputs, number, asked))
    except ConfigError:
        return False
    return True


def _drawn(index: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Row numbers of the same shape from all of `count`, the last one and the first among them; sorted, and all
    different, where those given are."""
    different = len(np.unique(index)) == index.size
    if different:
        drawn = generator.choice(count, index.size, replace=False)
    else:
        drawn = generator.integers(0, count, index.size)
    if count - 1 not in drawn:
        drawn[generator.integers(drawn.size)] = count - 1
    between = np.flatnonzero((drawn > 0) & (drawn < count - 1))
    if 0 not in drawn and between.size:
        drawn[generator.choice(between)] = 0
    drawn, axis = drawn.reshape(index.shape).astype(index.dtype), _sorted_along(index)
    return drawn if axis is None else np.sort(drawn, axis)


def other_integers(
    reference: Reference,
    inputs: Sequence[Any],
    uses: Uses,
    generator: np.random.Generator,
    as_drawn: float = 0,
) -> list[Any]:
    """`inputs` with integers as large, as small and as many as their use allows: the rows of a table;
    what lengths are compared with; for those only reckoned with, the range of their format as far as
    results in integers fit into theirs, or some times what was drawn where there are none. Order and
    difference stay, and so do flags, what some are compared with one by one, and a part `as_drawn` of lengths. Some
    lines are all of one number that was drawn, as far as the reference takes such."""
    changed = other_rows(reference.forward, inputs, generator, uses.marks)
    whole: bool | None = None  # whether there are outputs of integers
    picks = uses.picks and not reference.agreement.rules  # of equal ones it takes any
    for number, value in enumerate(inputs):
        if not (isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu"):
            continue
        if changed[number] is not value or (value.min() >= 0 and value.max() <= 1):
            continue  # rows of a table, or flags
        marked = np.isin(value, [*uses.marks.get(number, ())])
        drawn = _ends(value if marked.all() else value[~marked])
        if number in uses.indices or marked.all():
            ranges = [drawn]
        elif number in uses.compared:
            low, high = uses.compared[number]
            # Who takes none for one, or has a domain that leaves it, is given none as well.
            none = number in uses.kept_above or reference.has_domain
            starts = (min(drawn[0], max(least, int(low))) for least in ((0, 1) if none else (1,)))
            ranges = [*((start, max(drawn[1], int(high))) for start in starts), drawn]
        else:
            if whole is None:
                whole = any(output.dtype.kind in "iub" for output in reference.forward(inputs))
            bits = 8 * value.itemsize if whole else drawn[1].bit_length() + MORE_BITS
            ranges = [*_wider(value, *drawn, bits), drawn]
        kept = marked
        lengths = number in uses.lengths
        ordered = _sorted_along(value) is not None or (_different(value) and not lengths)
        if number in uses.compared and value.size >= FEW and not ordered:
            kept = marked | (generator.random(value.shape) < as_drawn)
            # What stands out stands at the far end, and what is short at the near one.
            kept.flat[[0, -1]] = marked.flat[[0, -1]]
        same, alike = _with_lines_alike(value, marked, generator)
        alike &= not (ordered or picks)
        reckoned = not (ordered or number in uses.compared or number in uses.indices)
        for (low, high), ends in itertools.product(ranges, (True, False) if reckoned else (False,)):
            other = _redrawn(value, low, high, generator, among=lengths, ends=ends)
            if number in uses.indices and not as_drawn and not _different(value):
                other = _without_some(other, generator)
            redrawn = np.where(kept, value, other)
            trial = exchanged(changed, number, np.where(alike, same, redrawn))
            if _fits(reference, trial):
                changed = trial
                break
        else:
            changed = exchanged(changed, number, redrawn)
    return [
        _different_in_lines(value, one) if one is not value else one
        for value, one in zip(inputs, changed, strict=True)
    ]


def _ends(value: np.ndarray) -> tuple[int, int]:
    return int(value.min()), int(value.max())


def _with_lines_alike(
    value: np.ndarray, marked: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Integers of which one of eight lines, or of the parts of one where there are few, is all of one number that
    was drawn there, and where these lines are: never the first and the last, nor what is `marked`."""
    found, alike = np.array(value), np.zeros(value.shape, bool)
    width = value.shape[-1] if value.size >= FEW * value.shape[-1] > FEW else 0
    width = width or max(1, value.size // FEW)
    count = value.size // width
    lines, places, stands_apart = (
        one.reshape(-1)[: count * width].reshape(count, width) for one in (found, alike, marked)
    )
    for line in 1 + generator.permutation(max(0, count - 2))[: count // FEW]:
        at = generator.integers(width)
        if marked.all() or not stands_apart[line, at]:
            lines[line], places[line] = lines[line, at], True
    return found, alike


def _wider(value: np.ndarray, low: int, high: int, most_bits: int) -> Iterator[tuple[int, int]]:
    """Ranges of the format of `value` beyond what was drawn, the widest first, with the signs that were
    drawn. Its least number, which has no opposite, is among them where draws from all of it come so near to it."""
    least, largest = np.iinfo(value.dtype).min, np.iinfo(value.dtype).max
    if low < 0 and (low - least) * value.size <= FEW * (high - low):
        low = int(least)
    for bits in range(min(most_bits, MOST_BITS), high.bit_length(), -1):
        most = min(int(largest), (1 << bits) - 1)
        yield (min(low, -most) if low < 0 else min(low, 1)), most


def _redrawn(
    value: np.ndarray, low: int, high: int, generator: np.random.Generator, among: bool, ends: bool
) -> np.ndarray:
    """Numbers from `low` to `high`, all powers of two of it as likely, the first as large as may be, and of both signs
    the last as well, above zero: so they meet in one element with those of other inputs; sorted, and different,
    where those of `value` are; lengths (which have their place `among` others) differ by chance alone. With `ends` the
    first line along each axis is as large as may be throughout: sums and products of such are."""
    if _different(value) and _sorted_along(value) is not None:
        return value
    if _different(value) and not among:
        return generator.permutation(value.reshape(-1)).reshape(value.shape)
    size = 2.0 ** generator.uniform(0, np.log2(max(2, high - low + 1)), value.shape)
    size[generator.random(value.shape) < 0.05] = high - min(low, 0) + 1
    size.flat[0] = high - min(low, 0) + 1
    if among:
        size.reshape(-1)[1:][-1:] = 1
    found = low + np.minimum(size - 1, high - low).astype(np.int64)
    if low < 0:
        signs = generator.choice((-1, 1), value.shape)
        signs[::4] = -1  # of a row, or of all there is, none is positive
        if (len(value) - 1) % 4:
            signs.flat[-1], size.flat[-1] = 1, size.flat[0]
        found = np.clip(signs * np.minimum(size, max(high, -low)).astype(np.int64), low, high)
    if (axis := _sorted_along(value)) is not None:
        first_and_last = (np.take(value, [end], axis) for end in (0, -1))
        found = np.clip(np.sort(found, axis), *first_and_last)
    for axis in range(value.ndim if ends else 0):
        if value.shape[axis] < value.size:
            np.moveaxis(found, axis, -1)[(0,) * (value.ndim - 1)] = high
    return found.astype(value.dtype)


def _without_some(found: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """`found` in which some of its numbers, never the least and the largest, are the next smaller one that is left: a
    segment, or a bin, may have no element."""
    numbers = np.unique(found)
    left = generator.random(len(numbers)) < MANY_LEFT
    left[[0, -1]] = True
    return np.asarray(numbers[left][np.searchsorted(numbers[left], found, "right") - 1])


def _different(value: np.ndarray) -> bool:
    return len(np.unique(value)) == value.size > 1


def _different_in_lines(value: np.ndarray, found: np.ndarray) -> np.ndarray:
    """`found`, but lines of which numbers are equal as they are given, where those of no line are."""

    def with_equal(lines: np.ndarray) -> np.ndarray:
        return np.asarray((np.diff(np.sort(lines)) == 0).any(axis=-1, keepdims=True))

    if value.ndim < 2 or with_equal(value).any():
        return found
    return np.where(with_equal(found), value, found)


def _sorted_along(value: np.ndarray) -> int | None:
    """The axis along which all lines are in order, of three or more that are not all equal."""
    for axis in reversed(range(value.ndim)):
        lines = np.moveaxis(value, axis, 0)
        if len(lines) > 2 and (lines[1:] >= lines[:-1]).all() and (lines[1:] > lines[:-1]).any():
            return axis
    return None


def _fits(reference: Reference, inputs: Sequence[Any]) -> bool:
    """True where the reference gives the same where all integers are of 64 bits, of what of `inputs` is legal."""
    with contextlib.suppress(ConfigError):  # of some rows alone, a domain may say nothing
        inputs = reference.legal(inputs)
    try:
        narrow, wide = reference.forward(inputs), reference.in_wide_integers(inputs)
    except ConfigError:
        return False
    finite = all(np.isfinite(one).all() for one in narrow)
    return finite and all(map(np.array_equal, narrow, wide))


def other_shapes(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    """`inputs` cut to other shapes that a problem may well have: all of their larger dimensions to fewer
    tiles, then each of these sizes alone, the largest first; what is beyond whole tiles stays. The same size is cut
    everywhere: it is the same dimension. Different ones stay different, and blocks of up to `BLOCK` tiles are left the
    same part as by one tile less: what is left of large ones costs little."""
    arrays = [value for value in inputs if isinstance(value, np.ndarray)]
    sizes = {size for array in arrays for size in array.shape if size >= LEAST}
    fewer = {
        size: (min(size // PARTITIONS, number * BLOCK) - 1) * PARTITIONS + size % PARTITIONS
        for number, size in enumerate(sorted(sizes), 1)
    }
    if len(sizes) > 1:
        yield [_cut(value, fewer) for value in inputs]
    for size in reversed(fewer):
        yield [_cut(value, {size: fewer[size]}) for value in inputs]


def _cut(value: Any, sizes: Mapping[int, int]) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    kept = tuple(slice(sizes.get(n, n)) for n in value.shape)
    return np.ascontiguousarray(value[kept]) if value.ndim else value


def hidden_order(inputs: Sequence[object]) -> int:
    """A seed that follows from a trial's inputs: the same each time, and as hidden as they are.

    Of those that follow it is the first whose first draw turns two iterations round.
    """
    arrays = [value for value in inputs if isinstance(value, np.ndarray)]
    seed = 1 + zlib.crc32(b"".join(array.ravel()[:64].tobytes() for array in arrays))
    while random.Random(seed).sample((0, 1), 2) == [0, 1]:
        seed += 1
    return seed
