"""Patterns of elementwise arithmetic and the one instruction that does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from accelopt.kernels.nki.moves.reading.terms import FusedTerm

ACTIVATIONS = frozenset(
    "exp log square sqrt rsqrt sigmoid silu gelu tanh relu abs sin erf softplus mish".split()
)
SCALAR_OPERATIONS = frozenset("add subtract multiply maximum minimum".split())
COMMUTATIVE = frozenset("add multiply maximum minimum".split())


class Rewritten(NamedTuple):
    """What a term can be computed by: a call, its arguments by name, and what was recognised."""

    call: str
    arguments: Mapping[str, str]
    story: str


def sigmoid(term: FusedTerm) -> Rewritten | None:
    """1 / (1 + exp(-x))  ->  sigmoid(x)."""
    x = _sigmoid_of(term)
    if x is None or not x.text or term.operation == "sigmoid":
        return None
    return Rewritten("nl.sigmoid", {"x": x.text}, "1 / (1 + exp(-x)) is the sigmoid")


def silu(term: FusedTerm) -> Rewritten | None:
    """x / (1 + exp(-x))  or  x * sigmoid(x)  ->  silu(x)."""
    x = None
    if term.operation == "divide":
        x = _same(term.parts[0], _logistic_denominator(term.parts[1]))
    elif term.operation == "multiply":
        left, right = term.parts
        x = _same(left, _sigmoid_of(right)) or _same(right, _sigmoid_of(left))
    if x is None or not x.text:
        return None
    return Rewritten("nl.silu", {"x": x.text}, "x / (1 + exp(-x)) is silu(x)")


def activation(term: FusedTerm) -> Rewritten | None:
    """f(x * scale + bias)  ->  nisa.activation(op=f, data=x, scale=scale, bias=bias)."""
    if term.operation not in ACTIVATIONS or len(term.parts) != 1:
        return None
    x, scale, bias = _affine(term.parts[0])
    if not x.text or (scale is None and bias is None):
        return None
    if x.is_number or x.is_column:
        return None
    arguments = {"op": f"nl.{term.operation}", "data": x.text}
    if scale is not None:
        arguments["scale"] = scale
    if bias is not None:
        arguments["bias"] = bias
    return Rewritten(
        "nisa.activation", arguments, f"{term.operation}(x * scale + bias) is one activation"
    )


def two_scalars(term: FusedTerm) -> Rewritten | None:
    """op1(op0(x, a), b) with numbers or columns a, b  ->  nisa.tensor_scalar with two operations."""
    outer = _with_scalar(term)
    if outer is None:
        return None
    inner_term, operand1, reverse1 = outer
    inner = _with_scalar(inner_term)
    if inner is None or not inner[0].text or inner[0].is_number:
        return None
    x, operand0, reverse0 = inner
    arguments = {"data": x.text, "op0": f"nl.{inner_term.operation}", "operand0": operand0.text}
    if reverse0:
        arguments["reverse0"] = "True"
    arguments |= {"op1": f"nl.{term.operation}", "operand1": operand1.text}
    if reverse1:
        arguments["reverse1"] = "True"
    story = f"{inner_term.operation} and {term.operation} with one number a row are one instruction"
    return Rewritten("nisa.tensor_scalar", arguments, story)


def like_terms(term: FusedTerm) -> Rewritten | None:
    """x - x * c  ->  x * (1 - c), and x + x * c  ->  x * (1 + c), for numbers c."""
    if term.operation not in {"add", "subtract"}:
        return None
    left, right = term.parts
    for x, product, swapped in ((left, right, False), (right, left, True)):
        if swapped and term.operation == "subtract":
            continue
        scaled = _with_scalar(product)
        if product.operation != "multiply" or scaled is None or not x.text:
            continue
        factor = scaled[1].value
        if factor is None or not scaled[0].same(x):
            continue
        total = 1.0 + factor if term.operation == "add" else 1.0 - factor
        return Rewritten(
            "nl.multiply", {"x": x.text, "y": repr(total)}, "x and a multiple of x are one product"
        )
    return None


def column_quotient(term: FusedTerm) -> Rewritten | None:
    """x / c  ->  x * (1 / c), for one number or one number a row."""
    if term.operation != "divide":
        return None
    x, divisor = term.parts
    if not x.text or x.is_number or x.is_column or not divisor.text:
        return None
    if divisor.is_number:
        inverse = f"1.0 / {divisor.text}"
    elif divisor.operation == "sqrt" and divisor.parts[0].text and divisor.is_column:
        inverse = f"nl.rsqrt({divisor.parts[0].text})"
    elif divisor.is_column:
        inverse = f"nl.reciprocal({divisor.text})"
    else:
        return None
    return Rewritten(
        "nl.multiply",
        {"x": x.text, "y": inverse},
        "dividing a row by one number is multiplying by its reciprocal",
    )


def inverse_root(term: FusedTerm) -> Rewritten | None:
    """1 / sqrt(x)  ->  rsqrt(x)."""
    if term.operation != "divide" or not _is(term.parts[0], 1.0):
        return None
    root = term.parts[1]
    if root.operation != "sqrt" or not root.parts[0].text:
        return None
    return Rewritten("nl.rsqrt", {"x": root.parts[0].text}, "1 / sqrt(x) is rsqrt(x)")


def _sigmoid_of(term: FusedTerm) -> FusedTerm | None:
    if term.operation == "sigmoid":
        return term.parts[0]
    if term.operation == "divide" and _is(term.parts[0], 1.0):
        return _logistic_denominator(term.parts[1])
    return None


def _logistic_denominator(term: FusedTerm) -> FusedTerm | None:
    """x of 1 + exp(-x)."""
    if term.operation != "add":
        return None
    for one, power in (term.parts, term.parts[::-1]):
        if _is(one, 1.0) and power.operation == "exp":
            return _negated(power.parts[0])
    return None


def _negated(term: FusedTerm) -> FusedTerm | None:
    """x of -x."""
    if term.operation == "multiply":
        for factor, x in (term.parts, term.parts[::-1]):
            if _is(factor, -1.0):
                return x
    if term.operation == "subtract" and _is(term.parts[0], 0.0):
        return term.parts[1]
    return None


def _is(term: FusedTerm, value: float) -> bool:
    return term.is_number and term.value == value


def _same(left: FusedTerm, right: FusedTerm | None) -> FusedTerm | None:
    return left if right is not None and left.same(right) else None


def _with_scalar(term: FusedTerm) -> tuple[FusedTerm, FusedTerm, bool] | None:
    """(x, operand, reversed) of op(x, operand), the operand one number or one number a row."""
    if term.operation not in SCALAR_OPERATIONS:
        return None
    left, right = term.parts
    if _is_scalar(right) and not _is_scalar(left):
        return left, right, False
    if _is_scalar(left) and not _is_scalar(right):
        return right, left, term.operation not in COMMUTATIVE
    return None


def _is_scalar(term: FusedTerm) -> bool:
    return bool(term.text) and (term.operation == "number" or term.is_column)


def _affine(term: FusedTerm) -> tuple[FusedTerm, str | None, str | None]:
    """(x, scale, bias) of x * scale + bias, as far as it has that form."""
    bias: str | None = None
    if term.operation == "add":
        for x, other in (term.parts, term.parts[::-1]):
            if other.is_column and not x.is_column:
                term, bias = x, other.text
                break
    elif term.operation == "subtract" and term.parts[0].is_column is False:
        return term, None, None
    if term.operation == "multiply":
        for x, other in (term.parts, term.parts[::-1]):
            if _is_scalar(other) and not _is_scalar(x):
                return x, other.text, bias
    return term, None, bias


PATTERNS: dict[str, Callable[[FusedTerm], Rewritten | None]] = {
    "silu": silu,
    "sigmoid": sigmoid,
    "activation": activation,
    "two_scalars": two_scalars,
    "like_terms": like_terms,
    "column_quotient": column_quotient,
    "inverse_root": inverse_root,
}
