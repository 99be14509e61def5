"""The scalar functions of expressions, in NumPy, for fp64 as for fp32."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from accelopt.special_functions import erf, normal_cdf

Function = Callable[..., np.ndarray]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # to 0
        return np.asarray(1 / (1 + np.exp(-x)))


def _normal_density(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi)))


def _silu_dx(x: np.ndarray) -> np.ndarray:
    gate = _sigmoid(x)
    return np.asarray(gate * (1 + x * (1 - gate)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


def _gelu_sigmoid_dx(x: np.ndarray) -> np.ndarray:
    steep = 1.702 * x
    gate = _sigmoid(steep)
    return np.asarray(gate + steep * gate * (1 - gate))


def _rounded(name: str) -> Function:
    form = np.dtype(getattr(ml_dtypes, name, name))

    def rounded(x: np.ndarray) -> np.ndarray:
        return x if x.dtype == np.float64 else x.astype(form).astype(x.dtype)

    return rounded


COMMUTES = frozenset("add multiply maximum minimum equal not_equal logical_and logical_or".split())
"""Functions of two arguments whose order is all one."""
ROUNDINGS = {
    name: _rounded(name)
    for name in ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2")
}
"""Rounding to a format, by the format's name; nothing where values are exact (fp64)."""


def _converted(name: str) -> Function:
    limits = np.iinfo(name)

    def converted(x: np.ndarray) -> np.ndarray:
        whole = np.nan_to_num(np.rint(x), nan=0.0)
        return np.asarray(np.clip(whole, limits.min, limits.max), x.dtype)

    return converted


COMPARISONS = frozenset("equal not_equal less less_equal greater greater_equal".split())
CONVERSIONS = {
    name: _converted(name) for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32")
}
"""To the nearest whole number, of two the even one, that an integer format has, by the format's name."""

FUNCTIONS: dict[str, Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.true_divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "mod": np.remainder,
    "fmod": np.fmod,
    "abs_max": lambda x, y: np.maximum(np.abs(x), np.abs(y)),
    "abs_min": lambda x, y: np.minimum(np.abs(x), np.abs(y)),
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": lambda x: np.equal(x, 0),
    "select": lambda p, x, y: np.asarray(np.where(p, x, y)),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": np.square,
    "reciprocal": lambda x: 1 / x,
    "abs": np.abs,
    "negative": np.negative,
    "sign": np.sign,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "silu_dx": _silu_dx,
    "tanh": np.tanh,
    "gelu": lambda x: x * normal_cdf(x),
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": _gelu_sigmoid_dx,
    "gelu_dx": lambda x: normal_cdf(x) + x * _normal_density(x),
    "erf": erf,
    "erf_dx": lambda x: np.exp(-x * x) * (2 / math.sqrt(math.pi)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arctan": np.arctan,
    "softplus": lambda x: np.logaddexp(x, 0),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    **ROUNDINGS,
    **CONVERSIONS,
}
"""By name. `select` chooses by its first argument; comparisons give 1 and 0."""
