"""Whole forms of what is computed in pieces, or in one pass where two say what it means."""

from __future__ import annotations

import functools
from collections.abc import Callable

from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import FLIPPED, fold
from accelopt.algorithm.rerolling import arguments_of, rolled, with_ranges_joined
from accelopt.algorithm.value_nodes import Application, Choice, Fold, Product, Sum, Value, children
from accelopt.algorithm.values import Values

Rule = Callable[[Value], Value]


def whole(values: Values, value: Value, roll: bool = True) -> Value:
    """The value with what was computed in one pass as it is commonly written, and, where terms or
    pieces are to `roll`, with those as one."""

    def rule(part: Value) -> Value:
        part = rolled(values, part) if roll else part
        if isinstance(part, Fold) and isinstance(part.body, (Choice, Fold)):
            part = fold(values, part.combiner, part.axes, part.body)  # of parts that are one now
        return _two_passes(values, part)

    if roll:
        value = rewritten(values, value, functools.partial(with_ranges_joined, values))
    return rewritten(values, value, rule)


def rewritten(values: Values, value: Value, rule: Rule) -> Value:
    """The value with a rule applied to every part, from below."""
    done: dict[Value, Value] = {}

    def visit(part: Value) -> Value:
        if part not in done and isinstance(part, Application) and part.function in FLIPPED:
            # An extreme of many is one: what it is made of on the way is nothing by itself.
            parts = [visit(argument) for argument in arguments_of(part, part.function)]
            found = functools.reduce(lambda a, b: apply(values, str(part.function), [a, b]), parts)
            done[part] = rule(found)
        if part not in done:
            parts = [visit(child) for child in children(part)]
            same = all(a is b for a, b in zip(parts, children(part), strict=True))
            done[part] = rule(part if same else values.with_parts(part, parts))
        return done[part]

    return visit(value)


def _two_passes(values: Values, value: Value) -> Value:
    """`mean(x**2) - mean(x)**2` as `mean((x - mean(x))**2)`."""
    if not isinstance(value, Sum):
        return value
    for square, weight in value.terms:
        if not isinstance(square, Fold) or square.combiner != "add":
            continue
        for term, other in value.terms:
            if not isinstance(term, Product) or len(term.factors) != 1:
                continue
            total, power = term.factors[0]
            if power != 2 or not isinstance(total, Fold) or total.axes != square.axes:
                continue
            count = 1
            for axis in total.axes:
                count *= axis.extent
            body = values.product([(total.body, 2.0)])
            exact = abs(weight * count - 1) < 1e-6 and abs(other * count * count + 1) < 1e-6
            if body == square.body and exact:
                centred = values.sum([(total.body, 1.0), (total, -1 / count)])
                spread = fold(values, "add", total.axes, values.product([(centred, 2.0)]))
                rest = [(t, c) for t, c in value.terms if t not in (square, term)]
                return values.sum([*rest, (spread, 1 / count)], value.constant)
    return value
