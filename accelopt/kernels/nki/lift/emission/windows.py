"""Reads of one array at several offsets along a row, or at a stride: a window is loaded once, as it
lies in HBM, and each read is a view of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.lift.emission.axes import axis_of
from accelopt.kernels.nki.lift.emission.graph import (
    Graph,
    GraphValue,
    NotLowered,
    ResultPart,
    pruned,
)
from accelopt.kernels.nki.lift.emission.nest import Comment, NestNode, line
from accelopt.kernels.nki.lift.emission.phases import Phase, Placed, Roles
from accelopt.kernels.nki.lift.emission.value_locations import Spot, Tile, part, subscripts

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock


def whole_rows(graph: Graph, rows: str) -> Graph:
    """The graph with every array whose rows are read at a stride as rows of one dimension."""
    arrays = dict(graph.arrays)
    made: dict[GraphValue, GraphValue] = {}
    for name in graph.inputs:
        reads = [value for value in graph.values if value.kind == "input" and value.array == name]
        depth = _row_dimension(reads, rows)
        if depth is None or all(_step(graph, value, rows) == 1 for value in reads):
            continue
        shape = graph.arrays[name].shape
        arrays[name] = replace(
            arrays[name], shape=(*shape[: depth + 1], math.prod(shape[depth + 1 :]))
        )
        for value in reads:
            place = Index()
            for index, extent in zip(value.indices[depth + 1 :], shape[depth + 1 :], strict=True):
                place = place * extent + index
            made[value] = replace(value, indices=(*value.indices[: depth + 1], place))
    if not made:
        return graph
    for value in graph.values:
        if value not in made:
            made[value] = replace(value, arguments=tuple(made[a] for a in value.arguments))
    outputs = tuple(ResultPart(o.array, o.indices, made[o.value]) for o in graph.outputs)
    return pruned(replace(graph, arrays=arrays, outputs=outputs))


def _row_dimension(reads: Iterable[GraphValue], rows: str) -> int | None:
    """The dimension along which all reads have their rows, with nothing but one other axis and
    numbers behind it."""
    found: set[int | None] = set()
    for value in reads:
        at = [n for n, i in enumerate(value.indices) if any(a.name == rows for a in i.axes)]
        plain = len(at) == 1 and axis_of(value.indices[at[0]]).name == rows
        behind = {a for i in value.indices[at[0] + 1 :] for a in i.axes} if plain else set()
        found.add(at[0] if plain and len(behind) == 1 and value.padding is None else None)
    return found.pop() if len(found) == 1 else None


def _step(graph: Graph, value: GraphValue, rows: str) -> int:
    """How far apart in memory neighbours along the last axis of a read are."""
    size, step = 1, 0
    for index, extent in zip(
        reversed(value.indices), reversed(graph.arrays[value.array].shape), strict=True
    ):
        for term, factor in index.terms:
            if isinstance(term, Axis) and term.name != rows and not step:
                step = factor * size
        size *= extent
    return step or 1


@dataclass(frozen=True)
class ReadWindow:
    """What several reads take of a row: from `first` before, to `last` behind each position, which
    are `stride` elements apart. Outside of the array it is `padding`."""

    members: tuple[GraphValue, ...]
    dimension: int
    first: int
    last: int
    stride: int
    padding: float | None


class Windows:
    """Finds and loads them for a `RowBlock`."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block

    def of(self, value: GraphValue, phase: Phase) -> ReadWindow | None:
        """The window of an input of a phase; None for one that is read by itself."""
        roles = self.block.roles
        axis = roles.feature(value)
        if axis is None or Placed(value, "rows") in self.block.lives.kept:
            if value.padding is not None:
                raise NotLowered(f"a padded {value.array} is read in several phases")
            return None
        key = _family(value, axis, roles)
        members = [
            v
            for v in phase.values
            if v.kind == "input" and roles.feature(v) == axis and _family(v, axis, roles) == key
            and Placed(v, "rows") not in self.block.lives.kept
        ]  # fmt: skip
        dimension = next(n for n, index in enumerate(value.indices) if axis in index.axes)
        places = [v.indices[dimension].constant for v in members]
        stride = dict(value.indices[dimension].terms)[axis]
        if len(members) == 1 and stride == 1 and value.padding is None:
            return None
        if len(value.indices[dimension].terms) > 1:
            raise NotLowered(f"one dimension of {value.array} is read along two axes at once")
        if stride < 1:
            raise NotLowered(f"{value.array} is read backwards")
        paddings = {v.padding for v in members} - {None}
        if len(paddings) > 1:
            raise NotLowered(f"{value.array} is padded by two numbers")
        return ReadWindow(
            tuple(members), dimension, min(places), max(places), stride,
            paddings.pop() if paddings else None,
        )  # fmt: skip

    def load(self, body: list[NestNode], window: ReadWindow, phase: Phase, spot: Spot) -> None:
        """Loads a window, and says where in it its members are."""
        block, value = self.block, window.members[0]
        rows, extent = (
            block.tiling.row_tile,
            block.graph.arrays[value.array].shape[window.dimension],
        )
        width = (spot.width - 1) * window.stride + window.last - window.first + 1
        axis = phase.axis
        parts = spot.width != axis.extent
        if parts and (window.stride > 1 or window.padding is not None):
            raise NotLowered(f"a padded or strided {value.array} in parts of a row")
        name = block.names.new(f"{value.array}_window")
        low = 0 if parts else max(0, -window.first)
        high = width if parts else min(width, extent - window.first)
        filled = [(begin, end) for begin, end in ((0, low), (high, width)) if begin < end]
        if filled:
            near = f"{value.array} from {window.first} to {window.last} around every position."
            body.append(Comment(near))
            block.storage.declare(body, name, (rows, *block.beside, width), 2, value.dtype)
            for begin, end in filled:
                fill = f"nisa.memset(({rows}, {end - begin}), {window.padding!r}, dtype=nl.{value.dtype})"
                body.append(line(f"{name}[:, {begin}:{end}] = {fill}"))
        spans = block.transfers.spans(spot, None)
        start = spot.start + (window.first + low)
        indices = list(value.indices)
        indices[window.dimension] = Index()
        where = subscripts(
            tuple(indices), block.graph.arrays[value.array].shape, spans, block.loops
        )
        size = high - low
        where[window.dimension] = part(start, size, extent)
        target = f"{name}[:, {block.rows_within}{low}:{high}]" if filled else name
        block.storage.count(name, (*block.beside, width), 2, value.dtype)
        text = f"{target} = nl.load({block.views[value.array]}[{', '.join(where)}])"
        body.append(block.transfers.dma(text, rows, size, value.dtype))
        for member in window.members:
            first = member.indices[window.dimension].constant - window.first
            block.tiles[Placed(member, "rows")] = Tile(
                name, "temporary", first=first, stride=window.stride
            )


def _family(value: GraphValue, axis: Axis, roles: Roles) -> tuple[object, ...]:
    """Equal for reads of one array that differ in an offset along the row alone."""
    for index in value.indices:
        if roles.rows in index.axes and index != index_of(roles.rows):
            return (value.array, value.indices)
    places = tuple(
        Index(0, index.terms) if axis in index.axes else index for index in value.indices
    )
    return (value.array, places)
