"""A form of real numbers in which products are taken over sums, and exponentials of sums are products.

before: sum_k exp(x[k] - largest) / total * w[k], total = sum_k exp(x[k] - largest)
after:  sum_k exp(x[k]) * w[k] / sum_k exp(x[k])

Every rule is an equality of real numbers wherever both sides are some: what is added to all arguments of a softmax
is gone, and so is the order in which one sums, scales and multiplies. A form to compare, not to compute with.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from accelopt.algorithm.canonical_rewriting import rewritten
from accelopt.algorithm.common_factors import NEGATED, Sign, sign
from accelopt.algorithm.functions import COMPARISONS
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant, Position, each_once
from accelopt.algorithm.normal_forms import ONE, ZERO, apply
from accelopt.algorithm.reductions import FLIPPED, fold
from accelopt.algorithm.value_nodes import (
    Application,
    Choice,
    Element,
    Fold,
    Lookup,
    Product,
    ScanElement,
    Sum,
    Value,
    bound_axes,
    children,
    every,
)
from accelopt.algorithm.values import Values, fresh_axis

MOST_ROUNDS = 4
MOST_TERMS = 256
"""Of a product of sums."""
MOST_PLACES = 1 << 24
"""Of the axes of a mask, of which it is tried whether it leaves something of every line."""
DIGITS = 32
"""Of the digest of a region."""
MASKED = -1e30
"""A number that a kernel writes for less than any other."""
LARGEST_EXPONENT = 80.0
ROUNDED = 2.0**-40
"""A factor is as near to 1 as that by fp64's rounding alone."""
TRUTHS = COMPARISONS | {"logical_and", "logical_or", "logical_xor", "logical_not"}
"""Functions that are 0 or 1."""
TOTAL = TRUTHS | {
    *("exp", "sigmoid", "silu", "tanh", "gelu", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "erf"),
    *("sin", "cos", "arctan", "softplus", "mish", "abs", "sign", "maximum", "minimum", "select"),
    *("floor", "ceil", "trunc"),
}
"""Functions that are numbers of all numbers."""


def expanded(values: Values, value: Value) -> Value:
    """The value in that form, as far as it has one of no more than `MOST_TERMS` terms a sum."""
    value = rewritten(values, value, functools.partial(_without_clips, values))
    for _ in range(MOST_ROUNDS):
        made = rewritten(values, value, functools.partial(_expanded, values))
        if made is value:
            break
        value = made
    return value


def _without_clips(values: Values, value: Value) -> Value:
    """max(x, 0) of what is never negative, which is not seen any more of what squares are taken apart into."""
    if (
        isinstance(value, Application)
        and value.function == "maximum"
        and value.arguments[1] == ZERO
    ):
        return value.arguments[0] if sign(values, value.arguments[0]) else value
    return value


def _expanded(values: Values, value: Value) -> Value:
    if isinstance(value, Application):
        return _function(values, value)
    if isinstance(value, Product):
        return _product(values, value)
    if isinstance(value, Fold) and value.combiner == "add":
        return _summed(values, value)
    if isinstance(value, Fold) and value.combiner in FLIPPED:
        return fold(values, value.combiner, value.axes, value.body)
    if isinstance(value, Choice) and value.on_false == ZERO and isinstance(value.on_true, Sum):
        return _each(values, value.on_true, lambda t: values.where(value.conditions, t, ZERO))
    return value


def _each(values: Values, total: Sum, change: Callable[[Value], Value]) -> Value:
    """A sum with every term, and its constant, changed by a linear function."""
    parts = [*total.terms, *([(ONE, total.constant)] if total.constant else [])]
    return values.sum([(change(term), factor) for term, factor in parts])


