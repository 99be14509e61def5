"""Hidden inputs that a problem's own random draws never contain, made from one such draw.

Every vector along the last axis of every floating-point input is left as it is, or made zero,
constant, tiny, large, or all zero but for one large element: chosen for each input independently, so
that an output sees many combinations. Only non-negative factors and elements of the vector itself
are used: what is non-negative by the problem's definition (a variance) stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

TINY = 1e-3
# What `large` multiplies by; a problem in which that overflows is tried with the next.
SEVERITIES = (30.0, 6.0, 2.0)

_AS_IT_IS, _ZERO, _CONSTANT, _TINY, _LARGE, _ONE_HOT = range(6)
_WEIGHTS = (0.4, 0.12, 0.12, 0.12, 0.12, 0.12)


def stressed(inputs: Sequence[Any], generator: np.random.Generator, severity: float) -> list[Any]:
    """`inputs` with their vectors changed; integers, booleans and plain values stay."""
    return [
        _stressed(value, generator, severity)
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind == "f"
        else value
        for value in inputs
    ]


def _stressed(values: np.ndarray, generator: np.random.Generator, severity: float) -> np.ndarray:
    width = values.shape[-1] if values.ndim > 1 else 1
    rows = np.array(values).reshape(-1, width)
    count = len(rows)
    kinds = generator.choice(len(_WEIGHTS), size=count, p=_WEIGHTS)
    chosen = generator.integers(0, width, size=count)
    picked = rows[np.arange(count), chosen]
    factors = np.select(
        [kinds == _ZERO, kinds == _TINY, kinds == _LARGE], [0.0, TINY, severity], 1.0
    )
    rows *= factors.astype(rows.dtype)[:, None]
    constant = kinds == _CONSTANT
    rows[constant] = picked[constant, None]
    one_hot = np.flatnonzero(kinds == _ONE_HOT)
    rows[one_hot] = 0
    rows[one_hot, chosen[one_hot]] = picked[one_hot] * rows.dtype.type(severity)
    return rows.reshape(values.shape)
