"""Parts of arrays and of tiles, and the loops that are open while a nest is written."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from accelopt.algorithm.index import Axis
from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.nests.axis_positions import At, Span, whole
from accelopt.kernels.nki.nests.statements import NestNode
from accelopt.kernels.nki.nests.text import Tile, collected


@dataclass(frozen=True)
class Where:
    """The part of a definition's domain that is worked on: which axes lie on partitions, and the span
    of each axis that is not whole; `order` is the order of free axes in tiles."""

    part: tuple[Axis, ...]
    spans: Mapping[Axis, Span]
    order: tuple[Axis, ...]

    def span(self, axis: Axis) -> Span:
        """Where along an axis."""
        return self.spans.get(axis) or whole(axis.extent)

    @property
    def rows(self) -> int:
        """Partitions."""
        return self.lanes(self.part)

    def lanes(self, axes: Iterable[Axis]) -> int:
        """Elements that there is room for along some axes."""
        return math.prod(self.span(axis).lanes for axis in axes)

    def is_padded(self, axes: Iterable[Axis]) -> bool:
        """Whether there is room beyond the elements of some axes."""
        return any(self.span(axis).lanes > self.span(axis).width for axis in axes)

    def rows_at(self, steps: Mapping[Axis, int]) -> list[tuple[int, int, int]]:
        """Of each axis on partitions, how many elements, and steps in an array and in partitions."""
        apart = zip(
            self.part, row_major([self.span(axis).lanes for axis in self.part]), strict=True
        )
        return [(self.span(axis).width, steps.get(axis, 0), step) for axis, step in apart]

    def free(self, axes: frozenset[Axis] | set[Axis]) -> tuple[Axis, ...]:
        """Those of some axes that lie along the free axis, in order."""
        found = [a for a in axes if a not in self.part and self.span(a).width > 1]
        place = {axis: n for n, axis in enumerate(self.order)}
        return tuple(sorted(found, key=lambda a: (place.get(a, len(place)), a.name)))

    def within(self, changes: Mapping[Axis, Span]) -> Where:
        """With other spans for some axes."""
        return Where(self.part, {**self.spans, **changes}, self.order)

    def begins(self, axes: Collection[Axis], whole: Where) -> At:
        """The partition of a whole that this is a part of along some axes, from which on it lies."""
        steps = dict(zip(whole.part, (step for *_, step in whole.rows_at({})), strict=True))
        return View(Tile("", 0, 0), At(), {a: steps[a] for a in axes}).moved(self, whole).offset

    def variables(self, axes: frozenset[Axis] | set[Axis]) -> set[str]:
        """The loop variables that the spans of some axes depend on."""
        return {name for axis in axes for name, _ in self.span(axis).start.terms}


@dataclass(frozen=True)
class View:
    """Elements of a tile: an offset, and a stride for each free axis that it varies along."""

    tile: Tile
    offset: At
    strides: Mapping[Axis, int]

    def moved(self, where: Where, by: Where) -> View:
        """The part at `where` of a view that was made at `by`, in which the axes begin."""
        offset = self.offset
        for axis, stride in self.strides.items():
            step = where.span(axis).start + by.span(axis).start * -1
            offset = offset + step * stride
        return View(self.tile, collected(offset), self.strides)


@dataclass
class Local:
    """A definition's tile on the chip: it holds the definition's elements at `where`."""

    view: View
    where: Where
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Box:
    """A part of an array from HBM on the chip: where it begins along each dimension, and how far."""

    view: View
    starts: Sequence[At]
    sizes: Sequence[int]
    strides: Sequence[int]


@dataclass
class Block:
    """The body of an open loop: statements, and what is known in it."""

    variable: str | None
    nodes: list[NestNode]
    values: dict[object, View] = field(default_factory=dict)
    locals: dict[str, list[Local]] = field(default_factory=dict)
    boxes: dict[object, list[Box]] = field(default_factory=dict)
    spans: Mapping[Axis, Span] = field(default_factory=dict)


class Round(NamedTuple):
    """One round of loops over parts of axes: where, and its number."""

    where: Where
    number: At


def _key(at: At) -> tuple[object, ...]:
    found = collected(at)
    return (found.constant, *sorted(found.terms)) if found.terms else (found.constant,)


def spans_of(where: Where, axes: Collection[Axis]) -> frozenset[tuple[object, ...]]:
    """What tells the spans of axes from others."""
    return frozenset(
        [
            (axis, _key(span.start), span.width, span.runs)
            for axis, span in [(axis, where.span(axis)) for axis in set(axes)]
        ]
    )


def differs(one: At, other: At) -> bool:
    """Whether two places are not the same in all rounds."""
    difference = collected(one + other * -1)
    return bool(difference.constant or difference.terms)


def stride_of(shape: tuple[int, ...], n: int) -> int:
    """Elements from one index of a dimension to the next."""
    return math.prod(shape[n + 1 :])
