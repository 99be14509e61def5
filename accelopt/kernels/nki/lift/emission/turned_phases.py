"""Phases with the feature axis on partitions and a block of rows along the free axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis
from accelopt.kernels.nki.lift.emission.graph import GraphValue, NotLowered
from accelopt.kernels.nki.lift.emission.nest import (
    Comment,
    Form,
    Line,
    NestNode,
    largest_divisor,
    line,
)
from accelopt.kernels.nki.lift.emission.phases import Phase, Placed
from accelopt.kernels.nki.lift.emission.prices import transpose_ns
from accelopt.kernels.nki.lift.emission.selection import copy_forms
from accelopt.kernels.nki.lift.emission.value_locations import (
    BANK,
    START,
    Span,
    Spot,
    Tile,
    part,
    subscript,
    variable,
)
from accelopt.kernels.nki.lift.schedule import ResourceShort

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock

SPREAD_IN_PSUM = 2
"""Banks of PSUM that numbers may take which are spread for a phase: sums need the others."""


class TurnedPhases:
    """Emits them for a `RowBlock`."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.spread: dict[GraphValue, Tile] = {}

    def spans(self, spot: Spot, axis: Axis) -> dict[Axis, Span]:
        """What one pass takes of the rows and of the feature axis."""
        chunk = self.block.tiling.chunk(axis.extent)
        return {
            self.block.roles.rows: Span(self.block.block_start, self.block.tiling.block),
            axis: Span(spot.start * chunk, chunk),
        }

    def emit(self, body: list[NestNode], number: int, phase: Phase) -> None:
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
        combined = [value for value in phase.values if self.block.plan.combined(value)]
        for value in combined:
            self.block.across.begin(body, value, phase.axis)
        kind = "sequential_range" if combined else "affine_range"
        outer = self.block.loop(body, block, chunks // per_block, kind)
        first = variable(block) * per_block
        for product in streamed:
            self.block.products.stream_transposed(outer, product, first, per_block)
        name = self.block.variable(phase.axis, "tile", per_block)
        tile = self.block.loop(outer, name, per_block, kind)
        spot = Spot(START, first + variable(name), variable(name), tiling.block, tiling.block)
        self._turned_cell(tile, number, phase, spot, combined)

    def _spread(self, body: list[NestNode], number: int, partitions: int) -> None:
        """One number a row, along the free axis of every partition."""
        tiling = self.block.tiling
        self.spread = {}
        steps, products = self.block.lives.steps[number], self._summed(number)
        tiles = dict.fromkeys(tile for step in steps for tile in step.tiles)
        numbers = [
            value
            for value in tiles
            if self.block.roles.has_rows(value) and self.block.roles.feature(value) is None
        ]
        # No instruction reads two tiles of PSUM.
        met = {tile for step in steps if products & {*step.tiles} for tile in step.tiles}
        psum = len(numbers) <= SPREAD_IN_PSUM and tiling.block <= BANK and not met & {*numbers}
        for value in numbers:
            source = self.block.tiles[Placed(value, "rows")].name
            name = self.block.names.new(f"{source}_spread")
            body.append(Comment(f"{source} along the free axis, on every partition."))
            if psum:
                shape = f"(nl.par_dim({partitions}), {tiling.block})"
                body.append(line(f"{name} = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.psum)"))
            else:
                self.block.storage.declare(body, name, (partitions, tiling.block))
            row = self.block.variable(self.block.roles.rows, "tile", tiling.tiles)
            each = self.block.loop(body, row, tiling.tiles)
            one = self.block.number(value, variable(row))
            whole = f"{one}.broadcast_to(({tiling.row_tile}, {partitions}))"
            ns = transpose_ns(self.block.spec, tiling.row_tile, partitions)
            where = part(variable(row) * tiling.row_tile, tiling.row_tile, tiling.block)
            target = f"{name}[:, {where}]"
            turned = target if psum else self.block.names.new(f"{source}_turned")
            each.append(Line((Form(f"{turned} = nisa.nc_transpose({whole})", "tensor", ns),)))
            if not psum:
                copied = copy_forms(target, turned, tiling.row_tile, self.block.spec)
                each.append(Line(copied))
            self.spread[value] = Tile(name, "vector", psum=psum)

    def _summed(self, number: int) -> set[GraphValue]:
        """The products of a phase."""
        return {v for v in self.block.plan.phases[number].values if v.kind == "product"}

    def _turned_cell(
        self,
        body: list[NestNode],
        number: int,
        phase: Phase,
        spot: Spot,
        combined: list[GraphValue],
    ) -> None:
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
            if product in combined:
                self.block.across.add(body, product, text, phase.axis, psum=True)
        for step in self.block.lives.steps[number]:
            if step.opcode == "reduce" or step.total is not None:
                raise NotLowered("a sum over partitions")
            self.block.step(body, step, "transposed", spot)
            if step.value in combined:
                data = self.block.place(Placed(step.value, "transposed"), spot)
                self.block.across.add(body, step.value, data, phase.axis, psum=False)
        self.block.transfers.stores(body, phase, "transposed", spot)

    def _load_turned(self, body: list[NestNode], value: GraphValue, spot: Spot) -> None:
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
