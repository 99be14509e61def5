"""Hidden inputs by which every term of a long sum counts: of millions, none can be left out unseen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from accelopt.kernels.nki.referee.stress import HUGE, Severity, Shapes, changeable, varied

# Sums over at least this many elements for each output could lose one unseen.
LONG_SUM = 1 << 14
MOST_OF_ONE_SIGN = 1 << 18  # terms of a sum in which one is more than honest rounding of them all
KEPT = 4096  # elements that stay where the end decides: each still counts in a sum of them all


def decided_at_the_end(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` of which little is left but their ends: zero except for the first and the last
    elements, those of some rows, and some anywhere. A sum of millions shows a single one of them."""

    def ends(value: np.ndarray) -> np.ndarray:
        drawn = _alike(varied(value, generator)).reshape(-1)
        values, width = np.zeros_like(drawn), value.shape[-1]
        starts = np.arange(0, values.size, width)
        starts = np.append(starts[:: max(1, len(starts) // KEPT)], starts[-1])
        anywhere = generator.integers(0, values.size, KEPT)
        kept = np.concatenate([anywhere, starts, starts + width - 1])
        values[kept] = drawn[kept]
        largest = np.abs(drawn[-1])
        values[-1] = 2 * largest
        if drawn.min() < 0 and values.size > 1:
            values[-2] = -2 * largest
        return values.reshape(value.shape)

    return [ends(value) if changeable(value) else value for value in inputs]


def every_one_counts(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` that are the same power of two everywhere, with the signs that they have: sums of up to
    2^24 of them are exact in float32 in any order, and lie so near zero that one less shows. Where
    all have one sign, some stay: of more, one would be lost in honest rounding."""

    def one_size(value: np.ndarray) -> np.ndarray:
        drawn = varied(value, generator)
        if drawn.min() < 0 < drawn.max():
            return _alike(drawn)
        stay = MOST_OF_ONE_SIGN * _smallest(outputs) / drawn.size
        return np.where(generator.random(drawn.shape) < stay, _alike(drawn), 0).astype(drawn.dtype)

    return [one_size(value) if changeable(value) else value for value in inputs]


def all_negative(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """`inputs` as drawn, of which those that have both signs are below zero throughout: what begins with zero
    is the largest of them, and their negatives' least. Where nothing is reckoned with them they are as large as
    may be."""

    def below(value: np.ndarray) -> np.ndarray:
        drawn = varied(value, generator)
        if severity.largest > HUGE:
            parts = 1 + np.abs(drawn) / np.abs(drawn).max()
            drawn = np.copysign(parts * parts.dtype.type(severity.largest), drawn)
        return -np.abs(drawn) if drawn.min() < 0 else drawn

    return [below(value) if changeable(value) else value for value in inputs]


def all_positive(
    inputs: Sequence[Any], outputs: Shapes, generator: np.random.Generator, severity: Severity
) -> list[Any]:
    """The same above zero: what begins with zero is the least of them."""
    found = all_negative(inputs, outputs, generator, severity)
    return [np.abs(value) if changeable(value) else value for value in found]


def without_some(
    inputs: Sequence[Any], changed: Sequence[Any], count: int, generator: np.random.Generator
) -> list[Any]:
    """What was `changed` of `inputs` in float64, in each so many elements zero that are not."""

    def wide(value: np.ndarray) -> np.ndarray:
        found = value.astype(np.float64)
        left = np.flatnonzero(found)
        found.reshape(-1)[generator.choice(left, min(count, len(left)), replace=False)] = 0
        return found

    return [wide(c) if changeable(v) else c for v, c in zip(inputs, changed, strict=True)]


def inexact(
    inputs: Sequence[Any], changed: Sequence[Any], generator: np.random.Generator
) -> list[Any]:
    """What was `changed` of `inputs`, times a number of many bits each: sums of such numbers round as
    sums usually do."""
    return [
        c * c.dtype.type(generator.uniform(1, 2)) if changeable(v) else c
        for v, c in zip(inputs, changed, strict=True)
    ]


def _alike(values: np.ndarray) -> np.ndarray:
    """The signs of `values`, times the power of two that is nearest to their usual size: every
    format holds it, and no element is small by luck."""
    usual = np.sqrt(np.mean(np.square(values), dtype=np.float64)) or 1.0
    return np.asarray(np.copysign(2.0 ** np.round(np.log2(usual)), values), values.dtype)


def long_sums(inputs: Sequence[Any], outputs: Shapes) -> bool:
    """True where an output's element may be a sum of very many."""
    return any(
        changeable(value) and value.size >= LONG_SUM * _smallest(outputs) for value in inputs
    )


def _smallest(outputs: Shapes) -> int:
    return max(1, min((int(np.prod(shape)) for shape in outputs), default=1))
