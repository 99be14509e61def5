"""Elements in whose address an axis is a number that is known only when the kernel runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from accelopt.algorithm.index import ZERO, Axis, Index, index_of
from accelopt.algorithm.ir import Constant, Position
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.value_nodes import (
    Application,
    Choice,
    Element,
    Fold,
    Product,
    Sum,
    Value,
    children,
    own_indices,
)
from accelopt.algorithm.values import Values, fresh_axis


class ComputedElements(Exception):
    """What is looked up differs by its place in more than the address of inputs' elements."""


class Parts(NamedTuple):
    """`known + factor * value`: what of a run-time index the loops and axes give, and the rest."""

    known: Index
    value: Value
    factor: int


def index_by(
    values: Values, value: Value, size: int, beside: Sequence[Index], numbers: dict[Axis, Value]
) -> Index:
    """A run-time index into `size` elements, with an axis for what is not known; `numbers` gets what
    that axis is. The axis is none of those of the indices `beside`."""
    parts = parted(values, value)
    used = {axis.name for index in beside for axis in index.axes}
    number = next(n for n in range(len(used) + 1) if f"?at{n}" not in used)
    extent = max(1, (size - 1 - parts.known.bounds[0]) // parts.factor + 1)
    axis = Axis(f"?at{number}", extent)
    numbers[axis] = parts.value
    return parts.known + index_of(axis) * parts.factor


def parted(values: Values, value: Value) -> Parts:
    """A run-time index in two: what loops and axes give of it, and a multiple of a number."""
    if isinstance(value, Position):
        return Parts(value.index, values.number(0), 1)
    known = ZERO
    terms: list[tuple[Value, float]] = [(value, 1.0)]
    if isinstance(value, Constant):
        known, terms = Index(int(value.value)), []
    elif isinstance(value, Sum):
        terms = []
        waiting: list[tuple[Value, float]] = [(value, 1.0)]
        while waiting:
            term, factor = waiting.pop()
            if isinstance(term, Sum) and float(term.constant * factor).is_integer():
                known = known + int(term.constant * factor)
                waiting += [(inner, own * factor) for inner, own in reversed(term.terms)]
            elif isinstance(term, Position) and float(factor).is_integer():
                known = known + term.index * int(factor)
            else:
                terms.append((term, factor))
    elif isinstance(value, Product):
        terms = [(values.product(value.factors), value.coefficient)]
    factor = math.gcd(*(int(f) for _, f in terms)) or 1
    rest = values.sum([(term, f / factor) for term, f in terms])
    # With the axes of `known` at their least, below `factor`, the whole is no index below 0: nor is the rest.
    apart = 0 <= known.bounds[0] < factor and not known.axes & values.axes(rest)
    if apart and all(f == int(f) for _, f in terms):
        return Parts(known, rest, factor)
    return Parts(ZERO, value, 1)


def bound(values: Values, value: Value, numbers: Mapping[Axis, Value]) -> Value:
    """The value with its elements looked up where some axes are numbers. Raises ComputedElements."""
    done: dict[Value, Value] = {}
    asked = {axis for number in numbers.values() for axis in values.axes(number)}

    def visit(part: Value) -> Value:
        if values.axes(part).isdisjoint(numbers):
            return part
        if part not in done:
            done[part] = made(part)
        return done[part]

    def made(part: Value) -> Value:
        if isinstance(part, Element):
            return values.lookup(part, numbers)
        if isinstance(part, Position) and part.index.is_affine:
            here = [(axis, part.index.coefficient(axis)) for axis in numbers]
            rest = part.index - sum((index_of(a) * f for a, f in here), ZERO)
            terms = [(numbers[axis], float(factor)) for axis, factor in here if factor]
            return values.sum([(values.position(rest), 1.0), *terms])
        if isinstance(part, Choice) and all(c.is_affine for c in part.conditions):
            return chosen(part)
        if any(index.axes & numbers.keys() for index in own_indices(part)):
            raise ComputedElements
        if isinstance(part, Fold) and {a.name for a in part.axes} & {a.name for a in asked}:
            free: list[Axis] = []
            for axis in part.axes:
                free.append(
                    fresh_axis(axis.extent, {*asked, *part.axes, *values.axes(part), *free})
                )
            names = {a: index_of(b) for a, b in zip(part.axes, free, strict=True)}
            part = values.same(
                Fold(part.combiner, tuple(free), values.substitute(part.body, names))
            )
        return values.with_parts(part, list(map(visit, children(part))))

    def chosen(part: Choice) -> Value:
        """By comparisons of the numbers, two opposite ones being one."""
        on_true, on_false = visit(part.on_true), visit(part.on_false)
        found, tested = on_true, set[Index]()
        for condition in part.conditions:
            here = [(axis, condition.coefficient(axis)) for axis in numbers]
            if any(factor for _, factor in here) and condition not in tested:
                opposite = condition * -1
                both = opposite in part.conditions
                sign = 1 if next(factor for _, factor in here if factor) > 0 else -1
                rest = condition - sum((index_of(a) * f for a, f in here), ZERO)
                number = values.sum([(numbers[a], float(f * sign)) for a, f in here if f])
                name = "equal" if both else "greater_equal" if sign > 0 else "less_equal"
                pair = (number, values.position(rest * -sign))
                test = values.same(Application(name, pair))
                plain = (found, on_false) == (Constant(1.0), Constant(0.0))
                found = test if plain else apply(values, "select", [test, found, on_false])
                tested |= {condition, opposite} if both else {condition}
        return values.where([c for c in part.conditions if c not in tested], found, on_false)

    return visit(value)
