"""Parts of a row of a result that lie side by side: they are stored at once, as a whole row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis, Index
from accelopt.kernels.nki.lift.emission.graph import ResultPart
from accelopt.kernels.nki.lift.emission.nest import NestNode
from accelopt.kernels.nki.lift.emission.phases import Phase, Placed
from accelopt.kernels.nki.lift.emission.value_locations import START, Span, Spot, Tile, subscript

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock


@dataclass(frozen=True)
class OutputRow:
    """Outputs that are a whole dimension of an array together, each as long as the feature axis."""

    parts: tuple[ResultPart, ...]
    dimension: int


class Results:
    """Finds and stores them for a `RowBlock`."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block

    def rows(self, phase: Phase, spot: Spot) -> list[OutputRow]:
        """The rows that one pass over the whole feature axis makes of its values alone."""
        if spot.width != phase.axis.extent or phase.layout != "rows":
            return []
        families: dict[tuple[str, int, tuple[Index, ...]], list[ResultPart]] = {}
        for output in self.block.graph.outputs:
            places = [n for n, index in enumerate(output.indices) if phase.axis in index.axes]
            fresh = output.value.kind == "apply" and output.value in phase.values
            if len(places) != 1 or not fresh or Placed(output.value, "rows") in self._kept:
                continue
            (place,) = places
            index = output.indices[place]
            if index.terms != ((phase.axis, 1),):
                continue
            others = (*output.indices[:place], *output.indices[place + 1 :])
            families.setdefault((output.array, place, others), []).append(output)
        found = []
        for (array, place, _), parts in families.items():
            parts.sort(key=lambda output: output.indices[place].constant)
            starts = [output.indices[place].constant for output in parts]
            whole = self.block.graph.arrays[array].shape[place]
            distinct = len({output.value for output in parts}) == len(parts) > 1
            if distinct and starts == [*range(0, whole, spot.width)]:
                found.append(OutputRow(tuple(parts), place))
        return found

    @property
    def _kept(self) -> set[Placed]:
        lives = self.block.lives
        return lives.kept | {*lives.alias}

    def declare(self, body: list[NestNode], row: OutputRow, spot: Spot) -> None:
        """The tile that a row is put together in; each part is a place in it."""
        block, first = self.block, row.parts[0]
        name = block.storage.name(first.value)
        shape = (block.tiling.row_tile, *block.beside, len(row.parts) * spot.width)
        block.storage.declare(body, name, shape, 2, first.value.dtype)
        for output in row.parts:
            start = output.indices[row.dimension].constant
            tile = Tile(name, "temporary", first=start, stride=1)
            block.tiles[Placed(output.value, "rows")] = tile

    def store(self, body: list[NestNode], row: OutputRow, spot: Spot) -> None:
        """Stores a row."""
        block, first = self.block, row.parts[0]
        array = block.graph.arrays[first.array]
        whole = Axis("", array.shape[row.dimension])
        indices = list(first.indices)
        indices[row.dimension] = Index(0, ((whole, 1),))
        spans = {**block.transfers.spans(spot, None), whole: Span(START, whole.extent)}
        where = subscript(tuple(indices), array.shape, spans, block.loops)
        name = block.tiles[Placed(first.value, "rows")].name
        text = f"nl.store({block.views[array.name]}[{where}], value={name})"
        body.append(block.transfers.dma(text, block.tiling.row_tile, whole.extent, array.dtype))
