"""Norms in float64 over large arrays, a block at a time so that no copy of the whole is made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 1 << 20


def blocks(count: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices of at most `size` that cover `count` elements."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def l2(values: np.ndarray) -> float:
    """The Euclidean norm, accumulated in float64."""
    flat = values.reshape(-1)
    total = 0.0
    for part in blocks(flat.size):
        wide = flat[part].astype(np.float64)
        total += float(wide @ wide)
    return float(np.sqrt(total))


def l2_difference(a: np.ndarray, b: np.ndarray) -> float:
    """The Euclidean norm of `a - b`; the difference is taken in the common format of the two."""
    left, right = a.reshape(-1), b.reshape(-1)
    total = 0.0
    for part in blocks(left.size):
        wide = (left[part] - right[part]).astype(np.float64)
        total += float(wide @ wide)
    return float(np.sqrt(total))


def row_norms(values: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
    """The norm of every row (last axis) of `values`, or of `values - other`; float64, flat."""
    width = values.shape[-1] if values.ndim > 1 else min(128, values.size) or 1
    if values.size % width:
        width = values.size
    rows = values.reshape(-1, width)
    others = None if other is None else other.reshape(-1, width)
    norms = np.empty(len(rows))
    for part in blocks(len(rows), max(1, BLOCK // width)):
        chunk = rows[part] if others is None else rows[part] - others[part]
        wide = chunk.astype(np.float64)
        norms[part] = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return norms
