"""Loops that Python unrolled: a value that is chosen by the place along an axis, from values that differ in
places alone, is one value along that axis."""

from __future__ import annotations

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.value_nodes import Choice, Value, children, details, every, own_indices
from accelopt.algorithm.values import Values

MOST_ROUNDS = 128
"""Of a loop that Python unrolled; each of them is read once more."""


def rolled_up(values: Values, value: Value, axes: tuple[Axis, ...]) -> Value:
    """The value, without choices by the place along those of some axes along which all that is chosen
    follows one rule: what stands at 0 and 1 gives the rule, and all other places are asked."""
    choices = [part for part in every(value) if isinstance(part, Choice)]
    chosen = {axis for part in choices for condition in part.conditions for axis in condition.axes}
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


def _along(values: Values, first: Value, second: Value, axis: Axis) -> Value | None:
    """The value that is `first` at 0 of an axis and `second` at 1, and differs in places alone."""
    if first is second:
        return first
    if isinstance(first, Constant) and isinstance(second, Constant):
        step = second.value - first.value
        return values.sum([(values.position(index_of(axis)), step)], first.value)
    if type(first) is not type(second) or details(first) != details(second):
        return None
    places = [
        _line(*pair, axis) for pair in zip(own_indices(first), own_indices(second), strict=True)
    ]
    pairs = zip(children(first), children(second), strict=True)
    parts = [_along(values, *pair, axis) for pair in pairs]
    known = [part for part in parts if part is not None]
    found = [place for place in places if place is not None]
    if len(known) < len(parts) or len(found) < len(places):
        return None
    return values.with_parts(first, known, found)


def _line(first: Index, second: Index, axis: Axis) -> Index | None:
    """The index that is `first` at 0 of an axis and `second` at 1."""
    if first.terms != second.terms:
        return None
    return first + index_of(axis) * (second.constant - first.constant)
