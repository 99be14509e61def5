"""Choices by conditions on single axes, as the parts of their domain that these cut out."""

from __future__ import annotations

import itertools
import math

from accelopt.algorithm.addresses import never
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.value_nodes import Choice, Undefined, Value
from accelopt.algorithm.values import Values

MOST_CELLS = 4096


def by_fewest_cuts(values: Values, value: Value) -> Value:
    """A choice with the fewest cuts along each axis, axis by axis in the order of their names; what is no choice, or
    has other conditions, as it is. Memory that nothing has written goes where it is never chosen."""
    branches, rest = list[tuple[tuple[Index, ...], Value]](), value
    while isinstance(rest, Choice):
        single = [c for c in rest.conditions if len(c.terms) == 1]
        left = [c for c in rest.conditions if c not in single and not never((*single, c * -1 - 1))]
        branches.append(((*single, *left), rest.on_true))
        rest = rest.on_false
    cuts: dict[Axis, set[int]] = {}
    for condition in (c for own, _ in branches for c in own):
        (axis, step), *others = condition.terms
        if others or not isinstance(axis, Axis):
            return value
        start = -(condition.constant // step) if step > 0 else condition.constant // -step + 1
        cuts.setdefault(axis, {0}).update({start} & {*range(axis.extent)})
    if not branches or math.prod(map(len, cuts.values())) > MOST_CELLS:
        return value
    axes = sorted(cuts, key=lambda axis: axis.name)

    def chosen(place: tuple[int, ...]) -> Value:
        at = {axis: Index(n) for axis, n in zip(axes, place, strict=True)}
        holds = (v for own, v in branches if all(c.substitute(at).constant >= 0 for c in own))
        return next(holds, rest)

    cells = {place: chosen(place) for place in itertools.product(*(sorted(cuts[a]) for a in axes))}
    if isinstance(rest, Undefined) and rest in cells.values():
        return value

    def nested(place: tuple[int, ...]) -> Value:
        if len(place) == len(axes):
            return cells[place]
        axis = axes[len(place)]
        first, *starts = sorted(cuts[axis])
        made = last = nested((*place, first))
        for start in starts:
            part = nested((*place, start))
            if part != last:
                made, last = values.where([index_of(axis) - start], part, made), part
        return made

    return nested(())
