"""Factors that several values share, which cancel or stand outside of what combines or compares those.

before: largest[m] = max_n e[m, n] / total[m];  kept = e[m, n] / total[m] >= largest[m], with total > 0
after:  largest[m] = (max_n e[m, n]) / total[m];  kept = e[m, n] >= max_n e[m, n]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from accelopt.algorithm.functions import COMPARISONS
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.value_nodes import Application, Choice, Fold, Product, Sum, Value

if TYPE_CHECKING:
    from accelopt.algorithm.values import Values

NEGATED = {"less": "greater_equal", "less_equal": "greater", "equal": "not_equal"}
NEGATED |= {after: before for before, after in NEGATED.items()}
"""The comparison that holds where another does not."""
Factor = tuple[Value, float]
"""A value and its power."""


class Sign(IntEnum):
    """What is known of a real number, where it is one."""

    ANY = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


_OF_FUNCTIONS = {
    **dict.fromkeys(("exp", "sigmoid", "softplus"), Sign.POSITIVE),
    **dict.fromkeys(("abs", "relu", *COMPARISONS), Sign.NOT_NEGATIVE),
}


def sign(values: Values, value: Value) -> Sign:
    """The sign of a value."""
    if value not in values.signs:
        values.signs[value] = _sign(values, value)
    return values.signs[value]


def _sign(values: Values, value: Value) -> Sign:
    if isinstance(value, Constant):
        return Sign((value.value >= 0) + (value.value > 0))
    if isinstance(value, Application):
        if value.function == "maximum":
            return max(sign(values, argument) for argument in value.arguments)
        if value.function == "select":
            return min(sign(values, argument) for argument in value.arguments[1:])
        return _OF_FUNCTIONS.get(value.function, Sign.ANY)
    if isinstance(value, Choice):
        return min(sign(values, value.on_true), sign(values, value.on_false))
    if isinstance(value, Fold) and value.combiner in ("add", "multiply", "maximum", "minimum"):
        return sign(values, value.body)
    if isinstance(value, Product) and value.coefficient > 0:
        return min(sign_of_power(values, factor) for factor in value.factors)
    if isinstance(value, Sum) and value.constant >= 0 and all(c > 0 for _, c in value.terms):
        found = [sign(values, term) for term, _ in value.terms]
        positive = value.constant > 0 or Sign.POSITIVE in found
        return Sign.ANY if Sign.ANY in found else Sign(Sign.NOT_NEGATIVE + positive)
    return Sign.ANY


def sign_of_power(values: Values, factor: Factor) -> Sign:
    """The sign of a power: a square has one, a root that is a number too, an inverse that is one is not 0."""
    value, power = factor
    known = sign(values, value)
    if known == Sign.ANY and power % 2 not in (0.0, 0.5, 1.5):
        return Sign.ANY
    return Sign.POSITIVE if power < 0 else max(known, Sign.NOT_NEGATIVE)


def common(bodies: Iterable[Value], wanted: Callable[[Factor], bool]) -> list[Factor]:
    """The wanted factors that all values have, but for those that are 0."""
    found: list[dict[Value, float]] = [
        dict(body.factors) if isinstance(body, Product) else {body: 1.0}
        for body in bodies
        if body != Constant(0.0)
    ]
    first, *others = found or [{}]
    return [f for f in first.items() if all(o.get(f[0]) == f[1] for o in others) and wanted(f)]


def without(values: Values, body: Value, factors: Sequence[Factor]) -> Value:
    """A value without some of its factors."""
    return values.product([(body, 1.0), *((factor, -power) for factor, power in factors)])


def compared(values: Values, function: str, first: Value, second: Value) -> Value:
    """A comparison, of two values without the positive factors that both have."""
    pair = [first, second]
    if Constant(0.0) not in pair and first != second:
        shared = common(pair, lambda f: sign_of_power(values, f) == Sign.POSITIVE)
        pair = [without(values, one, shared) for one in pair] if shared else pair
    return values.same(Application(function, tuple(pair)))


def complemented(
    values: Values, terms: dict[Value, float], constant: float
) -> tuple[dict[Value, float], float]:
    """The terms and the constant of a sum in which `x - x * (a >= b)` is `x * (b > a)`, for finite x."""
    for term, factor in terms.items():
        parts = term.factors if isinstance(term, Product) else ((term, 1.0),)
        for test, power in parts:
            if power != 1 or not isinstance(test, Application) or test.function not in NEGATED:
                continue
            of = without(values, term, [(test, 1.0)])
            taken = dict(of.terms) if isinstance(of, Sum) else {of: 1.0}
            number = of.constant if isinstance(of, Sum) else 0.0
            if isinstance(of, Constant):
                taken, number = {}, of.value
            known = all(terms.get(part) == -factor * c for part, c in taken.items())
            if not factor or not known or (number and constant != -factor * number):
                continue
            rest = {t: c for t, c in terms.items() if t is not term and t not in taken}
            negated = values.same(Application(NEGATED[test.function], test.arguments))
            made = values.product([(of, 1.0), (negated, 1.0)])
            rest[made] = rest.get(made, 0.0) - factor
            return complemented(values, rest, constant + factor * number)
    return terms, constant
