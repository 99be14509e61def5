"""A sum or a maximum over windows along several axes, first along all but one of them; what is computed of
an element of a window, once for all windows that have it.

before: y[m, n] = sum_k,l f(x[m + l, n + k]), nine elements of 3 x 3
after:  y_of[i, j] = f(x[i, j]); y_rows[i, n] = sum_k y_of[i, n + k]; y[m, n] = sum_l y_rows[m + l, n], three and three
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.value_nodes import ORDERED

MOST_LEFT = 0.8
"""Of the functions that are applied to elements: above that it is not worth a definition."""
LONGEST = 16
"""Elements along a window."""


def windows_separated(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With such definitions where what is combined depends on a place in a window by an element's place alone."""
    made = (part for definition in algorithm.definitions for part in _separated(definition))
    return replace(algorithm, definitions=tuple(made))


def _separated(definition: ir.Definition) -> Iterator[ir.Definition]:
    if not isinstance(definition, ir.Reduce) or definition.combiner in ORDERED:
        yield definition
        return
    for window in definition.reduced:
        for axis in definition.axes if window.extent <= LONGEST else ():
            if found := _along(definition, window, axis):
                yield from _separated(found[0])
                yield found[1]
                return
    yield definition


def _along(
    definition: ir.Reduce, window: Axis, axis: Axis
) -> tuple[ir.Definition, ir.Reduce] | None:
    """A definition in two, of which the second is along one window alone, which moves along an axis of the result."""
    rest = tuple(a for a in definition.reduced if a != window)
    name = f"{definition.out}_{'rows' if rest else 'of'}"
    body, conditions, nothing = definition.expression, tuple[Index, ...](), ir.Constant(0.0)
    match body:
        case ir.Where(conditions, chosen, ir.Constant() as nothing):
            body = chosen
    indices = (index for part in ir.walk(body) for index in ir.indices_of(part))
    both = next((i for i in indices if {window, axis} <= i.axes and i.is_affine), None)
    step, apart = (both.coefficient(a) for a in (window, axis)) if both else (0, 0)
    if min(step, apart) != 1 or (definition.combiner == "add" and nothing.value):
        return None
    place = index_of(window) * step + index_of(axis) * apart
    low, high = place.bounds
    outside, inside = list[Index](), list[Index]()
    for condition in conditions:
        own = bool(condition.axes & {window, axis})
        (outside if own else inside).append(condition)
        times = condition.coefficient(window) // step
        left = condition - place * times
        if own and (left.terms or not times):
            return None
        if times > 0:
            low = max(low, -(left.constant // times))
        elif own:
            high = min(high, left.constant // -times)
    there = Axis(f"{name}_{axis.name}", high - low + 1)
    gone, other, factor = (window, axis, apart) if step == 1 else (axis, window, step)
    # What is read at a place is named by the place.
    body = ir.substituted(body, {gone: index_of(there) - index_of(other) * factor + low}, {})
    computed = sum(
        isinstance(part, ir.Apply)
        and not isinstance(part.arguments[-1], ir.Constant)
        and there in ir.axes_of(part)
        for part in ir.walk(body)
    )
    others = math.prod(a.extent for a in rest)
    before = axis.extent * ((computed + 1) * window.extent * others - 1)
    after = there.extent * ((computed + 1) * others - 1) + axis.extent * (window.extent - 1)
    if {window, axis} & ir.axes_of(body) or after > MOST_LEFT * before:
        return None
    axes = tuple(there if a == axis else a for a in definition.axes)
    body = ir.Where(tuple(inside), body, nothing) if inside else body
    places = tuple(place - low if a == there else index_of(a) for a in axes)
    read: ir.Expression = ir.Read(name, places)
    read = ir.Where(tuple(outside), read, nothing) if outside else read
    first = (
        ir.Reduce(name, axes, rest, definition.combiner, body) if rest else ir.Map(name, axes, body)
    )
    return first, replace(definition, reduced=(window,), expression=read)
