"""Phases with the feature axis on partitions and a block of rows along the free axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt.kernels.nki.lift.emission.graph import NotLowered, Value
from accelopt.kernels.nki.lift.emission.nest import Comment, Form, Line, Node, largest_divisor, line
from accelopt.kernels.nki.lift.emission.phases import Phase, Placed
from accelopt.kernels.nki.lift.emission.places import (
    BANK,
    START,
    Span,
    Spot,
    Tile,
    part,
    subscript,
    variable,
)
from accelopt.kernels.nki.lift.emission.prices import matmul_ns, transpose_ns
from accelopt.kernels.nki.lift.emission.selection import copy_forms
from accelopt.kernels.nki.lift.index import Axis
from accelopt.kernels.nki.lift.schedule import ResourceShort

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock


class TurnedPhases:
    """Emits them for a `RowBlock`."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.spread: dict[Value, str] = {}
        self.ones: dict[int, str] = {}
        self.parts: dict[Value, str] = {}  # sums over chunks, as far as the rows in their subscript

    def spans(self, spot: Spot, axis: Axis) -> dict[Axis, Span]:
        """What one pass takes of the rows and of the feature axis."""
        chunk = self.block.tiling.chunk(axis.extent)
        return {
            self.block.roles.rows: Span(self.block.block_start, self.block.tiling.block),
            axis: Span(spot.start * chunk, chunk),
        }

    def emit(self, body: list[Node], number: int, phase: Phase) -> None:
        """Emits a phase into the body of the loop over blocks of rows."""
        tiling = self.block.tiling
        extent = phase.axis.extent
        products = [value for value in phase.values if value.kind == "product"]
        if products and tiling.block > BANK:
            raise ResourceShort("elements of a PSUM bank", tiling.block, BANK, "a block of rows")
        streamed = [p for p in products if self.block.weights.streaming(p) != "resident"]
        chunks = tiling.chunks(extent)
        per_block = largest_divisor(chunks, BANK // tiling.chunk(extent)) if streamed else chunks
        block = self.block.variable(phase.axis, "block", chunks // per_block)
        self._spread(body, number, tiling.chunk(extent))
        outer = self.block.loop(body, block, chunks // per_block)
        first = variable(block) * per_block
        for product in streamed:
            self.block.products.stream_transposed(outer, product, first, per_block)
        name = self.block.variable(phase.axis, "tile", per_block)
        tile = self.block.loop(outer, name, per_block)
        spot = Spot(START, first + variable(name), variable(name), tiling.block, tiling.block)
        self._turned_cell(tile, number, phase, spot)
        for value in phase.values:
            if self.block.plan.summed(value):
                self._add_chunks(body, value, phase.axis)

    # ---- sums over partitions -----------------------------------------------------------------

    def _add_chunks(self, body: list[Node], value: Value, axis: Axis) -> None:
        """The sum of a kept value over all chunks of its feature axis; partitions are left."""
        block, spec = self.block, self.block.spec
        chunk, chunks = block.tiling.chunk(axis.extent), block.tiling.chunks(axis.extent)
        rows = block.tiling.block
        tile = block.tiles[Placed(value, "transposed")].name
        if chunks == 1:
            self.parts[value] = f"{tile}[:, 0, "
            return
        name = block.names.new(f"{block.storage.word(value)}_sum_parts")
        partition, row, column = (block.names.new(word) for word in ("partition", "row", "chunk"))
        grid = f"{partition}, {row}, {column} = nl.mgrid[0:{chunk}, 0:{rows}, 0:{chunks}]"
        body.append(line(grid))
        data = f"{tile}[{partition}, {column}, {row}]"
        text = f"{name} = nisa.tensor_reduce(nl.add, data={data}, axis=[2])"
        cycles = 2 * rows * chunks + spec.access_cycles  # at a stride (arch guide)
        body.append(Line((Form(text, "vector", cycles / spec.vector_ghz),)))
        block.storage.count(name, (rows,))
        self.parts[value] = f"{name}[:, "

    def sum(self, body: list[Node], value: Value) -> None:
        """A sum over partitions, by a product with ones: one number a row."""
        block, tiling, spec = self.block, self.block.tiling, self.block.spec
        (terms,) = value.arguments
        axis = block.roles.feature(terms)
        assert axis is not None
        name = block.storage.name(value)
        block.storage.declare(body, name, (tiling.row_tile, tiling.tiles))
        tile = block.variable(block.roles.rows, "tile", tiling.tiles)
        each = block.loop(body, tile, tiling.tiles)
        rows = part(variable(tile) * tiling.row_tile, tiling.row_tile, tiling.block)
        sums = block.names.new(f"{name}_turned")
        ones = self._ones(tiling.chunk(axis.extent))
        text = f"{sums} = nisa.nc_matmul({self.parts[terms]}{rows}], {ones})"
        each.append(Line((Form(text, "tensor", matmul_ns(spec, 1, tiling.row_tile)),)))
        target = f"{name}[:, {part(variable(tile), 1, tiling.tiles)}]"
        each.append(Line(copy_forms(target, sums, 1, spec)))
        block.tiles[Placed(value, "rows")] = Tile(name, "number")

    def _ones(self, partitions: int) -> str:
        """A column of ones."""
        if partitions not in self.ones:
            self.ones[partitions] = self.block.names.new("ones")
            text = (
                f"{self.ones[partitions]} = nisa.memset(({partitions}, 1), 1.0, dtype=nl.float32)"
            )
            self.block.first.append(line(text))
        return self.ones[partitions]

    def _spread(self, body: list[Node], number: int, partitions: int) -> None:
        """One number a row, along the free axis of every partition."""
        tiling = self.block.tiling
        self.spread = {}
        for value in dict.fromkeys(
            tile for step in self.block.lives.steps[number] for tile in step.tiles
        ):
            if not self.block.roles.has_rows(value) or self.block.roles.feature(value) is not None:
                continue
            source = self.block.tiles[Placed(value, "rows")].name
            name = self.block.names.new(f"{source}_spread")
            body.append(Comment(f"{source} along the free axis, on every partition."))
            self.block.storage.declare(body, name, (partitions, tiling.block))
            row = self.block.variable(self.block.roles.rows, "tile", tiling.tiles)
            each = self.block.loop(body, row, tiling.tiles)
            numbers = self.block.number(value, variable(row))
            turned = self.block.names.new(f"{source}_turned")
            whole = f"{numbers}.broadcast_to(({tiling.row_tile}, {partitions}))"
            ns = transpose_ns(self.block.spec, tiling.row_tile, partitions)
            text = f"{turned} = nisa.nc_transpose({whole})"
            each.append(Line((Form(text, "tensor", ns),)))
            where = part(variable(row) * tiling.row_tile, tiling.row_tile, tiling.block)
            each.append(
                Line(copy_forms(f"{name}[:, {where}]", turned, tiling.row_tile, self.block.spec))
            )
            self.spread[value] = name

    def _turned_cell(self, body: list[Node], number: int, phase: Phase, spot: Spot) -> None:
        for value in phase.values:
            if value.kind == "input":
                self._load_turned(body, value, spot)
        for product in (value for value in phase.values if value.kind == "product"):
            text = self.block.products.transposed_product(body, product, phase.axis, spot)
            placed = Placed(product, "transposed")
            if self.block.lives.needs_copy(product, [], [], phase):
                if placed not in self.block.lives.kept:
                    self.block.target(body, placed, spot, declare=False)
                target = self.block.place(placed, spot)
                body.append(Line(copy_forms(target, text, spot.width, self.block.spec)))
            else:
                self.block.tiles[placed] = Tile(text, "sums", psum=True)
        for step in self.block.lives.steps[number]:
            if step.opcode == "reduce" or step.total is not None:
                raise NotLowered("a sum over partitions")
            self.block.step(body, step, "transposed", spot)
        self.block.transfers.stores(body, phase, "transposed", spot)

    def _load_turned(self, body: list[Node], value: Value, spot: Spot) -> None:
        axis = self.block.roles.feature(value)
        assert axis is not None
        placed = Placed(value, "transposed")
        if placed not in self.block.lives.kept:
            self.block.tiles[placed] = Tile(self.block.storage.name(value), "temporary")
        array = self.block.graph.arrays[value.array]
        where = subscript(value.indices, array.shape, self.spans(spot, axis), self.block.loops)
        text = (
            f"{self.block.place(placed, spot)} = nl.load({self.block.views[value.array]}[{where}])"
        )
        body.append(
            self.block.transfers.dma(
                text, self.block.tiling.chunk(axis.extent), spot.width, value.dtype
            )
        )
