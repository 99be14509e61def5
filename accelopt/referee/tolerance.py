"""How far an honest fp32 kernel may be from the exact result, element by element.

Two samples of honest rounding are taken for each element: the error of the reference itself in fp32
against float64, and what the float64 result changes by when every input moves by half a unit in the
last place of fp32 (a backward-stable algorithm is the exact result of such inputs). One sample may
be small by luck, so the largest of a few neighbours counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from accelopt.referee.norms import blocks
from accelopt.referee.reference import Reference

UNIT = 2.0**-24
NEIGHBOURS = 16
# How much worse than the samples an honest algorithm with another order of operations may be.
SLACK = 16.0
# Below this an engine may flush to zero, and so may exp() of a very negative number.
UNDERFLOW = 1e-30
# Elements known to this relative accuracy are resolved: a kernel that loses them skipped them.
RESOLVED = 1e-4


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
    reference: Reference, inputs: Sequence[Any], expected: tuple[np.ndarray, ...]
) -> tuple[Exact, ...]:
    """The exact outputs with their tolerances; `expected` are the reference's own in fp32."""
    generator = np.random.default_rng(0)
    try:
        exact = reference.forward([_wide(value) for value in inputs])
        moved = reference.forward([_moved(_wide(value), generator) for value in inputs])
    except (TypeError, ValueError, MemoryError):
        # A reference that insists on fp32: what its own result changes by is the sample there is.
        exact = expected
        moved = reference.forward([_moved(value, generator, 2 * UNIT) for value in inputs])
    return tuple(_with_tolerance(*outputs) for outputs in zip(exact, moved, expected, strict=True))


def _wide(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "fV":
        return value.astype(np.float64)
    return value


def _moved(value: Any, generator: np.random.Generator, unit: float = UNIT) -> Any:
    """`value` with every element moved by up to `unit` of itself; floating-point arrays only."""
    if not (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        return value
    moved = np.array(value)
    flat = moved.reshape(-1)
    for part in blocks(flat.size):
        signs = generator.integers(0, 2, flat[part].size) * (2 * unit) - unit
        flat[part] *= (1 + signs).astype(flat.dtype)
    return moved


def _with_tolerance(exact: np.ndarray, moved: np.ndarray, expected: np.ndarray) -> Exact:
    shape, count = exact.shape, exact.size
    flat = [array.reshape(-1) for array in (exact, moved, expected)]
    values = np.empty(count, np.float32)
    allowed = np.empty(count, np.float32)
    resolved = np.empty(count, np.bool_)
    with np.errstate(all="ignore"):
        for part in blocks(count):
            true, near, rounded = (array[part].astype(np.float64) for array in flat)
            noise = np.maximum(np.abs(near - true), np.abs(rounded - true))
            values[part] = true
            allowed[part] = _allowed(true, noise)
            magnitude = np.abs(true)
            resolved[part] = (magnitude > UNDERFLOW) & (noise < RESOLVED * magnitude)
    return Exact(values.reshape(shape), allowed.reshape(shape), resolved.reshape(shape))


def _allowed(true: np.ndarray, noise: np.ndarray) -> np.ndarray:
    unusable = ~(np.isfinite(noise) & np.isfinite(true))
    usable = np.where(unusable, 0.0, noise)
    padding = -len(usable) % NEIGHBOURS
    neighbours = np.pad(usable, (0, padding)).reshape(-1, NEIGHBOURS).max(axis=1)
    smooth = np.repeat(neighbours, NEIGHBOURS)[: len(usable)]
    allowed = SLACK * np.maximum(smooth, 2 * UNIT * np.abs(true)) + UNDERFLOW
    allowed[unusable | (np.abs(true) > np.finfo(np.float32).max)] = np.inf
    return np.asarray(allowed)
