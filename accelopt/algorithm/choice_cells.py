"""Choices by conditions on single axes, as the parts of their domain that these cut out."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from accelopt.algorithm.canonical_rewriting import rewritten
from accelopt.algorithm.equal_definitions import ASSOCIATIVE
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.value_nodes import Choice, Fold, Undefined, Value, every
from accelopt.algorithm.values import Values, never

MOST_CELLS = 4096
MOST_TERMS = 64
"""Of a reduction that is taken apart."""
T = TypeVar("T")


class Cells(Generic[T]):
    """The parts of a domain that conditions on single axes cut out: `starts` of parts along each axis. `branches` are
    chosen in order, each where its conditions hold; else `rest`."""

    def __init__(self, branches: Sequence[tuple[tuple[Index, ...], T]], rest: T) -> None:
        self.branches, self.rest = branches, rest
        cuts: dict[Axis, set[int]] = {}
        for condition in (c for own, _ in branches for c in own):
            ((axis, step),) = condition.terms
            assert isinstance(axis, Axis)
            start = -(condition.constant // step) if step > 0 else condition.constant // -step + 1
            cuts.setdefault(axis, {0}).update({start} & {*range(axis.extent)})
        self.starts = {axis: sorted(own) for axis, own in cuts.items()}
        self.count = math.prod(map(len, self.starts.values()))

    def chosen(self, place: Mapping[Axis, int]) -> T:
        """What is chosen at a place."""
        at = {axis: Index(n) for axis, n in place.items()}
        holds = (v for own, v in self.branches if all(c.substitute(at).constant >= 0 for c in own))
        return next(holds, self.rest)


def is_single(condition: Index) -> bool:
    """Whether a condition is one on a single axis."""
    return len(condition.terms) == 1 and isinstance(condition.terms[0][0], Axis)


def by_fewest_cuts(values: Values, value: Value) -> Value:
    """A choice with the fewest cuts along each axis, axis by axis in the order of their names; what is no choice, or
    has other conditions, as it is. Memory that nothing has written goes where it is never chosen."""
    branches, rest = list[tuple[tuple[Index, ...], Value]](), value
    while isinstance(rest, Choice):
        single = [c for c in rest.conditions if len(c.terms) == 1]
        left = [c for c in rest.conditions if c not in single and not never((*single, c * -1 - 1))]
        branches.append(((*single, *left), rest.on_true))
        rest = rest.on_false
    if not branches or not all(is_single(c) for own, _ in branches for c in own):
        return value
    cut = Cells(branches, rest)
    if cut.count > MOST_CELLS:
        return value
    axes = sorted(cut.starts, key=lambda axis: axis.name)
    places = itertools.product(*(cut.starts[axis] for axis in axes))
    cells = {place: cut.chosen(dict(zip(axes, place, strict=True))) for place in places}
    if isinstance(rest, Undefined) and rest in cells.values():
        return value

    def nested(place: tuple[int, ...]) -> Value:
        if len(place) == len(axes):
            return cells[place]
        axis = axes[len(place)]
        first, *starts = cut.starts[axis]
        made = last = nested((*place, first))
        for start in starts:
            part = nested((*place, start))
            if part != last:
                made, last = values.where([index_of(axis) - start], part, made), part
        return made

    return nested(())


def by_cells(values: Values, value: Value, axes: Sequence[Axis]) -> Value:
    """A value with what it chooses by conditions on single ones of some axes chosen first, axis by axis, with the
    fewest cuts; short reductions of choices by those axes and theirs as their terms. What is chosen in the terms of
    sums and in the arguments of functions stands in one form then."""
    value = rewritten(values, value, functools.partial(_terms, values))
    return _by_cells(values, value, list(axes), [MOST_CELLS])


def _terms(values: Values, value: Value) -> Value:
    """A short reduction of choices by its axes and by others as what it combines, one by one."""
    if not isinstance(value, Fold) or value.combiner not in ASSOCIATIVE:
        return value
    conditions = (
        c for part in every(value.body) if isinstance(part, Choice) for c in part.conditions
    )
    bound = {*value.axes}
    few = math.prod(axis.extent for axis in bound) <= MOST_TERMS
    if not few or all(c.axes <= bound or not c.axes & bound for c in conditions):
        return value
    places = itertools.product(*(range(axis.extent) for axis in value.axes))
    numbers = (dict(zip(value.axes, map(Index, place), strict=True)) for place in places)
    terms = [values.substitute(value.body, number) for number in numbers]
    if value.combiner == "add":
        return values.sum([(term, 1.0) for term in terms])
    return functools.reduce(lambda a, b: apply(values, value.combiner, [a, b]), terms)


def _by_cells(values: Values, value: Value, axes: list[Axis], left: list[int]) -> Value:
    """`by_cells` along the first of the axes, then along the others; no more cells than are `left`."""
    conditions = (c for part in every(value) if isinstance(part, Choice) for c in part.conditions)
    found = [c for c in conditions if is_single(c) and c.axes <= {*axes}]
    if not found:
        return value
    axis = min((axis for c in found for axis in c.axes), key=axes.index)
    cut = Cells([((c,), 0) for c in found if c.axes == {axis}], 0)
    starts = cut.starts[axis]
    left[0] -= len(starts)
    if left[0] < 0:
        return value
    parts = list[tuple[int, Value]]()
    for start, end in itertools.pairwise([*starts, axis.extent]):
        place, alone = index_of(axis), {axis: Index(start)} if end - start == 1 else {}
        part = values.under(value, (place - start, place * -1 + (end - 1)))
        part = values.substitute(part, alone)
        part = _by_cells(values, part, [a for a in axes if a != axis], left)
        if parts and values.substitute(parts[-1][1], alone) == part:
            continue
        before = {axis: Index(start - 1)}
        if parts and parts[-1] == (start - 1, values.substitute(part, before)):
            start = parts.pop()[0]
        parts.append((start, part))
    made = parts[0][1]
    for start, part in parts[1:]:
        made = values.where([index_of(axis) - start], part, made)
    return made
