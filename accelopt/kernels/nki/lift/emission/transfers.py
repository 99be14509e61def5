"""What moves between HBM and the chip."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis
from accelopt.kernels.nki.lift.emission.graph import GraphValue, NotLowered, ResultPart
from accelopt.kernels.nki.lift.emission.nest import Comment, Form, Line, NestNode, line
from accelopt.kernels.nki.lift.emission.phases import Phase, Placed, TileLayout
from accelopt.kernels.nki.lift.emission.storage import itemsize
from accelopt.kernels.nki.lift.emission.value_locations import (
    START,
    Span,
    Spot,
    Tile,
    part,
    subscript,
    subscripts,
    variable,
)

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock


class Transfers:
    """Loads and stores of a kernel that `RowBlock` emits."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block

    def dma(self, text: str, partitions: int, width: int, dtype: str = "float32") -> Line:
        """A transfer: rows of up to 2 KiB cost more than their bytes."""
        spec = self.block.spec
        size = width * itemsize(dtype) * math.prod(self.block.beside)
        row = max(
            size / spec.dma_bytes_per_ns,
            min(spec.dma_strided_ns, spec.dma_strided_ns_per_byte * size),
        )
        ns = partitions * (row + 2 * spec.dma_buffer_ns) / spec.dma_engines
        return Line((Form(text, "dma", ns),), moved=partitions * size)

    def spans(self, spot: Spot, axis: Axis | None) -> dict[Axis, Span]:
        """What one pass takes of the rows and of the feature axis."""
        start = self.block.block_start + spot.row * self.block.tiling.row_tile
        spans = {self.block.roles.rows: Span(start, self.block.tiling.row_tile)}
        if self.block.roles.beside is not None:
            spans[self.block.roles.beside] = Span(START, self.block.roles.beside.extent)
        if axis is not None:
            spans[axis] = Span(spot.start, spot.width)
        return spans

    def load(self, body: list[NestNode], value: GraphValue, spot: Spot) -> None:
        """Loads what one pass takes of an input."""
        placed = Placed(value, "rows")
        if placed not in self.block.lives.kept:
            name = (
                self.block.storage.name(value)
                if placed not in self.block.tiles
                else self.block.tiles[placed].name
            )
            self.block.tiles[placed] = Tile(name, "temporary")
            self.block.storage.count(name, (*self.block.beside, spot.block), 2, value.dtype)
        array = self.block.graph.arrays[value.array]
        where = subscript(
            value.indices,
            array.shape,
            self.spans(spot, self.block.roles.feature(value)),
            self.block.loops,
        )
        text = (
            f"{self.block.place(placed, spot)} = nl.load({self.block.views[value.array]}[{where}])"
        )
        body.append(self.dma(text, self.block.tiling.row_tile, spot.width, value.dtype))

    def views(self) -> dict[str, str]:
        """Inputs and results in the shape that the problem has, by the text that names each."""
        block, found = self.block, {}
        for name in block.graph.inputs:
            array = block.graph.arrays[name]
            found[name] = name
            if any(v.kind == "input" and v.array == name for v in block.graph.values):
                block.first.append(
                    line(
                        f"assert tuple({name}.shape) == {array.given}, "
                        f'"{name} must be {" x ".join(map(str, array.given))}"'
                    )
                )
            if array.given != array.shape:
                block.first.append(line(f"{name} = {name}.reshape({array.shape})"))
        for name in block.graph.results:
            array = block.graph.arrays[name]
            block.first.append(
                line(
                    f"{name} = nl.ndarray({array.given}, dtype=nl.{array.dtype}, "
                    "buffer=nl.shared_hbm)"
                )
            )
            found[name] = name
            if array.given != array.shape:
                found[name] = f"{name}_view"
                block.first.append(line(f"{name}_view = {name}.reshape({array.shape})"))
        return found

    def load_numbers(self, body: list[NestNode]) -> None:
        """Loads the inputs that have one number a row, for all tiles of a block."""
        block, tiling = self.block, self.block.tiling
        for value in block.graph.values:
            placed = Placed(value, "rows")
            if value.kind != "input" or placed not in block.plan.level:
                continue
            if block.roles.feature(value) is not None or value.axes & block.roles.inner:
                continue
            name = block.storage.name(value, "_numbers")
            block.storage.declare(body, name, (tiling.row_tile, tiling.tiles))
            row = block.variable(block.roles.rows, "tile", tiling.tiles)
            each = block.loop(body, row, tiling.tiles)
            text = f"nl.load({self._numbers(value, self.spans(Spot(variable(row)), None))})"
            if value.dtype != "float32":
                text = f"nl.copy({text}, dtype=nl.float32)"
            target = f"{name}[:, {part(variable(row), 1, tiling.tiles)}]"
            each.append(self.dma(f"{target} = {text}", tiling.row_tile, 1, value.dtype))
            block.tiles[placed] = Tile(name, "number")

    def _numbers(self, value: GraphValue, spans: dict[Axis, Span]) -> str:
        """One number a row of an input, as a column."""
        array = self.block.graph.arrays[value.array]
        view = self.block.views[value.array]
        where = subscripts(value.indices, array.shape, spans, self.block.loops)
        rows = [n for n, i in enumerate(value.indices) if self.block.roles.rows in i.axes]
        if not rows:
            raise NotLowered(f"{value.array} has one number for all rows")
        if rows == [len(where) - 1]:
            view = f"{view}.reshape(({', '.join(map(str, array.shape))}, 1))"
            where.append(":")
        else:
            where = [
                *where[: rows[0] + 1],
                *(f"nl.ds({place}, 1)" for place in where[rows[0] + 1 :]),
            ]
        return f"{view}[{', '.join(where)}]"

    def stores(
        self,
        body: list[NestNode],
        phase: Phase,
        layout: TileLayout,
        spot: Spot,
        stored: Collection[ResultPart] = (),
    ) -> None:
        """Stores what one pass made of the results, beside what is `stored` already."""
        for output in self.block.graph.outputs:
            if output in stored:
                continue
            value = output.value
            feature = self.block.roles.feature(value)
            if feature is None or value not in phase.values:
                continue
            if self.block.plan.stored_as(output.indices) != layout:
                continue
            array = self.block.graph.arrays[output.array]
            spans = (
                self.spans(spot, feature)
                if layout == "rows"
                else self.block.turned_phases.spans(spot, feature)
            )
            where = subscript(output.indices, array.shape, spans, self.block.loops)
            tile = self.block.place(Placed(value, layout), spot)
            text = f"nl.store({self.block.views[output.array]}[{where}], value={tile})"
            body.append(self.dma(text, self.block.tiling.row_tile, spot.width, array.dtype))

    def store_numbers(self, body: list[NestNode]) -> None:
        """Stores results that are one number a row."""
        for output in self.block.graph.outputs:
            if self.block.roles.feature(output.value) is not None:
                continue
            row = self.block.variable(self.block.roles.rows, "tile", self.block.tiling.tiles)
            tile = self.block.loop(body, row, self.block.tiling.tiles)
            spot = Spot(variable(row))
            array = self.block.graph.arrays[output.array]
            where = subscript(output.indices, array.shape, self.spans(spot, None), self.block.loops)
            number = self.block.number(output.value, spot.row)
            view = self.block.views[output.array]
            if len(array.shape) == 1:
                view, where = f"{view}.reshape(({array.shape[0]}, 1))", f"{where}, :"
            text = f"nl.store({view}[{where}], value={number})"
            tile.append(self.dma(text, self.block.tiling.row_tile, 1))

    def vector(self, value: GraphValue, layout: TileLayout, spot: Spot) -> str:
        """An operand without rows."""
        if value.kind != "input":
            raise NotLowered("something that has no rows is computed on the way")
        if layout == "transposed":
            raise NotLowered(f"{value.array} along partitions")
        axis = self.block.roles.feature(value)
        if axis is None or any(index.axes & set(self.block.loops) for index in value.indices):
            raise NotLowered(f"{value.array} as an operand without rows")
        placed = Placed(value, "rows")
        partitions = self.block.tiling.row_tile
        if placed not in self.block.tiles:
            name = self.block.storage.name(value, "_rows")
            array = self.block.graph.arrays[value.array]
            spans = {axis: Span(START, axis.extent)}
            where = subscript(value.indices, array.shape, spans, {})
            view = self.block.views[value.array]
            row = self.block.names.new(f"{value.array}_row")
            if len(array.shape) == 1:
                view, where = f"{view}.reshape((1, {array.shape[0]}))", f"0:1, {where}"
            else:
                where = where.replace("0,", "0:1,", 1) if where.startswith("0,") else where
            self.block.first.append(Comment(f"{value.array} on every partition."))
            self.block.first.append(line(f"{row} = nl.load({view}[{where}])"))
            self.block.storage.declare(self.block.first, name, (partitions, axis.extent))
            self.block.first.append(
                line(
                    f"{name}[...] = nl.copy({row}.broadcast_to(({partitions}, {axis.extent}))"
                    f"{'' if value.dtype == 'float32' else ', dtype=nl.float32'})"
                )
            )
            self.block.tiles[placed] = Tile(name, "vector")
        return f"{self.block.tiles[placed].name}[:, {part(spot.start, spot.width, axis.extent)}]"

    def table(self, value: GraphValue) -> str:
        """One number a row for each step of an inner loop: a column of a tile that holds all."""
        (axis,) = value.axes & self.block.roles.inner
        if value.kind != "input" or self.block.tiling.tiles > 1:
            raise NotLowered(f"a number a row and {axis.name} that is computed on the way")
        placed = Placed(value, "rows")
        if placed not in self.block.tiles:
            name = self.block.storage.name(value, "_rows")
            array = self.block.graph.arrays[value.array]
            spans = {**self.spans(Spot(), None), axis: Span(START, axis.extent)}
            where = subscript(value.indices, array.shape, spans, self.block.loops)
            loaded = name
            if value.dtype != "float32":
                loaded = self.block.storage.name(value, "_loaded")
                self.block.storage.count(loaded, (axis.extent,), 2, value.dtype)
            text = f"{loaded} = nl.load({self.block.views[value.array]}[{where}])"
            partitions = self.block.tiling.row_tile
            self.block.rows_body.append(self.dma(text, partitions, axis.extent, value.dtype))
            if loaded != name:
                self.block.rows_body.append(line(f"{name} = nl.copy({loaded}, dtype=nl.float32)"))
            self.block.storage.count(name, (axis.extent,), buffers=2)
            self.block.tiles[placed] = Tile(name, "kept")
        return f"{self.block.tiles[placed].name}[:, {part(self.block.loops[axis], 1, axis.extent)}]"
