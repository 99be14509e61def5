"""Norms over large arrays, a block at a time: no copy of the whole, and blocks that stay in cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

BLOCK = 1 << 16
ROW = 128  # of arrays without rows of their own
NARROW = 16  # rows below are told together: one number near zero is cancellation, no small row
DIRECTIONS = 16  # in which rows are projected
PROJECTED = 1 << 21  # elements at once: a product with few columns packs all of the other factor
# Squares of float32 numbers between these neither vanish nor overflow.
_SAFE = (1e-15, 1e15)


def blocks(count: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices of at most `size` that cover `count` elements."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def l2(values: np.ndarray) -> float:
    """The Euclidean norm."""
    return float(np.sqrt(np.sum(np.square(row_norms(values)))))


def l2_difference(a: np.ndarray, b: np.ndarray) -> float:
    """The Euclidean norm of `a - b`; the difference is taken in the common format of the two."""
    return float(np.sqrt(np.sum(np.square(row_norms(a, b)))))


def row_norms(values: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
    """The norm of every row (last axis) of `values`, or of `values - other`; float64, flat.

    Squares are added in float32 along a row, where a relative error of 1e-6 does not matter, and in
    float64 where they would leave its range.
    """
    if values.dtype == bool:
        values, other = values.astype(np.int8), None if other is None else other.astype(np.int8)
    width = row_width(values.shape)
    rows = values.reshape(-1, width)
    others = None if other is None else other.reshape(-1, width)
    norms = np.empty(len(rows))
    with np.errstate(all="ignore"):
        for part in blocks(len(rows), max(1, BLOCK // width)):
            chunk = rows[part] if others is None else rows[part] - others[part]
            norms[part] = _norms(chunk)
    return norms


class Projection(NamedTuple):
    """What is kept of a large array: its rows, each multiplied by the same random `vectors` of normal numbers.
    The norm of any row's error is about that of its projection, and above four times that once in ten million (a
    chi-squared of 16 below 1)."""

    vectors: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, generator: np.random.Generator) -> Projection:
        """That of float32 `values`, in directions that are drawn."""
        shape = row_width(values.shape), DIRECTIONS
        vectors = generator.standard_normal(shape, np.float32) / np.float32(DIRECTIONS**0.5)
        return cls(vectors, _projected(values, vectors))

    def norms(self, other: np.ndarray) -> np.ndarray:
        """About what `row_norms` gives of the difference to another array."""
        return row_norms(_projected(other, self.vectors), self.rows)


def _projected(values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    width, directions = vectors.shape
    rows = values.reshape(-1, width)
    found = np.empty((len(rows), directions), np.float32)
    for part in blocks(len(rows), max(1, PROJECTED // width)):
        np.matmul(rows[part], vectors, out=found[part])
    return found


def row_width(shape: tuple[int, ...]) -> int:
    """How many elements make a row: the last axis, or a piece of an array with only one axis, or with
    narrow rows."""
    count = int(np.prod(shape))
    width = shape[-1] if len(shape) > 1 else 1
    if width >= NARROW or not count:
        return width or 1
    piece = math.lcm(width, ROW)
    return piece if count % piece == 0 else count


def _norms(rows: np.ndarray) -> np.ndarray:
    if rows.dtype != np.float32:
        return _norms_in_double(rows)
    norms: np.ndarray = np.sqrt(np.einsum("ij,ij->i", rows, rows).astype(np.float64))
    others = ~((norms > _SAFE[0]) & (norms < _SAFE[1]))
    if others.any() and (rest := rows if others.all() else rows[others]).any():
        norms[others] = _norms_in_double(rest)
    return norms


def _norms_in_double(rows: np.ndarray) -> np.ndarray:
    wide = rows.astype(np.float64)
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", wide, wide)))
