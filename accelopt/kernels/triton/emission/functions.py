"""What the scalar functions of an Algorithm are in Triton."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from accelopt.kernels.triton.emission.schedule import NotEmitted

FLOAT_FUNCTIONS: Mapping[str, str] = {
    "add": "({0} + {1})", "subtract": "({0} - {1})", "multiply": "{0} * {1}", "divide": "({0} / {1})",
    "maximum": "tl.maximum({0}, {1})", "minimum": "tl.minimum({0}, {1})",
    "abs_max": "tl.maximum(tl.abs({0}), tl.abs({1}))", "abs_min": "tl.minimum(tl.abs({0}), tl.abs({1}))",
    "mod": "({0} - tl.floor({0} / {1}) * {1})",
    "fmod": "({0} - tl.where({0} / {1} < 0, tl.ceil({0} / {1}), tl.floor({0} / {1})) * {1})",
    "exp": "tl.exp({0})", "log": "tl.log({0})", "sqrt": "tl.sqrt({0})", "rsqrt": "tl.rsqrt({0})",
    "square": "{0} * {0}", "reciprocal": "(1.0 / {0})", "abs": "tl.abs({0})", "negative": "(-{0})",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))", "relu": "tl.maximum({0}, 0.0)",
    "sigmoid": "_sigmoid({0})", "silu": "{0} * _sigmoid({0})", "tanh": "_tanh({0})",
    "silu_dx": "_sigmoid({0}) * (1.0 + {0} * (1.0 - _sigmoid({0})))",
    "gelu": "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))",
    "gelu_apprx_tanh": "{0} * _sigmoid({0} * (1.5957691216057308 + 0.07135481282636146 * {0} * {0}))",
    "gelu_apprx_sigmoid": "{0} * _sigmoid(1.702 * {0})",
    "gelu_dx": "(0.5 * (1.0 + tl.erf({0} * 0.7071067811865476))"
               " + {0} * 0.3989422804014327 * tl.exp2(-0.7213475204444817 * {0} * {0}))",
    "erf": "tl.erf({0})", "erf_dx": "1.1283791670955126 * tl.exp2(-1.4426950408889634 * {0} * {0})",
    "sin": "tl.sin({0})", "cos": "tl.cos({0})", "tan": "(tl.sin({0}) / tl.cos({0}))",
    "softplus": "_softplus({0})", "mish": "{0} * _tanh(_softplus({0}))",
    "floor": "tl.floor({0})", "ceil": "tl.ceil({0})",
    "trunc": "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))",
}  # fmt: skip
"""Functions of fp32 values that give one."""
COMPARISONS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
               "greater_equal": ">="}  # fmt: skip
LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
FORMATS = {"float32": "tl.float32", "bfloat16": "tl.bfloat16", "float16": "tl.float16",
           "float8_e4m3": "tl.float8e4nv", "float8_e4m3fn": "tl.float8e4nv", "float8_e5m2": "tl.float8e5",
           "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8",
           "uint8": "tl.uint8", "bool": "tl.int1"}  # fmt: skip
"""Formats by NumPy's names."""
COSTLY = {"exp", "log", "sqrt", "rsqrt", "divide", "reciprocal", "sigmoid", "silu", "tanh", "silu_dx", "gelu",
          "gelu_apprx_tanh", "gelu_apprx_sigmoid", "gelu_dx", "erf", "erf_dx", "sin", "cos", "tan",
          "softplus", "mish", "power"}  # fmt: skip
"""Functions that take a result or more of the special function units."""
HELPERS = {
    "_sigmoid": '''@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))
''',
    "_tanh": '''@triton.jit
def _tanh(x):
    square = x * x
    near = x * (1.0 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    far = 1.0 - 2.0 / (1.0 + tl.exp2(2.8853900817779268 * x))
    return tl.where(tl.abs(x) < 0.1, near, far)
''',
    "_softplus": '''@triton.jit
def _softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
''',
    "_multiplied": '''@triton.jit
def _multiplied(x, y):
    return x * y
''',
    "_recurrence": '''@triton.jit
def _recurrence(factor, term, next_factor, next_term):
    return factor * next_factor, term * next_factor + next_term
''',
}  # fmt: skip
"""Functions that the kernels call, where they do."""
COMBINED = {"add": "({0} + {1})", "multiply": "({0} * {1})", "maximum": "tl.maximum({0}, {1})",
            "minimum": "tl.minimum({0}, {1})"}  # fmt: skip
OVER_AXIS = {"add": "tl.sum({0}, {1})", "maximum": "tl.max({0}, {1})", "minimum": "tl.min({0}, {1})",
             "multiply": "tl.reduce({0}, {1}, _multiplied)"}  # fmt: skip


def float_text(function: str, arguments: Sequence[str]) -> str:
    """A function of fp32 values. Raises NotEmitted."""
    if function not in FLOAT_FUNCTIONS:
        raise NotEmitted(f"the function {function} has no text in Triton")
    return closed(FLOAT_FUNCTIONS[function].format(*arguments))


def closed(text: str) -> str:
    """The text in brackets, where what stands around it could bind a part of it. Brackets more than Python needs
    are left out when the kernel is whole."""
    return text if re.fullmatch(r"[\w.]+(\([^()]*\))?", text) else f"({text})"


def power_text(base: str, exponent: float) -> str:
    """A power with a known exponent: products and roots where it is half a whole number."""
    if exponent < 0:
        return f"(1.0 / {power_text(base, -exponent)})"
    whole, half = int(exponent), exponent - int(exponent) == 0.5
    if (half or whole == exponent) and whole <= 8:
        factors = [base] * whole + [f"tl.sqrt({base})"] * half
        return closed(" * ".join(factors)) if factors else "1.0"
    return f"tl.exp({exponent!r} * tl.log({base}))"


def number_text(value: float) -> str:
    """A number in Python."""
    if math.isinf(value) or math.isnan(value):
        return f'float("{value}")'
    return repr(float(value)) if value >= 0 else f"({float(value)!r})"


def is_name(text: str) -> bool:
    """Whether a text is a variable."""
    return text.isidentifier()


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    bare = text.strip("()")
    try:
        float(bare)
    except ValueError:
        return bare.startswith('float("')
    return True


def is_whole(text: str) -> bool:
    """Whether a text is a whole number."""
    try:
        return float(text.strip("()")).is_integer()
    except ValueError:
        return False
