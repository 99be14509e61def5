"""What may stand for an operation: nl functions, NumPy functions, or names."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim.errors import KernelTypeError
from accelopt.sim.operators import BINARY, REDUCTIONS, UNARY
from accelopt.sim.tracer import current

_FROM_NUMPY = {
    np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide",
    np.maximum: "maximum", np.minimum: "minimum", np.max: "maximum", np.amax: "maximum",
    np.min: "minimum", np.amin: "minimum", np.sum: "add", np.prod: "multiply",
    np.equal: "equal", np.not_equal: "not_equal", np.less: "less", np.greater: "greater",
    np.less_equal: "less_equal", np.greater_equal: "greater_equal", np.power: "power",
    np.mod: "mod", np.fmod: "fmod", np.exp: "exp", np.square: "square", np.copy: "copy",
    np.sqrt: "sqrt", np.log: "log", np.tanh: "tanh", np.abs: "abs", np.absolute: "abs",
    np.reciprocal: "reciprocal", np.negative: "negative", np.sign: "sign", np.sin: "sin",
    np.cos: "cos", np.tan: "tan", np.arctan: "arctan", np.floor: "floor", np.ceil: "ceil",
    np.trunc: "trunc", np.mean: "mean", np.var: "variance",
    np.logical_and: "logical_and", np.logical_or: "logical_or", np.logical_xor: "logical_xor",
    np.logical_not: "logical_not", np.bitwise_and: "bitwise_and", np.bitwise_or: "bitwise_or",
    np.bitwise_xor: "bitwise_xor", np.left_shift: "left_shift", np.right_shift: "right_shift",
    np.invert: "invert", np.all: "logical_and",
}  # fmt: skip

_FROM_LANGUAGE = {"max": "maximum", "min": "minimum", "sum": "add", "prod": "multiply",
                  "var": "variance", "all": "logical_and", "divide": "divide"}  # fmt: skip


ACTIVATIONS = frozenset(
    "copy square sigmoid relu gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid silu silu_dx tanh "
    "softplus mish erf erf_dx exp log sin arctan sqrt rsqrt reciprocal sign abs".split()
)
"""Functions of the Scalar engine (SDK 2.26.1 `nki.api.shared.rst`, "Supported Activation
Functions")."""


def op_name(op: Any, kind: frozenset[str] = BINARY | UNARY | REDUCTIONS) -> str:
    """The canonical name of an op token; KernelTypeError when it is none of `kind`."""
    name = op if isinstance(op, str) else _FROM_NUMPY.get(op) if _hashable(op) else None
    if name is None:
        name = getattr(op, "__name__", type(op).__name__)
    name = _FROM_LANGUAGE.get(name, name)
    if name not in kind:
        raise current().blamed(
            KernelTypeError(
                "unsupported_op",
                f"operation '{name}' is not supported here.",
                f"Use one of: {', '.join(sorted(kind))}.",
            )
        )
    return name


def _hashable(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None