def _function(values: Values, value: Application) -> Value:
    name, first = value.function, value.arguments[0]
    if name in COMPARISONS:
        return apply(values, name, value.arguments)
    if name == "exp":
        return _exponential(values, first)
    if name == "tanh":
        gate = _expanded(values, apply(values, "sigmoid", [values.product([(first, 1.0)], 2.0)]))
        return values.sum([(gate, 2.0)], -1.0)
    if name == "mish":
        gate = _expanded(values, apply(values, "tanh", [_softplus(values, first)]))
        return _expanded(values, values.product([(first, 1.0), (gate, 1.0)]))
    if name == "sigmoid" and _lead(first) < 0:
        gate = apply(values, "sigmoid", [values.product([(first, 1.0)], -1.0)])
        return values.sum([(gate, -1.0)], 1.0)
    if name == "softplus":
        return _softplus(values, first)
    if name == "log" and isinstance(first, Sum) and first.constant == 1 and len(first.terms) == 1:
        term, factor = first.terms[0]
        exponent = _exponent(values, term)
        if factor == 1 and exponent is not None:
            return _softplus(values, exponent)
    if name == "log" and isinstance(first, Product):
        return _logarithm(values, first)
    if name in ("maximum", "minimum", "abs") and _finite(values, value):
        return _extreme(values, value)
    if name == "select" and _finite(values, value) and _is_truth(first):
        assert isinstance(first, (Application, Product))
        _, yes, no = value.arguments
        parts = [_expanded(values, values.product([(first, 1.0), (yes, 1.0)]))]
        parts.append(_expanded(values, values.product([(_negated(values, first), 1.0), (no, 1.0)])))
        return values.sum([(part, 1.0) for part in parts])
    return value


def _negated(values: Values, truth: Value) -> Value:
    if isinstance(truth, Application) and truth.function in NEGATED:
        return values.same(Application(NEGATED[truth.function], truth.arguments))
    return values.sum([(truth, -1.0)], 1.0)


def _is_truth(value: Value) -> bool:
    if isinstance(value, Product):
        return value.coefficient == 1 and all(p > 0 and _is_truth(f) for f, p in value.factors)
    return isinstance(value, Application) and value.function in TRUTHS


def _finite(values: Values, value: Value) -> bool:
    """Whether a value is a number wherever all inputs are."""
    if isinstance(value, Constant):
        return math.isfinite(value.value) and abs(value.value) < -MASKED
    if isinstance(value, Application) and value.function not in TOTAL:
        first = value.arguments[0]
        positive = value.function == "log" and sign(values, first) == Sign.POSITIVE
        return positive and _finite(values, first)
    if isinstance(value, Product):
        for factor, power in value.factors:
            known = sign(values, factor)
            if power < 0 and known != Sign.POSITIVE:
                return False
            if power != int(power) and known == Sign.ANY:
                return False
    if isinstance(value, (Element, Position)):
        return True
    if isinstance(value, Lookup):
        return all(_finite(values, number) for number in value.indices)
    made = isinstance(value, (Application, Product, Sum, Fold, Choice, ScanElement))
    return made and all(_finite(values, part) for part in children(value))


def _lead(value: Value) -> float:
    """The number that stands first in a value."""
    if isinstance(value, Product):
        return value.coefficient
    return value.terms[0][1] if isinstance(value, Sum) else 1.0


# Exponentials and logarithms.


def _exponential(values: Values, value: Value) -> Value:
    """exp of a sum as a product of powers of exponentials, of a choice as a choice of them."""
    if isinstance(value, Choice):
        no, yes = value.on_false, _exponential(values, value.on_true)
        masked = isinstance(no, Constant) and no.value <= MASKED and _leaves_some(value.conditions)
        return values.where(value.conditions, yes, ZERO if masked else _exponential(values, no))
    if isinstance(value, Constant) and value.value == -math.inf:
        return ZERO
    if isinstance(value, Constant) and abs(value.value) < LARGEST_EXPONENT:
        return values.number(math.exp(value.value))
    if isinstance(value, Product) and value.coefficient != 1:
        bare = values.product(value.factors)
        return values.product([(_exponential(values, bare), value.coefficient)])
    if isinstance(value, Application) and value.function == "log":
        return value.arguments[0]
    if isinstance(value, Sum) and abs(value.constant) < LARGEST_EXPONENT:
        parts = [(_exponential(values, term), factor) for term, factor in value.terms]
        return _expanded(values, values.product(parts, math.exp(value.constant)))
    return values.same(Application("exp", (value,)))


def _leaves_some(conditions: Sequence[Index]) -> bool:
    """Whether conditions hold somewhere along every line of each of their axes."""
    axes = sorted(frozenset().union(*(c.axes for c in conditions)))
    if math.prod(axis.extent for axis in axes) > MOST_PLACES:
        return False
    shape = [axis.extent for axis in axes]
    places = dict(zip(axes, np.ix_(*map(np.arange, shape)), strict=True))
    held = np.ones(shape, bool)
    for condition in conditions:
        held &= condition.evaluate(places) >= 0
    return all(bool(held.any(n).all()) for n in range(len(axes)))


