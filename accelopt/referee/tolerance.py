"""How far an honest fp32 kernel may be from the exact result, element by element.

Samples of honest rounding are taken for each element: the error of the reference itself in fp32
against float64, and what the float64 result changes by when every input moves by half a unit in the
last place of fp32 (a backward-stable algorithm is the exact result of such inputs). A sample may be
small by luck, so what is usual among neighbours counts too: in absolute size, as in a matrix
product, and relative to the value, as after exp(). And a function of single elements may round on
the scale of its argument: x * sigmoid(x) by way of tanh does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.referee.norms import blocks
from accelopt.referee.reference import Reference

UNIT = 2.0**-24
NEIGHBOURS = 32
# How much worse than the samples an honest algorithm with another order of operations may be.
SLACK = 16.0
# Below this an engine may flush to zero, and so may exp() of a very negative number.
UNDERFLOW = 1e-30
# Elements known to this relative accuracy are resolved: a kernel that loses them skipped them.
RESOLVED = 1e-4
MOVES = 2


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
        wide = [_wide(value) for value in inputs]
        exact = reference.forward(wide)
        samples = [_sample(reference, wide, generator, exact) for _ in range(MOVES)]
    except ConfigError:
        # A reference that insists on fp32: what its own result changes by is the sample there is.
        exact = expected
        samples = [_sample(reference, inputs, generator, exact, 2 * UNIT) for _ in range(MOVES)]
    return tuple(
        _with_tolerance(output, rounded, noises, _argument_scale(output, inputs))
        for output, rounded, *noises in zip(exact, expected, *samples, strict=True)
    )


def _sample(
    reference: Reference,
    inputs: Sequence[Any],
    generator: np.random.Generator,
    exact: tuple[np.ndarray, ...],
    unit: float = UNIT,
) -> list[np.ndarray]:
    """What each output changes by when the inputs move; float32, to keep it small."""
    moved = reference.forward([_moved(value, generator, unit) for value in inputs])
    with np.errstate(all="ignore"):
        return [
            np.subtract(near, true, out=np.empty(true.shape, np.float32), casting="unsafe")
            for near, true in zip(moved, exact, strict=True)
        ]


def _argument_scale(output: np.ndarray, inputs: Sequence[Any]) -> list[np.ndarray]:
    """The inputs that an element-wise function would have as arguments."""
    return [
        value.reshape(-1)
        for value in inputs
        if isinstance(value, np.ndarray) and value.shape == output.shape and value.dtype.kind == "f"
    ]


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


def _with_tolerance(
    exact: np.ndarray,
    expected: np.ndarray,
    noises: Sequence[np.ndarray],
    arguments: Sequence[np.ndarray],
) -> Exact:
    shape, count = exact.shape, exact.size
    exact, expected = exact.reshape(-1), expected.reshape(-1)
    values = np.empty(count, np.float32)
    allowed = np.empty(count, np.float32)
    resolved = np.empty(count, np.bool_)
    with np.errstate(all="ignore"):
        for part in blocks(count):
            true = exact[part].astype(np.float64)
            noise = np.abs(expected[part] - true)
            for sample in noises:
                noise = np.maximum(noise, np.abs(sample.reshape(-1)[part]))
            scale = 2 * np.abs(true)
            for argument in arguments:
                scale = np.maximum(scale, np.abs(argument[part]))
            values[part] = true
            allowed[part] = _allowed(true, noise, scale)
            magnitude = np.abs(true)
            resolved[part] = (magnitude > UNDERFLOW) & (noise < RESOLVED * magnitude)
    return Exact(values.reshape(shape), allowed.reshape(shape), resolved.reshape(shape))


def _allowed(true: np.ndarray, noise: np.ndarray, scale: np.ndarray) -> np.ndarray:
    magnitude = np.abs(true)
    unusable = ~(np.isfinite(noise) & np.isfinite(true))
    usable = np.where(unusable, 0.0, noise)
    relative = np.divide(usable, magnitude, out=np.zeros_like(usable), where=magnitude > 0)
    smooth = np.maximum(_usual(usable), _usual(relative) * magnitude)
    allowed = SLACK * np.maximum.reduce([usable, smooth, UNIT * scale]) + UNDERFLOW
    allowed[unusable | (magnitude > np.finfo(np.float32).max)] = np.inf
    return np.asarray(allowed)


def _usual(noise: np.ndarray) -> np.ndarray:
    """The upper quartile of each group of neighbours, for every element of the group."""
    padding = -len(noise) % NEIGHBOURS
    groups = np.pad(noise, (0, padding)).reshape(-1, NEIGHBOURS)
    rank = NEIGHBOURS * 3 // 4
    quartile = np.partition(groups, rank, axis=1)[:, rank]
    return np.repeat(quartile, NEIGHBOURS)[: len(noise)]
