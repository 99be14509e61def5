"""Loops that Python unrolled: a value that is chosen by the place along an axis, from values that differ in
places alone, is one value along that axis."""

from __future__ import annotations

from collections.abc import Iterator

from accelopt.algorithm.algorithm import Constant, Position
from accelopt.algorithm.index import Axis, Index, index_of
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
    children,
)
from accelopt.algorithm.values import Values

MOST_ROUNDS = 128
"""Of a loop that Python unrolled; each of them is read once more."""


def rolled_up(values: Values, value: Value, axes: tuple[Axis, ...]) -> Value:
    """The value, without choices by the place along those of some axes along which all that is chosen
    follows one rule: what stands at 0 and 1 gives the rule, and all other places are asked."""
    chosen = {axis for condition in _conditions(value) for axis in condition.axes}
    for axis in axes:
        if axis in chosen and 1 < axis.extent <= MOST_ROUNDS:
            first, second = (values.substitute(value, {axis: Index(n)}) for n in (0, 1))
            made = _along(values, first, second, axis)
            if made is not None and all(
                values.substitute(made, {axis: Index(n)})
                == values.substitute(value, {axis: Index(n)})
                for n in range(1, axis.extent)
            ):
                value = made
    return value


def _conditions(value: Value) -> Iterator[Index]:
    waiting, seen = [value], set[Value]()
    while waiting:
        part = waiting.pop()
        if part not in seen:
            seen.add(part)
            waiting += children(part)
            yield from part.conditions if isinstance(part, Choice) else ()


def _along(values: Values, first: Value, second: Value, axis: Axis) -> Value | None:
    """The value that is `first` at 0 of an axis and `second` at 1, and differs in places alone."""
    if first is second:
        return first
    if isinstance(first, Constant) and isinstance(second, Constant):
        step = second.value - first.value
        return values.sum([(values.position(index_of(axis)), step)], first.value)
    if type(first) is not type(second) or _rest(first) != _rest(second):
        return None
    places = [_line(*pair, axis) for pair in zip(_places(first), _places(second), strict=True)]
    pairs = zip(children(first), children(second), strict=True)
    parts = [_along(values, *pair, axis) for pair in pairs]
    known = [part for part in parts if part is not None]
    found = [place for place in places if place is not None]
    if len(known) < len(parts) or len(found) < len(places):
        return None
    if isinstance(first, Element):
        return values.same(Element(first.array, first.number, first.dtype, found[0]))
    if isinstance(first, Position):
        return values.position(found[0])
    if isinstance(first, Choice):
        return values.where(found, *known)
    if isinstance(first, ScanElement):
        factor, term, initial = known
        return values.same(
            ScanElement(first.scale, factor, first.combine, term, initial, first.along, found[0])
        )
    return values.with_parts(first, known)


def _rest(value: Value) -> object:
    """What is neither a part of a value nor a place."""
    if isinstance(value, Element):
        return value.array
    if isinstance(value, Choice):
        return len(value.conditions)
    if isinstance(value, Sum):
        return value.constant, [c for _, c in value.terms]
    if isinstance(value, Product):
        return value.coefficient, [power for _, power in value.factors]
    if isinstance(value, Fold):
        return value.combiner, value.axes
    if isinstance(value, ScanElement):
        return value.scale, value.combine, value.along
    if isinstance(value, Lookup):
        return value.axes
    if isinstance(value, Application):
        return value.function, len(value.arguments)
    return value if not isinstance(value, Position) else None


def _places(value: Value) -> tuple[Index, ...]:
    if isinstance(value, Element):
        return (value.address,)
    if isinstance(value, Position):
        return (value.index,)
    if isinstance(value, ScanElement):
        return (value.at,)
    return value.conditions if isinstance(value, Choice) else ()


def _line(first: Index, second: Index, axis: Axis) -> Index | None:
    """The index that is `first` at 0 of an axis and `second` at 1."""
    if first.terms != second.terms:
        return None
    return first + index_of(axis) * (second.constant - first.constant)