def _exponent(values: Values, value: Value) -> Value | None:
    """x of exp(x)."""
    factors = value.factors if isinstance(value, Product) else ((value, 1.0),)
    if isinstance(value, Product) and value.coefficient <= 0:
        return None
    if not all(isinstance(f, Application) and f.function == "exp" for f, _ in factors):
        return None
    number = math.log(value.coefficient) if isinstance(value, Product) else 0.0
    return values.sum([(children(f)[0], power) for f, power in factors], number)


def _softplus(values: Values, value: Value) -> Value:
    """log(exp(x) + 1), of -x that of x less x, and of -|x| that of x less max(x, 0)."""
    if isinstance(size := _size(values, value), tuple):
        return values.sum([(_softplus(values, size[0]), 1.0), (size[1], -1.0)])
    if _lead(value) < 0:
        positive = values.product([(value, 1.0)], -1.0)
        return values.sum([(_softplus(values, positive), 1.0), (positive, -1.0)])
    total = values.sum([(_exponential(values, value), 1.0)], 1.0)
    return values.same(Application("log", (total,)))


def _size(values: Values, value: Value) -> tuple[Value, Value] | None:
    """x and max(x, 0) where the value is -|x|, which is x - 2 * max(x, 0)."""
    terms = value.terms if isinstance(value, Sum) else ()
    for term, factor in terms:
        if isinstance(term, Application) and term.function == "maximum" and factor < 0:
            x, least = term.arguments
            scale = factor / -2.0
            if least == ZERO and value == values.sum([(x, scale), (term, factor)]):
                return values.product([(x, 1.0)], scale), values.product([(term, 1.0)], scale)
    return None


def _logarithm(values: Values, value: Product) -> Value:
    """The logarithm of a product with its exponentials outside, and with all its positive factors."""
    parts, rest = list[tuple[Value, float]](), list[tuple[Value, float]]()
    for factor, power in value.factors:
        exponent = _exponent(values, factor)
        if exponent is not None:
            parts.append((exponent, power))
        elif sign(values, factor) == Sign.POSITIVE:
            parts.append((apply(values, "log", [factor]), power))
        else:
            rest.append((factor, power))
    if not parts or (value.coefficient <= 0):
        return values.same(Application("log", (value,)))
    left = values.product(rest, value.coefficient)
    if isinstance(left, Constant):
        return values.sum(parts, math.log(left.value))
    return values.sum([*parts, (values.same(Application("log", (left,))), 1.0)])


# Extremes.


def _extreme(values: Values, value: Application) -> Value:
    """max(a, b) as b + max(a - b, 0), min(a, b) as a - max(a - b, 0), |a| as 2 * max(a, 0) - a."""
    first = value.arguments[0]
    second = value.arguments[1] if len(value.arguments) > 1 else ZERO
    above = _positive(values, values.sum([(first, 1.0), (second, -1.0)]))
    if value.function == "abs":
        return values.sum([(above, 2.0), (first, -1.0)])
    if value.function == "maximum":
        return values.sum([(second, 1.0), (above, 1.0)])
    return values.sum([(first, 1.0), (above, -1.0)])


def _positive(values: Values, value: Value) -> Value:
    """max(x, 0); of c * x it is c * max(x, 0), and of -x it is max(x, 0) - x."""
    if isinstance(value, Constant):
        return values.number(max(value.value, 0.0))
    scale = _lead(value)
    bare = values.product([(value, 1.0)], 1 / scale)
    if sign(values, bare) >= Sign.NOT_NEGATIVE:
        return value if scale > 0 else ZERO
    above = values.same(Application("maximum", (bare, ZERO)))
    if scale > 0:
        return values.product([(above, 1.0)], scale)
    return values.sum([(above, -scale), (bare, scale)])


# Products and sums.


