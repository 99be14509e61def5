"""Comparisons that are found at run time as sums: what they follow from, and where along an axis they end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from accelopt.algorithm.index import ZERO, Index
from accelopt.algorithm.ir import Apply, Constant, Expression, Position, times

TURNED = {"less": "greater", "less_equal": "greater_equal"}


@dataclass(frozen=True)
class Bound:
    """`sum of factor * term + index >= 0`, or `> 0` where it is `strict`. The terms are numbers that are read."""

    terms: frozenset[tuple[Expression, int]]
    index: Index
    strict: bool


def index_in(condition: Index | Expression) -> Index | None:
    """The index that a condition, or a comparison with numbers that are read, asks to be large enough."""
    if isinstance(condition, Index):
        return condition
    bound = bound_by(condition)
    return None if bound is None else bound.index


def bound_by(test: Expression) -> Bound | None:
    """What a comparison of whole numbers says; None for any other test, and for one of constants alone."""
    if not isinstance(test, Apply) or len(test.arguments) != 2:
        return None
    left, right = test.arguments
    name = TURNED.get(test.function, test.function)
    if name not in ("greater", "greater_equal"):
        return None
    if name != test.function:
        left, right = right, left
    terms: dict[Expression, int] = {}
    index = _added(left, 1, terms)
    other = _added(right, -1, terms)
    if index is None or other is None:
        return None
    found = frozenset((term, factor) for term, factor in terms.items() if factor)
    if not found:
        return None
    return Bound(found, index + other, name == "greater")


def terms_of(expression: Expression) -> tuple[frozenset[tuple[Expression, int]], Index | None]:
    """A sum as its terms, each with its factor, and an index; None for that where a number in it is not
    whole."""
    terms: dict[Expression, int] = {}
    index = _added(expression, 1, terms)
    return frozenset((term, factor) for term, factor in terms.items() if factor), index


def _added(expression: Expression, factor: int, terms: dict[Expression, int]) -> Index | None:
    """Adds the terms of a sum, and returns its index; None where a number in it is not whole."""
    if isinstance(expression, Position):
        return expression.index * factor
    if isinstance(expression, Constant):
        whole = expression.value.is_integer()
        return Index(int(expression.value) * factor) if whole else None
    if isinstance(expression, Apply):
        parts = expression.arguments
        if expression.function == "negative":
            return _added(parts[0], -factor, terms)
        if expression.function in ("add", "subtract"):
            sign = 1 if expression.function == "add" else -1
            one, two = _added(parts[0], factor, terms), _added(parts[1], sign * factor, terms)
            return None if one is None or two is None else one + two
        if expression.function == "multiply":
            for n, part in enumerate(parts):
                if isinstance(part, Constant) and part.value.is_integer():
                    return _added(parts[1 - n], factor * int(part.value), terms)
    terms[expression] = terms.get(expression, 0) + factor
    return ZERO


def implies(test: Expression, other: Expression) -> bool:
    """Whether a comparison, or that another one does not hold, follows from a comparison, by what indices
    can be."""
    one = bound_by(test)
    if isinstance(other, Apply) and other.function == "logical_not":
        held = bound_by(other.arguments[0])
        two = held and Bound(
            frozenset((term, -factor) for term, factor in held.terms), held.index * -1,
            not held.strict,
        )  # fmt: skip
    else:
        two = bound_by(other)
    if one is None or two is None or one.terms != two.terms:
        return False
    return (two.index - one.index).bounds[0] >= (two.strict and not one.strict)


def sum_of(terms: Iterable[tuple[Expression, int]]) -> Expression:
    """A sum in one order."""
    ordered = sorted(terms, key=lambda pair: (-pair[1], str(pair[0])))
    made: Expression | None = None
    for term, factor in ordered:
        part = times(term, float(abs(factor)))
        if made is None:
            made = part if factor > 0 else Apply("negative", (part,))
        else:
            made = Apply("add" if factor > 0 else "subtract", (made, part))
    return Constant(0.0) if made is None else made
