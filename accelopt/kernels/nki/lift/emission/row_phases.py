"""Phases with rows on partitions and the feature axis along them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt.kernels.nki.lift.emission.graph import GraphValue
from accelopt.kernels.nki.lift.emission.nest import Form, Line, NestNode, largest_divisor
from accelopt.kernels.nki.lift.emission.phases import Phase, Placed
from accelopt.kernels.nki.lift.emission.scans import Recurrence
from accelopt.kernels.nki.lift.emission.selection import Selection, copy_forms
from accelopt.kernels.nki.lift.emission.value_locations import BANK, START, Spot, Tile, variable

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock


class RowPhases:
    """Emits them for a `RowBlock`."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block

    def emit(self, body: list[NestNode], number: int, phase: Phase) -> None:
        """Emits a phase into the body of the loop over blocks of rows."""
        extent = phase.axis.extent
        products = [value for value in phase.values if value.kind == "product"]
        streamed = [
            p
            for p in products
            if self.block.weights.streaming(p) != "resident" and not self.block.plan.turned(p)
        ]
        narrow = largest_divisor(extent, BANK) if products else 0
        grain = narrow or 1
        if any(value in self.block.plan.transposed for value in phase.values):
            chunk = self.block.tiling.chunk(extent)
            grain = grain if grain % chunk == 0 else chunk
        width = grain * largest_divisor(
            extent // grain, max(self.block.schedule.columns // grain, 1)
        )
        if streamed:
            width = grain
        narrow = narrow or width
        self._partials(body, number, phase, extent // width)
        column = self.block.variable(
            phase.axis, "block" if width > narrow else "tile", extent // width
        )
        row = self.block.variable(self.block.roles.rows, "tile", self.block.tiling.tiles)
        if streamed:
            outer = self.block.loop(body, column, extent // width)
            start = variable(column) * width
            for product in streamed:
                self.block.products.stream_rows(outer, product, start, width)
            cell = self.block.loop(outer, row, self.block.tiling.tiles)
        else:
            outer = self.block.loop(body, row, self.block.tiling.tiles)
            cell = self.block.loop(outer, column, extent // width)
        spot = Spot(variable(row), variable(column) * width, START, width, width)
        if any(step.opcode in ("scan", "accumulate") for step in self.block.lives.steps[number]):
            Recurrence(self.block, number, phase, spot).emit(body, cell)
            return
        self._cell(cell, number, phase, spot, narrow)
        self._combine(body, number, phase, extent // width)

    def _partials(self, body: list[NestNode], number: int, phase: Phase, passes: int) -> None:
        """The tiles that sums and maxima along the free axis go to."""
        tiles = self.block.tiling.tiles
        for value in self._reduced(number):
            name = self.block.storage.name(value, "_parts" if passes > 1 else "")
            shape = [self.block.tiling.row_tile, tiles]
            if passes > 1:
                shape = [self.block.tiling.row_tile, *([tiles] if tiles > 1 else []), passes]
            self.block.storage.declare(body, name, tuple(shape))
            self.block.tiles[Placed(value, "rows")] = Tile(name, "number")

    def _reduced(self, number: int) -> list[GraphValue]:
        found = []
        for step in self.block.lives.steps[number]:
            if step.opcode == "reduce":
                found.append(step.value)
            if step.total is not None:
                found.append(step.total)
        return found

    def _combine(self, body: list[NestNode], number: int, phase: Phase, passes: int) -> None:
        if passes == 1:
            return
        for value in self._reduced(number):
            parts = self.block.tiles[Placed(value, "rows")].name
            name = self.block.storage.name(value)
            operation = {"maximum": "nl.max", "minimum": "nl.min"}.get(
                value.function, f"nl.{value.function}"
            )
            axis, keep = (2, "") if self.block.tiling.tiles > 1 else (1, ", keepdims=True")
            ns = (
                self.block.tiling.tiles * passes + self.block.spec.access_cycles
            ) / self.block.spec.vector_ghz
            text = f"{name} = nisa.tensor_reduce({operation}, data={parts}, axis=[{axis}]{keep})"
            body.append(Line((Form(text, "vector", ns),)))
            self.block.storage.count(name, (self.block.tiling.tiles,))
            self.block.tiles[Placed(value, "rows")] = Tile(name, "number")

    def _cell(
        self, body: list[NestNode], number: int, phase: Phase, spot: Spot, narrow: int
    ) -> None:
        """The work of one pass: loads, products with what reads their sums, the rest, stores."""
        self._load(body, phase, spot)
        whole_rows = self.block.results.rows(phase, spot)
        for row in whole_rows:
            self.block.results.declare(body, row, spot)
        inner, outer = self.block.lives.split(number, phase)
        products = [value for value in phase.values if value.kind == "product"]
        if products:
            for step in inner:
                self.block.target(
                    body, Placed(step.value, "rows"), spot, declare=spot.width > narrow
                )
            evicted = [p for p in products if self.block.lives.needs_copy(p, inner, outer, phase)]
            for product in evicted:
                self.block.target(body, Placed(product, "rows"), spot, declare=spot.width > narrow)
            name = self.block.variable(phase.axis, "tile", spot.width // narrow)
            tile = self.block.loop(body, name, spot.width // narrow)
            offset = variable(name) * narrow
            small = Spot(spot.row, spot.start + offset, offset, narrow, spot.width)
            self._sums(tile, products, evicted, inner, small)
        for step in outer:
            self.block.step(body, step, "rows", spot)
        for value in phase.values:
            if value in self.block.plan.transposed:
                self.block.products.transpose(body, value, spot)
        for row in whole_rows:
            self.block.results.store(body, row, spot)
        stored = {output for row in whole_rows for output in row.parts}
        self.block.transfers.stores(body, phase, "rows", spot, stored)

    def _load(self, body: list[NestNode], phase: Phase, spot: Spot) -> None:
        seen: set[GraphValue] = set()
        for value in phase.values:
            if value.kind != "input" or value in seen:
                continue
            window = self.block.windows.of(value, phase)
            if window is None:
                self.block.transfers.load(body, value, spot)
                continue
            self.block.windows.load(body, window, phase, spot)
            seen.update(window.members)

    def _sums(
        self,
        body: list[NestNode],
        products: list[GraphValue],
        evicted: list[GraphValue],
        inner: list[Selection],
        spot: Spot,
    ) -> None:
        for product in products:
            text = self.block.products.rows_product(body, product, spot)
            if product in evicted:
                target = self.block.place(Placed(product, "rows"), spot)
                body.append(Line(copy_forms(target, text, spot.width, self.block.spec)))
            else:
                self.block.tiles[Placed(product, "rows")] = Tile(text, "sums", psum=True)
        for step in inner:
            self.block.step(body, step, "rows", spot)