def _product(values: Values, value: Product) -> Value:
    """A product of sums as the sum of products, with sums below a power scaled to begin with 1."""
    plain, sums, coefficient = list[tuple[Value, float]](), list[Sum](), value.coefficient
    if coefficient != 1 and math.isclose(coefficient, 1, rel_tol=ROUNDED):
        return values.product(value.factors)  # of exponentials of numbers that cancel
    for factor, power in value.factors:
        if _is_truth(factor) and power > 0:
            power = 1.0
        if isinstance(factor, Sum) and power in (1.0, 2.0):
            sums += [factor] * int(power)
            continue
        lead = _lead(factor)
        if isinstance(factor, Sum) and lead != 1 and (lead > 0 or power == int(power)):
            coefficient *= lead**power
            factor = values.scaled(factor, 1 / lead)
        plain.append((factor, power))
    many = math.prod(len(s.terms) + bool(s.constant) for s in sums)
    if not sums or many > MOST_TERMS:
        kept = [*plain, *((s, 1.0) for s in sums)]
        return value if kept == [*value.factors] else values.product(kept, coefficient)
    each = [[*s.terms, *([(ONE, s.constant)] if s.constant else [])] for s in sums]
    return values.sum(
        (
            values.product([*plain, *((t, 1.0) for t, _ in chosen)]),
            math.prod((coefficient, *(c for _, c in chosen))),
        )
        for chosen in itertools.product(*each)
    )


def _summed(values: Values, value: Fold) -> Value:
    """A sum of sums term by term, and of products with a sum in them as one over the axes of both."""
    body, axes = value.body, [*value.axes]
    if isinstance(body, Sum):
        return _each(values, body, lambda term: _over(values, axes, term))
    return _over(values, axes, body)


def _over(values: Values, axes: Sequence[Axis], body: Value) -> Value:
    factors = body.factors if isinstance(body, Product) else ((body, 1.0),)
    for factor, power in factors:
        if power != 1 or not isinstance(factor, Fold) or factor.combiner != "add":
            continue
        if not values.axes(factor) & {*axes}:
            continue
        taken = {*values.axes(body), *axes, *bound_axes(factor)}
        inner = factor.body
        own = list[Axis]()
        for axis in factor.axes:
            fresh = fresh_axis(axis.extent, taken)
            taken.add(fresh)
            inner = values.substitute(inner, {axis: index_of(fresh)})
            own.append(fresh)
        rest = [pair for pair in factors if pair[0] is not factor]
        scale = body.coefficient if isinstance(body, Product) else 1.0
        made = values.product([*rest, (inner, 1.0)], scale)
        return _over(values, [*axes, *own], made)
    return fold(values, "add", list(axes), body)


# Regions.


def by_regions(values: Values, value: Value) -> Value:
    """The value with each choice as a sum of what is chosen, each times a function of positions that is 1 where it is
    and that bears a digest of those: however the conditions are nested and ordered. Nothing else is asked of it."""
    done: dict[Value, Value] = {}

    def visit(part: Value) -> Value:
        if part not in done:
            made = _regions(values, part) if isinstance(part, Choice) else None
            if made is None:
                parts = [visit(child) for child in children(part)]
                same = all(a is b for a, b in zip(parts, children(part), strict=True))
                done[part] = part if same else values.with_parts(part, parts)
            else:
                done[part] = values.sum(
                    (values.product([(within, 1.0), (visit(chosen), 1.0)]), 1.0)
                    for within, chosen in made
                )
        return done[part]

    return visit(value)


def _regions(values: Values, value: Choice) -> list[tuple[Value, Value]] | None:
    """What a nest of choices chooses, with where; None where one is infinite, or places are many."""
    whole: Value = value
    nest = [part for part in each_once(whole, _nested) if isinstance(part, Choice)]
    conditions = [c for part in nest for c in part.conditions]
    known = frozenset[Axis]().union(*(c.axes for c in conditions))
    axes = sorted(known, key=lambda axis: (axis.extent, axis.name))
    if math.prod(axis.extent for axis in axes) > MOST_PLACES:
        return None
    shape = [axis.extent for axis in axes]
    places = dict(zip(axes, np.ix_(*map(np.arange, shape)), strict=True))
    found: dict[Value, np.ndarray] = {}
    waiting: list[tuple[Value, np.ndarray]] = [(value, np.ones(shape, bool))]
    while waiting:
        part, held = waiting.pop()
        choice, scale, rest = _factor_chosen(part)
        if choice is not None:
            own = held.copy()
            for condition in choice.conditions:
                own &= condition.evaluate(places) >= 0
            for one, there in ((choice.on_true, own), (choice.on_false, held & ~own)):
                waiting.append((values.product([*rest, (one, 1.0)], scale), there))
        elif held.any() and part != ZERO:
            if isinstance(part, Constant) and not math.isfinite(part.value):
                return None
            found[part] = found.get(part, False) | held
    return [(_within(values, axes, held), part) for part, held in found.items()]


