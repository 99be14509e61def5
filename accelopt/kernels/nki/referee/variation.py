"""Other arguments than `get_inputs` gives: plain numbers, rows of tables that it never asks for, and
other shapes; and other orders.

A kernel that has its eps or the first hundred rows of a table built in computes something else than
its reference, though no public draw shows it.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from accelopt.errors import ConfigError

Forward = Callable[[Sequence[Any]], object]

ORDER = (
    "in program order it is right: the iterations of nl.affine_range and the programs of a launch run "
    "in another order here, as they may on a core; use nl.sequential_range where one needs another's "
    "result"
)
DEPENDENT = (
    "iterations of nl.affine_range and programs of a launch may run in any order, and these need each "
    "other: {}; use nl.sequential_range there"
)

PARTITIONS = 128  # a dimension is cut by one tile of these, which leaves it whole tiles
LEAST = 2 * PARTITIONS  # dimensions below are heads, states, taps

# Smaller than given: what is a probability or a decay stays one.
SHRINK = (0.5, 0.8)


def other_numbers(inputs: Sequence[Any], generator: np.random.Generator) -> list[Any]:
    """`inputs` with every plain floating-point number made smaller; whole numbers, which may be
    sizes, and booleans stay."""
    factors = generator.uniform(*SHRINK, len(inputs))
    return [
        type(value)(value * factor) if isinstance(value, (float, np.floating)) else value
        for value, factor in zip(inputs, factors, strict=True)
    ]


def other_signs(inputs: Sequence[Any]) -> list[Any] | None:
    """`inputs` with every plain floating-point number negated; None where there is none but zeros."""
    return _changed_plain(inputs, (float, np.floating), lambda value: -value)


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
    forward: Forward, inputs: Sequence[Any], generator: np.random.Generator
) -> list[Any]:
    """`inputs` with every integer array that `forward` takes for row numbers drawn from all rows."""
    changed = list(inputs)
    for number, value in enumerate(inputs):
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            count = _rows_of_table(forward, changed, number)
            if count is not None:
                changed[number] = _drawn(value, count, generator)
    return changed


def _rows_of_table(forward: Forward, inputs: Sequence[Any], number: int) -> int | None:
    """How many rows the table has that input `number` counts: the largest dimension of another
    input at which `forward` takes the last row, and refuses one more. None when there is none."""
    index = inputs[number]
    if index.min() < 0:
        return None
    sizes = {
        size
        for other, value in enumerate(inputs)
        if other != number and isinstance(value, np.ndarray)
        for size in value.shape
        if index.max() < size <= np.iinfo(index.dtype).max
    }
    for size in sorted(sizes, reverse=True):
        if _takes(forward, inputs, number, size - 1):
            return None if _takes(forward, inputs, number, size) else size
    return None


def _takes(forward: Forward, inputs: Sequence[Any], number: int, row: int) -> bool:
    asked = np.array(inputs[number])
    asked.reshape(-1)[-1] = row
    try:
        forward([*inputs[:number], asked, *inputs[number + 1 :]])
    except ConfigError:
        return False
    return True


def _drawn(index: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Row numbers of the same shape from all of `count`, the last one among them; all different
    where those given are."""
    different = len(np.unique(index)) == index.size
    if different:
        drawn = generator.choice(count, index.size, replace=False)
    else:
        drawn = generator.integers(0, count, index.size)
    if count - 1 not in drawn:
        drawn[generator.integers(drawn.size)] = count - 1
    return drawn.reshape(index.shape).astype(index.dtype)


def other_shapes(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    """`inputs` cut to other shapes that a problem may well have: all of their larger dimensions one
    tile shorter, then each of these sizes alone, the largest first. The same size is cut everywhere:
    it is the same dimension."""
    arrays = [value for value in inputs if isinstance(value, np.ndarray)]
    sizes = {size for array in arrays for size in array.shape}
    sizes = {size for size in sizes if size >= LEAST and size % PARTITIONS == 0}
    if len(sizes) > 1:
        yield [_cut(value, sizes) for value in inputs]
    for size in sorted(sizes, reverse=True):
        yield [_cut(value, {size}) for value in inputs]


def _cut(value: Any, sizes: set[int]) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    kept = tuple(slice(n - PARTITIONS if n in sizes else n) for n in value.shape)
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
