"""What the names of `operators.py` compute, elementwise, in float32 (bitwise ones on integers).

Every function writes into `out`, which may be one of its arguments, and allocates as little as it
can: `binary(name)(x, y, out)` and `unary(name)(x, out)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from accelopt.special_functions import erf, normal_cdf

Binary = Callable[[np.ndarray, np.ndarray, np.ndarray], object]
Unary = Callable[[np.ndarray, np.ndarray], object]


def _abs_max(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    np.maximum(np.abs(x), np.abs(y), out)


def _abs_min(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    np.minimum(np.abs(x), np.abs(y), out)


def _logical_right_shift(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    shifted = np.right_shift(np.asarray(x).view(unsigned), np.asarray(y).astype(unsigned))
    np.copyto(out, shifted.view(x.dtype))


_BINARY: dict[str, Binary] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.true_divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "mod": np.remainder,
    "fmod": np.fmod,
    "abs_max": _abs_max,
    "abs_min": _abs_min,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "logical_left_shift": np.left_shift,
    "right_shift": _logical_right_shift,
    "logical_right_shift": _logical_right_shift,
    "arithmetic_shift_right": np.right_shift,
}


def binary(name: str) -> Binary:
    """The function of two tiles for an op name."""
    return _BINARY[name]


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


def _sigmoid_of(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, np.float32)
    _sigmoid(x, out)
    return out


def _silu(x: np.ndarray, out: np.ndarray) -> None:
    np.multiply(x, _sigmoid_of(x), out)


def _silu_dx(x: np.ndarray, out: np.ndarray) -> None:
    gate = _sigmoid_of(x)
    np.multiply(gate, np.float32(1) + x * (np.float32(1) - gate), out)


def _erf(x: np.ndarray, out: np.ndarray) -> None:
    np.copyto(out, erf(x))


def _erf_dx(x: np.ndarray, out: np.ndarray) -> None:
    np.multiply(np.exp(-x * x), np.float32(2 / math.sqrt(math.pi)), out)


def _gelu(x: np.ndarray, out: np.ndarray) -> None:
    np.multiply(x, normal_cdf(x), out)


def _gelu_dx(x: np.ndarray, out: np.ndarray) -> None:
    density = np.exp(x * x * np.float32(-0.5)) * np.float32(1 / math.sqrt(2 * math.pi))
    np.add(normal_cdf(x), x * density, out)


def _gelu_tanh(x: np.ndarray, out: np.ndarray) -> None:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    np.multiply(np.float32(0.5) * x, np.float32(1) + np.tanh(inner), out)


def _gelu_sigmoid(x: np.ndarray, out: np.ndarray) -> None:
    np.multiply(x, _sigmoid_of(np.float32(1.702) * x), out)


def _gelu_sigmoid_dx(x: np.ndarray, out: np.ndarray) -> None:
    steep = np.float32(1.702) * x
    gate = _sigmoid_of(steep)
    np.add(gate, steep * gate * (np.float32(1) - gate), out)


def _softplus(x: np.ndarray, out: np.ndarray) -> None:
    np.logaddexp(x, np.float32(0), out)


def _mish(x: np.ndarray, out: np.ndarray) -> None:
    np.multiply(x, np.tanh(np.logaddexp(x, np.float32(0))), out)


def _logical_not(x: np.ndarray, out: np.ndarray) -> None:
    np.equal(x, 0, out)


_UNARY: dict[str, Unary] = {
    "copy": _copy,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "abs": np.abs,
    "negative": np.negative,
    "sign": np.sign,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "silu_dx": _silu_dx,
    "tanh": np.tanh,
    "gelu": _gelu,
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": _gelu_sigmoid,
    "gelu_dx": _gelu_dx,
    "gelu_apprx_sigmoid_dx": _gelu_sigmoid_dx,
    "erf": _erf,
    "erf_dx": _erf_dx,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arctan": np.arctan,
    "softplus": _softplus,
    "mish": _mish,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "invert": np.invert,
    "logical_not": _logical_not,
}


def unary(name: str) -> Unary:
    """The function of one tile for an op name."""
    return _UNARY[name]


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
        ufunc = _BINARY[name]
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