def _factor_chosen(value: Value) -> tuple[Choice | None, float, Sequence[tuple[Value, float]]]:
    """The choice that a value is a multiple of, with the number and the factors by which."""
    factors = value.factors if isinstance(value, Product) else ((value, 1.0),)
    scale = value.coefficient if isinstance(value, Product) else 1.0
    for factor, power in factors:
        if isinstance(factor, Choice) and power == 1:
            return factor, scale, [pair for pair in factors if pair[0] is not factor]
    return None, scale, factors


def _nested(value: Value) -> Sequence[Value]:
    if isinstance(value, Product):
        return [
            factor for factor, power in value.factors if isinstance(factor, Choice) and power == 1
        ]
    return children(value) if isinstance(value, Choice) else ()


def _within(values: Values, axes: Sequence[Axis], held: np.ndarray) -> Value:
    """1 at the places along some axes, else 0."""
    own = list[Axis]()
    for axis in axes:
        place = len(own)
        if (held == held.take([0], place)).all():
            held = held.take(0, place)
        else:
            own.append(axis)
    if not own:
        return ONE
    digest = hashlib.sha256(np.packbits(held).tobytes()).hexdigest()[:DIGITS]
    where = tuple(values.position(index_of(axis)) for axis in own)
    return values.same(Application(f"within_{digest}", where))


# What may overflow.


def overflows(values: Values, value: Value) -> bool:
    """Whether a value has an exponential that nothing bounds, such as that of a softmax without its maximum."""
    return any(
        isinstance(part, Application)
        and part.function == "exp"
        and _ends(values, part.arguments[0])[1] == math.inf
        for part in every(value)
    )


def _ends(values: Values, value: Value) -> tuple[float, float]:
    """Numbers that a value is never below and never above, as far as its functions tell."""
    if isinstance(value, Constant):
        return value.value, value.value
    if isinstance(value, Application):
        name, parts = value.function, [_ends(values, part) for part in value.arguments]
        if name in ("maximum", "minimum"):
            best = max if name == "maximum" else min
            return best(low for low, _ in parts), best(high for _, high in parts)
        if name in ("tanh", "erf", "sin", "cos", "sign", "sigmoid") or name in TRUTHS:
            return (0.0 if name == "sigmoid" or name in TRUTHS else -1.0), 1.0
        if name == "select":
            return min(low for low, _ in parts[1:]), max(high for _, high in parts[1:])
    if isinstance(value, Choice):
        yes, no = _ends(values, value.on_true), _ends(values, value.on_false)
        return min(yes[0], no[0]), max(yes[1], no[1])
    if isinstance(value, Fold) and value.combiner in FLIPPED:
        return _ends(values, value.body)
    if isinstance(value, Product) and len(value.factors) == 1 and value.factors[0][1] == 1:
        ends = [value.coefficient * end for end in _ends(values, value.factors[0][0])]
        return min(ends), max(ends)
    if isinstance(value, Product) and value.coefficient < 0:
        positive = _ends(values, values.product([(value, 1.0)], -1.0))
        return -positive[1], -positive[0]
    if isinstance(value, Sum):
        terms = [
            sorted(factor * end for end in _ends(values, term)) for term, factor in value.terms
        ]
        low, high = (value.constant + sum(ends[n] for ends in terms) for n in range(2))
        return low, min(high, value.constant) if _less_maximum(values, value) else high
    return (0.0 if sign(values, value) else -math.inf), math.inf


def _less_maximum(values: Values, value: Sum) -> bool:
    """Whether a sum is elements less the largest of all of them."""
    for term, factor in value.terms:
        rest = [pair for pair in value.terms if pair[0] is not term]
        if factor < 0 and _is_among(
            values, values.product([(values.sum(rest), 1.0)], -1 / factor), term
        ):
            return True
    return False


def _is_among(values: Values, value: Value, largest: Value) -> bool:
    """Whether a value is one of those that `largest` is the largest of."""
    if isinstance(largest, Application) and largest.function == "maximum":
        return any(_is_among(values, value, part) for part in largest.arguments)
    if value == largest:
        return True
    if not isinstance(largest, Fold) or largest.combiner != "maximum":
        return False
    own = values.axes(value) - values.axes(largest)
    return any(
        values.substitute(largest.body, dict(zip(largest.axes, map(index_of, order), strict=True)))
        == value
        for order in itertools.permutations(sorted(own), len(largest.axes))
        if [axis.extent for axis in order] == [axis.extent for axis in largest.axes]
    )
