"""Axes as the problem has them: tiles and blocks of one axis join, what stands for two is split.

Two axes join when every index has them as the digits of one number. An axis is split where indices
use its digits apart, as `h // 2` and `h % 2` in grouped attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, permutations

from accelopt.algorithm.index import Axis, Floor, Index, digits, index_of
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.value_nodes import (
    Element,
    Fold,
    Value,
    bound_axes,
    children,
    every,
    own_indices,
)
from accelopt.algorithm.values import Values, fresh_axis

MOST_PAIRS = 90
"""Axes are joined in a pair at a time, as long as there are no more pairs than this to try."""

ChangeFold = Callable[[Values, Fold], Value]


def row_major(axes: Sequence[Axis]) -> Index:
    """The number of the element at some axes."""
    number = Index()
    for axis in axes:
        number = number * axis.extent + (index_of(axis) if axis.extent > 1 else 0)
    return number


def joined(values: Values, axes: tuple[Axis, ...], value: Value) -> tuple[tuple[Axis, ...], Value]:
    """A value over the axes of an output, with all its axes as long as they can be."""
    axes, value = _split(values, axes, value)
    value = joined_within(values, value)
    found = True
    while found:
        found = False
        for outer, inner in pairwise(axes):
            if _digits_of_one(values, value, outer, inner):
                taken = [axis for axis in axes if axis not in (outer, inner)]
                whole = _whole(outer, inner, taken, values, value)
                value = values.substitute(value, _parts(whole, outer, inner))
                place = axes.index(outer)
                axes = (*axes[:place], whole, *axes[place + 2 :])
                found = True
                break
    return axes, value


def join_free(values: Values, value: Value) -> tuple[Value, dict[Axis, Index]]:
    """A value with the axes that it depends on joined, and what the new axes are of the old."""
    meaning: dict[Axis, Index] = {}
    free = sorted(values.axes(value))
    pair = _some_pair(values, value, free)
    while pair is not None:
        outer, inner = pair
        whole = _whole(outer, inner, [*free, *meaning], values, value)
        value = values.substitute(value, _parts(whole, outer, inner))
        parts = [meaning.pop(axis, index_of(axis)) for axis in pair]
        meaning[whole] = parts[0] * inner.extent + parts[1]
        free = sorted(values.axes(value))
        pair = _some_pair(values, value, free)
    return value, meaning


def _whole(outer: Axis, inner: Axis, taken: Iterable[Axis], values: Values, value: Value) -> Axis:
    """An axis for both; its name starts with x so that no reduction has it."""
    names = {axis.name for axis in (*taken, *values.axes(value))}
    number = 0
    while f"x{number}" in names:
        number += 1
    return Axis(f"x{number}", outer.extent * inner.extent)


def _parts(whole: Axis, outer: Axis, inner: Axis) -> dict[Axis, Index]:
    n = index_of(whole)
    return {outer: n // inner.extent, inner: n % inner.extent}


def joined_within(values: Values, value: Value) -> Value:
    """The value with the axes that its reductions bind joined."""
    return _within(values, value, _bound_joined, {})


def _within(values: Values, value: Value, change: ChangeFold, done: dict[Value, Value]) -> Value:
    """The value with each of its reductions changed, those below another first."""
    if value not in done:
        parts = [_within(values, part, change, done) for part in children(value)]
        same = all(a is b for a, b in zip(parts, children(value), strict=True))
        found = value if same else values.with_parts(value, parts)
        done[value] = change(values, found) if isinstance(found, Fold) else found
    return done[value]


def _bound_joined(values: Values, value: Fold) -> Value:
    found: Value = value
    while isinstance(found, Fold):
        pair = _some_pair(values, found.body, found.axes)
        if pair is None:
            return found
        outer, inner = pair
        taken = {*values.axes(found.body), *found.axes, *_bound_below(found.body)}
        whole = fresh_axis(outer.extent * inner.extent, taken)
        body = values.substitute(found.body, _parts(whole, outer, inner))
        rest = [axis for axis in found.axes if axis not in pair]
        found = fold(values, found.combiner, [*rest, whole], body)
    return found


def _bound_below(value: Value) -> set[Axis]:
    found: set[Axis] = set()
    for part in every(value):
        found |= set(bound_axes(part))
    return found


def _some_pair(values: Values, value: Value, axes: Sequence[Axis]) -> tuple[Axis, Axis] | None:
    pairs = list(permutations(axes, 2))
    if len(pairs) > MOST_PAIRS:
        return None
    return next((pair for pair in pairs if _digits_of_one(values, value, *pair)), None)


def _digits_of_one(values: Values, value: Value, outer: Axis, inner: Axis) -> bool:
    """True when a value depends on both axes, and only as on the digits of one number."""
    return all(
        index is not None and _joins(index, outer, inner)
        for index in _indices(values, value, {outer, inner})
    )


def _joins(index: Index, outer: Axis, inner: Axis) -> bool:
    """True when an index has `outer` and `inner` only as `outer * inner.extent + inner`."""
    if index.coefficient(outer) != index.coefficient(inner) * inner.extent:
        return False
    return all(
        _joins(term.inner, outer, inner) for term, _ in index.terms if isinstance(term, Floor)
    )


def _indices(values: Values, value: Value, axes: set[Axis]) -> Iterator[Index | None]:
    """Every index below a value that some of the axes, which it depends on, may stand in, each once;
    None where another one of an axis's name hides it."""
    seen: set[Value | Index] = set()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if part in seen or values.axes(part).isdisjoint(axes):
            continue
        seen.add(part)
        if not axes.isdisjoint(bound_axes(part)):
            yield None
        for index in _subscripts(values, part):
            if index not in seen:
                seen.add(index)
                yield index
        waiting.extend(children(part))


