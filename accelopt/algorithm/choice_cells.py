"""Choices by conditions on single axes, as the parts of their domain that these cut out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.value_nodes import Choice, Undefined, Value
from accelopt.algorithm.values import Values, never

MOST_CELLS = 4096
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
