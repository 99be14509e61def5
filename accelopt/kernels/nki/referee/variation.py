"""Other arguments than `get_inputs` gives: plain numbers, and rows of tables that it never asks for.

A kernel that has its eps or the first hundred rows of a table built in computes something else than
its reference, though no public draw shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accelopt.errors import ConfigError

Forward = Callable[[Sequence[Any]], object]

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
