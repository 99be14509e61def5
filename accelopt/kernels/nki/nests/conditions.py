"""Along which axes conditions change, and where: each part of those is written on its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from accelopt.algorithm.algorithm import Definition, Where, expressions_of, walk
from accelopt.algorithm.index import Axis, Index
from accelopt.kernels.nki.nests.preparing import MOST_PIECES


def deciding(definitions: Iterable[Definition]) -> set[Axis]:
    """Short axes along which conditions change, each element of which is written on its own."""
    found = {axis for c in _conditions(definitions) if len(c.axes) == 1 for axis in c.axes}
    return {axis for axis in found if axis.extent <= MOST_PIECES}


def parts_along(definitions: Iterable[Definition]) -> Mapping[Axis, tuple[int, ...]]:
    """Of longer axes, where parts begin in which no condition changes, in one element of the short ones;
    of those that have few such parts."""
    definitions = tuple(definitions)
    short = deciding(definitions)
    found: dict[Axis, set[int]] = {}
    for condition in _conditions(definitions):
        long = [axis for axis in condition.axes if axis not in short]
        if len(long) != 1 or not condition.is_affine or long[0].extent <= MOST_PIECES:
            continue
        (axis,) = long
        others = sorted(condition.axes - {axis})
        for numbers in itertools.product(*(range(other.extent) for other in others)):
            own = condition.substitute(
                {other: Index(n) for other, n in zip(others, numbers, strict=True)}
            )
            factor = own.coefficient(axis)
            change = -(own.constant // factor) if factor > 0 else own.constant // -factor + 1
            if 0 < change < axis.extent:
                found.setdefault(axis, {0}).add(change)
    return {
        axis: tuple(sorted(starts)) for axis, starts in found.items() if len(starts) <= MOST_PIECES
    }


def _conditions(definitions: Iterable[Definition]) -> Iterator[Index]:
    for definition in definitions:
        for expression in expressions_of(definition):
            for part in walk(expression):
                yield from part.conditions if isinstance(part, Where) else ()
