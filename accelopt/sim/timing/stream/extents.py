"""What a mask leaves of a tile, counted.

An instruction works on every column that some partition still has, a transfer moves the elements that
remain. Conditions are taken together: two that say the same leave as much as one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from accelopt.sim.affine import LoopVariable
from accelopt.sim.mask import Mask

MAX_POINTS = 1 << 26
"""Oblique masks over more points than this cost as if they left all of the tile."""

IndexValues = dict[LoopVariable, np.ndarray]


class Extent(NamedTuple):
    """What is left in every iteration, each (n,) int64; 0 where nothing is."""

    partitions: np.ndarray  # that have any element left
    columns: np.ndarray  # free positions that any partition has left
    moved: np.ndarray  # elements of each of those partitions, rounded up


class _Oblique(NamedTuple):
    """A condition on several axes at once: `slack + sum(coefficient * axis) >= 0`."""

    coefficients: tuple[int, ...]  # of every axis
    slack: np.ndarray


def masked_extent(mask: Mask, shape: tuple[int, ...], values: IndexValues, n: int) -> Extent:
    """What a mask over the axes of `shape` leaves in each of n iterations."""
    shape = shape or (1,)
    low = np.zeros((len(shape), n), np.int64)
    high = np.repeat(np.array(shape, np.int64)[:, None], n, axis=1)  # the one after the last
    oblique: dict[tuple[int, ...], np.ndarray] = {}
    for coefficients, slack in _conditions(mask, len(shape), values, n):
        axes = [axis for axis, factor in enumerate(coefficients) if factor]
        if not axes:
            high[0] = np.where(slack >= 0, high[0], 0)
        elif len(axes) == 1:
            axis = axes[0]
            if coefficients[axis] > 0:
                low[axis] = np.maximum(low[axis], -slack)
            else:
                high[axis] = np.minimum(high[axis], slack + 1)
        else:
            known = oblique.get(coefficients)
            oblique[coefficients] = slack if known is None else np.minimum(known, slack)
    size = np.maximum(high - low, 0)
    size[:, (size == 0).any(axis=0)] = 0
    if not oblique:
        columns = size[1:].prod(axis=0, dtype=np.int64)
        columns = np.where(size[0] > 0, columns, 0)
        return Extent(size[0], columns, columns)
    return _count(low, size, [_Oblique(*item) for item in oblique.items()], shape)


def _conditions(
    mask: Mask, rank: int, values: IndexValues, n: int
) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """The coefficients of all axes, in lowest terms, and what the rest amounts to, (n,)."""
    found: list[tuple[tuple[int, ...], np.ndarray]] = []
    for constraint in mask.constraints:
        rest, strides = constraint.split()
        coefficients = [strides.get(axis - rank, 0) for axis in range(rank)]
        divisor = math.gcd(*coefficients) or 1
        slack = np.broadcast_to(rest.evaluate_many(values), (n,)) // divisor
        found.append((tuple(factor // divisor for factor in coefficients), slack))
    return found


def _count(
    low: np.ndarray, size: np.ndarray, oblique: list[_Oblique], shape: tuple[int, ...]
) -> Extent:
    """Iterations that leave the same are counted once."""
    keys = np.concatenate((low, size, [_clipped(one, shape) for one in oblique])).T
    classes, which = np.unique(keys, axis=0, return_inverse=True)
    exact = len(classes) * math.prod(shape) <= MAX_POINTS
    rank = len(shape)
    counted = np.array(
        [
            _left(row[:rank], row[rank : 2 * rank], row[2 * rank :], oblique if exact else [])
            for row in classes.tolist()
        ]
    )
    return Extent(*counted[which.reshape(-1)].T)


def _clipped(one: _Oblique, shape: tuple[int, ...]) -> np.ndarray:
    """The slack, with all values alike for which the condition always holds, or never."""
    reach = [factor * (n - 1) for factor, n in zip(one.coefficients, shape, strict=True)]
    least, most = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    clipped: np.ndarray = np.clip(one.slack, -most - 1, -least)
    return clipped


def _left(
    low: list[int], size: list[int], slack: list[int], oblique: list[_Oblique]
) -> tuple[int, int, int]:
    """Partitions, columns and elements of each partition of one box of the tile."""
    kept = np.ones(size, bool)
    for one, constant in zip(oblique, slack, strict=False):
        total: np.ndarray = np.array(constant)
        for axis, (factor, first, n) in enumerate(zip(one.coefficients, low, size, strict=True)):
            steps = factor * np.arange(first, first + n)
            total = total + steps.reshape([-1 if axis == at else 1 for at in range(len(size))])
        kept &= total >= 0
    partitions = int(kept.reshape(size[0], -1).any(axis=1).sum()) if kept.size else 0
    columns = int(kept.any(axis=0).sum())
    return partitions, columns, -(-int(kept.sum()) // max(partitions, 1))
