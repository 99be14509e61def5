"""What NumPy's functions of single elements are of traced arrays, and of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from accelopt.algorithm.bit_operations import of_bits
from accelopt.algorithm.functions import COMPARISONS
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.traced_array import Trace, TracedArray, index_value, is_float
from accelopt.algorithm.value_nodes import (
    UNDEFINED,
    Application,
    Choice,
    Element,
    Product,
    Sum,
    Value,
)
from accelopt.algorithm.values import Values

PLAIN = {
    **{name: name for name in (
        "add subtract multiply divide maximum minimum power exp log sqrt square negative sign tanh "
        "sin cos tan arctan floor ceil trunc reciprocal fmod erf").split()},
    "true_divide": "divide", "fmax": "maximum", "fmin": "minimum", "float_power": "power",
    "absolute": "abs", "fabs": "abs", "remainder": "mod", "expit": "sigmoid", "conjugate": "copy",
    "positive": "copy", "logical_xor": "not_equal",
}  # fmt: skip
"""Ufuncs of NumPy and SciPy that are one scalar function."""
TRUTHS = {"logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "invert"}
BITS = {"bitwise_and", "bitwise_or", "invert", "bitwise_xor", "left_shift", "right_shift"}
BY_CASES = {"floor_divide", "remainder", "maximum", "minimum"}
"""Functions of whole numbers that are done by cases of their operands."""


BEYOND = 3e38
"""Numbers that large stand for infinity."""
LOG2, LOG10 = math.log(2), math.log(10)
COMPOSED: dict[str, Callable[..., Value]] = {
    "expm1": lambda f, x: f("subtract", f("exp", x), 1.0),
    "exp2": lambda f, x: f("exp", f("multiply", x, LOG2)),
    "log1p": lambda f, x: f("log", f("add", x, 1.0)),
    "log2": lambda f, x: f("multiply", f("log", x), 1 / LOG2),
    "log10": lambda f, x: f("multiply", f("log", x), 1 / LOG10),
    "cosh": lambda f, x: f("multiply", f("add", f("exp", x), f("exp", f("negative", x))), 0.5),
    "sinh": lambda f, x: f("multiply", f("subtract", f("exp", x), f("exp", f("negative", x))), 0.5),
    "logaddexp": lambda f, x, y: (
        f("softplus", x) if y == Constant(0.0) else f("add", y, f("softplus", f("subtract", x, y)))
    ),
    "hypot": lambda f, x, y: f("sqrt", f("add", f("square", x), f("square", y))),
    "heaviside": lambda f, x, y: f(
        "select", f("greater", x, 0.0), 1.0, f("select", f("equal", x, 0.0), y, 0.0)
    ),
    "deg2rad": lambda f, x: f("multiply", x, math.pi / 180),
    "cbrt": lambda f, x: f("multiply", f("sign", x), f("power", f("abs", x), 1 / 3)),
    "arcsinh": lambda f, x: f("log", f("add", x, f("sqrt", f("add", f("square", x), 1.0)))),
    "arccosh": lambda f, x: f("log", f("add", x, f("sqrt", f("add", f("square", x), -1.0)))),
    "arctanh": lambda f, x: f(
        "multiply", f("log", f("divide", f("add", x, 1.0), f("subtract", 1.0, x))), 0.5
    ),
    "arcsin": lambda f, x: f(
        "arctan", f("divide", x, f("sqrt", f("subtract", 1.0, f("square", x))))
    ),
    "copysign": lambda f, x, y: f(
        "select", f("less", y, 0.0), f("negative", f("abs", x)), f("abs", x)
    ),
    "signbit": lambda f, x: f("less", x, 0.0),
    "isfinite": lambda f, x: f("less", f("abs", x), BEYOND),
    "isinf": lambda f, x: f("greater_equal", f("abs", x), BEYOND),
    "erfc": lambda f, x: f("subtract", 1.0, f("erf", x)),
    "ndtr": lambda f, x: f("multiply", f("add", f("erf", f("multiply", x, 0.5**0.5)), 1.0), 0.5),
    "clip": lambda f, x, low, high: f("minimum", f("maximum", x, low), high),
}
"""Ufuncs that are several scalar functions, by `f` that applies one to values and numbers."""
COMPOSED["radians"] = COMPOSED["deg2rad"]


def scalar(trace: Trace, name: str, given: Sequence[Value], whole: bool) -> Value:
    """A ufunc of values; `whole` where all operands are whole numbers."""
    values = trace.values
    if whole and (name in COMPARISONS or name in BY_CASES):
        cases = _by_cases_of_indices(trace, name, given)
        if cases is not None:
            return cases
    if whole and name in ("less", "less_equal") and (parts := _least_of(given[1])):
        tests = [_moved_left(trace, name, given[0], part) for part in parts]
        return _truth(trace, "logical_and", tests)
    place = index_value(given[0]) if whole and name in ("less", "less_equal") else None
    if place is not None and (quotient := _divided(values, given[1])) is not None:
        number, by = quotient  # i < floor(n / by) where (i + 1) * by <= n, or > n - 1 of a whole n
        least = (place + (name == "less")) * by
        whole = all(
            isinstance(e, Element) and e.dtype.strip("u")[:3] == "int" for e, _ in number.terms
        )
        least, name = (least - 1, "less") if whole else (least, "less_equal")
        return _moved_left(trace, name, values.position(least), number)
    if name in COMPARISONS:
        return _compared(trace, name, *given)
    if name in TRUTHS:
        return _truth(trace, name, given)
    index = index_value(given[0])
    if name in ("floor_divide", "remainder") and index is not None and whole:
        divisor = given[1]
        if isinstance(divisor, Constant) and divisor.value == int(divisor.value) > 0:
            by = int(divisor.value)
            return values.position(index // by if name == "floor_divide" else index % by)
    if name == "floor_divide":
        return apply(values, "floor", [apply(values, "divide", given)])
    if name in ("power", "float_power") and isinstance(given[0], Constant) and given[0].value > 0:
        exponent = apply(values, "multiply", [given[1], values.number(math.log(given[0].value))])
        return scalar(trace, "exp", [exponent], False)
    if all(isinstance(part, Constant) for part in given) and name in PLAIN:
        with np.errstate(all="ignore"):
            numbers = [cast(Constant, part).value for part in given]
            if name not in ("erf", "expit"):
                return values.number(float(getattr(np, name)(*numbers)))
    if name == "rint":
        return _nearest(values, given[0])
    if name in ("maximum", "minimum") and isinstance(given[1], Constant):
        inner = _unrounded(given[0])  # between whole numbers all is one which comes first
        if inner is not None and float(given[1].value).is_integer():
            return _nearest(values, apply(values, name, [inner, given[1]]))
    if name in PLAIN:
        return apply(values, PLAIN[name], given)
    if name not in COMPOSED or (name == "heaviside" and not isinstance(given[1], Constant)):
        return trace.refuse(f"np.{name} has no definition as an Algorithm")

    def f(function: str, *arguments: Value | float) -> Value:
        made = [values.number(a) if isinstance(a, float) else a for a in arguments]
        return apply(values, function, made)

    return COMPOSED[name](f, *given)


WHOLE_FROM = 2.0**23
"""Numbers of fp32 that are at least so large are whole."""


def _nearest(values: Values, value: Value) -> Value:
    """The nearest whole number, of two the even one: a conversion to int32 of what that can hold."""
    rounded = values.same(Application("int32", (value,)))
    inner, bounds = value, set[str]()
    while isinstance(inner, Application) and inner.function in ("maximum", "minimum"):
        least, other = sorted(inner.arguments, key=lambda a: isinstance(a, Constant))
        if isinstance(other, Constant) and abs(other.value) < WHOLE_FROM:
            bounds.add(inner.function)
        inner = least
    if len(bounds) == 2:
        return rounded
    within = apply(values, "less", [apply(values, "abs", [value]), Constant(WHOLE_FROM)])
    return apply(values, "select", [within, rounded, value])


def _unrounded(value: Value) -> Value | None:
    """What `_nearest` rounds to a value; None of other values."""
    if isinstance(value, Application) and value.function == "select":
        _, near, far = value.arguments
        return far if near == Application("int32", (far,)) else None
    rounded = isinstance(value, Application) and value.function == "int32"
    return cast(Application, value).arguments[0] if rounded else None


def _by_cases_of_indices(trace: Trace, name: str, given: Sequence[Value]) -> Value | None:
    """A function of whole numbers by cases of its operands, and an extreme of an index and a number by
    cases, where it is one of the two or has one value else; None where it has no such form."""
    values = trace.values
    for n, operand in enumerate(given):
        if isinstance(operand, Choice):
            pair: list[Value] = []
            for part in (operand.on_true, operand.on_false):
                if index_value(part) is None and not isinstance(part, Choice):
                    return None
                own = [part if k == n else other for k, other in enumerate(given)]
                pair.append(scalar(trace, name, own, True))
            return values.where(operand.conditions, *pair)
    if name in ("maximum", "minimum"):
        one, other = (index_value(operand) for operand in given)
        if one is None or other is None:
            return None
        gap = one - other
        low, high = gap.bounds
        if low >= 0 or high <= 0:
            return given[(low >= 0) == (name == "minimum")]
        step = math.gcd(*(factor for _, factor in gap.terms))
        if name == "minimum" and not other.terms and low + step >= 0:  # less by one number alone
            return values.where([gap], given[1], values.number(other.constant + low))
    return None


def _compared(trace: Trace, name: str, left: Value, right: Value) -> Value:
    """1 where a comparison holds, else 0; of positions as a condition on axes."""
    values = trace.values
    one, zero = values.number(1), values.number(0)
    index = index_value(values.sum([(left, 1.0), (right, -1.0)]))
    if index is None:
        left, right = _without_common_terms(values, left, right)
        if isinstance(left, Constant):
            turned = {"less": "greater", "less_equal": "greater_equal"}
            turned |= {other: own for own, other in turned.items()}
            name, left, right = turned.get(name, name), right, left
        return values.same(Application(name, (left, right)))
    conditions = {
        "greater_equal": [index], "greater": [index - 1], "less_equal": [index * -1],
        "less": [index * -1 - 1],
    }.get(name, [index, index * -1])  # fmt: skip
    pair = (zero, one) if name == "not_equal" else (one, zero)
    return values.where(conditions, *pair)


def _without_common_terms(values: Values, left: Value, right: Value) -> tuple[Value, Value]:
    """Two sides of a comparison without the terms of both: rounded sums that are equal as numbers may differ."""
    sides: list[dict[Value, float]] = [
        dict(s.terms) if isinstance(s, Sum) else {s: 1.0} for s in (left, right)
    ]
    common = [(term, c) for term, c in sides[0].items() if sides[1].get(term) == c]
    if not common or left == right:
        return left, right
    less = [(term, -c) for term, c in common]
    return values.sum([(left, 1.0), *less]), values.sum([(right, 1.0), *less])


def _least_of(value: Value) -> tuple[Value, ...]:
    """The two numbers that a value is the least of; none where it is no such choice."""
    if not isinstance(value, Application) or value.function != "select":
        return ()
    test, *pair = value.arguments
    smaller = isinstance(test, Application) and test.function in ("less", "less_equal")
    return tuple(pair) if smaller and list(cast(Application, test).arguments) == pair else ()


def _divided(values: Values, value: Value) -> tuple[Sum, int] | None:
    """The number of which a value is a whole-number quotient, and the divisor; None of any other value."""
    if not isinstance(value, Application) or value.function != "floor":
        return None
    (inner,) = value.arguments
    parts = [*inner.terms] if isinstance(inner, Sum) else [(inner, 1.0)]
    parts = [(values.product(p.factors), f * p.coefficient) if isinstance(p, Product) else (p, f)
             for p, f in parts]  # fmt: skip
    constant = inner.constant if isinstance(inner, Sum) else 0.0
    by = round(1 / min(abs(f) for _, f in parts))
    times = [f * by for f in (*(f for _, f in parts), constant)]
    if by < 2 or any(abs(f - round(f)) > 1e-9 * max(abs(f), 1) for f in times):
        return None
    whole = [(p, float(round(f))) for (p, _), f in zip(parts, times, strict=False)]
    number = values.sum([*whole, (values.number(round(times[-1])), 1.0)])
    return (number, by) if isinstance(number, Sum) else None


def _moved_left(trace: Trace, name: str, left: Value, right: Value) -> Value:
    """A comparison of whole numbers with all positions on its left."""
    terms = right.terms if isinstance(right, Sum) else ()
    moved = [(part, -factor) for part, factor in terms if index_value(part) is not None]
    if not moved:
        return scalar(trace, name, [left, right], True)
    both = [trace.values.sum([(one, 1.0), *moved]) for one in (left, right)]
    place = trace.values.sum([(both[0], 1.0)])
    index = index_value(place)
    whole = place if index is None else trace.values.position(index)
    return scalar(trace, name, [whole, both[1]], True)


def _truth(trace: Trace, name: str, given: Sequence[Value]) -> Value:
    """Truth values together."""
    values = trace.values
    one, zero = values.number(1), values.number(0)
    if name in ("logical_not", "invert"):
        return select(trace, given[0], zero, one)
    left, right = given
    if "and" in name:
        return select(trace, left, select(trace, right, one, zero), zero)
    return select(trace, left, one, select(trace, right, one, zero))


def select(trace: Trace, chosen: Value, on_true: Value, on_false: Value) -> Value:
    """np.where of values; what nothing was assigned to may be anything."""
    values = trace.values
    if UNDEFINED in (on_true, on_false):
        return on_false if on_true is UNDEFINED else on_true
    if isinstance(chosen, Choice):
        branches = (
            select(trace, part, on_true, on_false) for part in (chosen.on_true, chosen.on_false)
        )
        return values.where(chosen.conditions, *branches)
    if isinstance(chosen, Constant):
        return on_true if chosen.value else on_false
    plain = (on_true, on_false) == (Constant(1.0), Constant(0.0))
    if plain and isinstance(chosen, Application) and chosen.function in COMPARISONS:
        return chosen
    return apply(values, "select", [chosen, on_true, on_false])


def elementwise(trace: Trace, name: str, given: Sequence[Any], dtype: Any = None) -> TracedArray:
    """A ufunc by name of operands of any kind, broadcast to one shape."""
    arrays = [trace.traced(operand) for operand in given]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    result = np.dtype(dtype) if dtype is not None else _dtype(trace, name, given)
    whole = all(not is_float(array.dtype) for array in arrays)
    operands = [array.broadcast(shape).value for array in arrays]
    if name in BITS and any(array.dtype.kind != "b" for array in arrays):
        return trace.array(shape, result, _of_bits(trace, name, operands, result))
    return trace.array(shape, result, scalar(trace, name, operands, whole))


def _of_bits(trace: Trace, name: str, given: Sequence[Value], held: np.dtype) -> Value:
    """A bit operation on whole numbers, by arithmetic."""
    if name.startswith("bitwise") and isinstance(given[0], Constant):
        given = given[::-1]
    signed = name == "right_shift" and held.kind == "i"
    found = of_bits(trace.values, "arithmetic_shift_right" if signed else name, given, held)
    if found is None:
        trace.refuse(f"np.{name} of these integers is no arithmetic of numbers that float32 holds")
    return found


def _dtype(trace: Trace, name: str, given: Sequence[Any]) -> np.dtype:
    """The format that NumPy gives a result."""
    if name in COMPARISONS or name.startswith(("logical", "is", "signbit")):
        return np.dtype(bool)
    plain = [
        np.ones((1,) if g.ndim else (), g.dtype) if isinstance(g, TracedArray)
        else g if np.isscalar(g) else np.ones((1,) * min(np.ndim(g), 1), np.asarray(g).dtype)
        for g in given
    ]  # fmt: skip
    if not hasattr(np, name):  # of SciPy
        return np.result_type(*plain)
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, name)(*plain)).dtype
