"""Along which axes conditions change, and where: each part of those is written on its own."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index
from accelopt.kernels.nki.nests.preparing import MOST_PIECES


@functools.lru_cache(maxsize=1024)
def deciding(definitions: tuple[ir.Definition, ...]) -> Mapping[Axis, tuple[int, ...]]:
    """Short axes along which conditions change, with where parts begin in which none does, each of which
    is written on its own; one that decides where a condition changes along a longer one, element by element."""
    along = {condition: condition.axes for condition in _conditions(definitions)}
    shared = {axis for axes in along.values() if len(axes) > 1 for axis in axes}
    found: dict[Axis, set[int]] = {}
    for condition, axes in along.items():
        axis = next(iter(axes), None)
        if axis is None or len(axes) > 1 or axis.extent > MOST_PIECES:
            continue
        apart = not condition.is_affine or axis in shared
        starts = range(axis.extent) if apart else (0, _change(condition, axis))
        found.setdefault(axis, set()).update(n for n in starts if 0 <= n < axis.extent)
    for condition in _conditions(d for d in definitions if isinstance(d, ir.Map)):
        short, *others = sorted(condition.axes, key=lambda axis: axis.extent)
        if len(others) == 1 and short.extent <= MOST_PIECES < others[0].extent:
            found.setdefault(short, set()).update(range(short.extent))
    return {axis: tuple(sorted(starts)) for axis, starts in found.items()}


def _change(condition: Index, axis: Axis) -> int:
    """The first place along its axis from which on a condition holds, or fails."""
    factor = condition.coefficient(axis)
    return -(condition.constant // factor) if factor > 0 else condition.constant // -factor + 1


@functools.lru_cache(maxsize=1024)
def parts_along(
    definitions: tuple[ir.Definition, ...], alone: bool = False
) -> Mapping[Axis, tuple[int, ...]]:
    """Of longer axes, where parts begin in which no condition changes, in one element of the short ones;
    of those that have few such parts, or with `alone` of those that conditions are on alone."""
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
            if 0 < (change := _change(own, axis)) < axis.extent:
                found.setdefault(axis, {0}).add(change)
    joined = {a for c in _conditions(definitions) if len(c.axes) > 1 for a in c.axes if alone}
    return {
        axis: tuple(sorted(starts))
        for axis, starts in found.items()
        if len(starts) <= MOST_PIECES and axis not in joined
    }


@functools.lru_cache(maxsize=1024)
def changing(definitions: tuple[ir.Definition, ...]) -> Mapping[Axis, tuple[int, ...]]:
    """Of longer axes, where another of two values is taken that are both computed or brought."""
    chosen = tuple(
        ir.Map(d.out, (), part)
        for d in definitions
        for part in ir.parts_in(d)
        if isinstance(part, ir.Where) and not isinstance(part.on_false, ir.Constant)
    )
    return parts_along(chosen)


def _conditions(definitions: Iterable[ir.Definition]) -> Iterator[Index]:
    return (condition for definition in definitions for condition in _conditions_in(definition))


@functools.lru_cache(maxsize=1024)
def _conditions_in(definition: ir.Definition) -> tuple[Index, ...]:
    return tuple(
        c for part in ir.parts_in(definition) if isinstance(part, ir.Where) for c in part.conditions
    )