def _subscripts(values: Values, value: Value) -> Sequence[Index]:
    """The indices that stand in a value itself, of an element by the dimensions of its array where those are known."""
    if isinstance(value, Element) and (shape := values.shapes.get(value.array)):
        return digits(value.address, shape)
    return own_indices(value)


def _split(values: Values, axes: tuple[Axis, ...], value: Value) -> tuple[tuple[Axis, ...], Value]:
    """The value with the axes that stand below a floor split in the digits on both its sides."""
    while True:
        found = _cut(values, value, axes)
        if found is None:
            break
        cut, divisor = found
        high, low = Axis(f"{cut.name}h", cut.extent // divisor), Axis(f"{cut.name}l", divisor)
        value = values.substitute(value, {cut: index_of(high) * low.extent + index_of(low)})
        place = axes.index(cut)
        axes = (*axes[:place], high, low, *axes[place + 1 :])
    return axes, _within(values, value, _fold_split, {})


def _fold_split(values: Values, value: Fold) -> Value:
    """A reduction with those of its axes split that stand below a floor."""
    found: Value = value
    while isinstance(found, Fold):
        place = _cut(values, found.body, found.axes)
        if place is None:
            break
        cut, divisor = place
        taken = {*values.axes(found.body), *found.axes, *_bound_below(found.body)}
        high = fresh_axis(cut.extent // divisor, taken)
        low = fresh_axis(divisor, {*taken, high})
        body = values.substitute(found.body, {cut: index_of(high) * low.extent + index_of(low)})
        rest = [axis for axis in found.axes if axis != cut]
        found = fold(values, found.combiner, [*rest, high, low], body)
    return found


def _cut(values: Values, value: Value, axes: Sequence[Axis]) -> tuple[Axis, int] | None:
    """The first axis that stands alone below a floor, with the divisor."""
    for axis in axes:
        for index in _indices(values, value, {axis}):
            for term, _ in index.terms if index is not None else ():
                if not isinstance(term, Floor) or term.inner != index_of(axis):
                    continue
                if axis.extent % term.divisor == 0 and axis.extent > term.divisor:
                    return axis, term.divisor
    return None
