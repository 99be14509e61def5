"""What the names of `operators.py` compute, elementwise, in float32 (bitwise ones on integers): the
functions of `algorithm.functions`, written into an array.

Every function takes a last argument `out`, which may be one of the others: `binary(name)(x, y, out)`
and `unary(name)(x, out)`. Those that kernels use most allocate nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from accelopt.algorithm.functions import FUNCTIONS, Function

Binary = Callable[[np.ndarray, np.ndarray, np.ndarray], object]
Unary = Callable[[np.ndarray, np.ndarray], object]


def _copy(x: np.ndarray, out: np.ndarray) -> None:
    if x is not out:
        np.copyto(out, x)


def _rsqrt(x: np.ndarray, out: np.ndarray) -> None:
    np.sqrt(x, out)
    np.reciprocal(out, out)


def _relu(x: np.ndarray, out: np.ndarray) -> None:
    np.maximum(x, np.float32(0), out)


def _sigmoid(x: np.ndarray, out: np.ndarray) -> None:
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, np.float32(1), out)
    np.reciprocal(out, out)


def _logical_right_shift(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    shifted = np.right_shift(np.asarray(x).view(unsigned), np.asarray(y).astype(unsigned))
    return np.asarray(shifted.view(x.dtype))


def _into(function: Function) -> Callable[..., object]:
    """The function, written into its last argument."""
    if isinstance(function, np.ufunc):
        return function
    return lambda *given: np.copyto(given[-1], function(*given[:-1]))


_BITWISE: dict[str, Function] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "logical_left_shift": np.left_shift,
    "right_shift": _logical_right_shift,
    "logical_right_shift": _logical_right_shift,
    "arithmetic_shift_right": np.right_shift,
    "invert": np.invert,
}
_IN_PLACE: dict[str, Unary] = {
    "copy": _copy,
    "rsqrt": _rsqrt,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "reciprocal": np.reciprocal,
}
_WRITTEN: dict[str, Callable[..., object]] = {
    **{name: _into(function) for name, function in (FUNCTIONS | _BITWISE).items()},
    **_IN_PLACE,
}


def binary(name: str) -> Binary:
    """The function of two tiles for an op name."""
    return _WRITTEN[name]


def unary(name: str) -> Unary:
    """The function of one tile for an op name."""
    return _WRITTEN[name]


_IDENTITIES: dict[str, float | int] = {
    "add": 0,
    "subtract": 0,
    "multiply": 1,
    "maximum": -math.inf,
    "minimum": math.inf,
    "bitwise_and": -1,
    "bitwise_or": 0,
    "bitwise_xor": 0,
    "logical_and": 1,
    "logical_or": 0,
    "logical_xor": 0,
    "mean": 0,
    "variance": 0,
}


def identity(name: str, dtype: np.dtype) -> float | int:
    """The value that leaves a reduction unchanged, in a compute dtype."""
    value = _IDENTITIES[name]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if value == -1 and dtype.kind == "u":
            return int(limits.max)
        if not math.isfinite(value):
            return int(limits.min if value < 0 else limits.max)
    return value


def reduce(
    name: str, values: np.ndarray, axes: tuple[int, ...], out: np.ndarray | None = None
) -> np.ndarray:
    """A reduction over axes of float32 (or, for bitwise ops, integer) values, axes kept with
    length 1. A `subtract` reduction takes the first element minus all others, in order."""
    if name == "add" and values.ndim == 2 and axes == (1,):
        result = np.einsum("ij->i", values)[:, None]  # twice as fast as add.reduce
    elif name == "mean":
        result = np.mean(values, axis=axes, keepdims=True)
    elif name == "variance":
        result = np.var(values, axis=axes, keepdims=True)
    elif name == "subtract":
        result = _subtract_reduce(values, axes)
    elif name.startswith("logical"):
        truth = values.astype(bool)
        result = getattr(np, name).reduce(truth, axis=axes, keepdims=True)
    else:
        ufunc = _WRITTEN[name]
        assert isinstance(ufunc, np.ufunc)
        reduced: np.ndarray = ufunc.reduce(values, axis=axes, keepdims=True, out=out)
        return reduced
    if out is None:
        return np.asarray(result, dtype=values.dtype)
    np.copyto(out, result)
    return out


def _subtract_reduce(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    first = values[tuple(slice(0, 1) if k in axes else slice(None) for k in range(values.ndim))]
    total = np.add.reduce(values, axis=axes, keepdims=True)
    return np.asarray(first + first - total)
