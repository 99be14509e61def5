"""Sums and maxima over partitions: chunks of the feature axis are combined one after another,
partitions apart, and then the partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis
from accelopt.kernels.nki.lift.emission.graph import GraphValue
from accelopt.kernels.nki.lift.emission.nest import Form, Line, NestNode, line
from accelopt.kernels.nki.lift.emission.phases import Placed
from accelopt.kernels.nki.lift.emission.prices import matmul_ns, transpose_ns
from accelopt.kernels.nki.lift.emission.selection import copy_forms
from accelopt.kernels.nki.lift.emission.value_locations import Tile, part, variable

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock

LEAST = {"maximum": "-3.4028235e38", "minimum": "3.4028235e38"}
"""What a running maximum or minimum begins with."""


class Across:
    """Emits them for a `RowBlock`."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.ones: dict[int, str] = {}
        self.running: dict[GraphValue, str] = {}  # the tiles that chunks are combined in

    def begin(self, body: list[NestNode], value: GraphValue, axis: Axis) -> None:
        """Declares what the chunks of `value` are combined in: sums in PSUM, where adding a tile
        of SBUF takes half as long; maxima in SBUF, for what they are taken of lies in PSUM mostly."""
        block, tiling = self.block, self.block.tiling
        if tiling.chunks(axis.extent) == 1:
            return
        shape = f"{tiling.chunk(axis.extent)}), {tiling.block}"
        for user in block.plan.combined(value):
            name = block.storage.name(user, "_running")
            if user.function == "add":
                text = f"nl.zeros((nl.par_dim({shape}), dtype=nl.float32, buffer=nl.psum)"
            else:
                text = f"nl.full((nl.par_dim({shape}), {LEAST[user.function]}, dtype=nl.float32)"
                block.storage.count(name, (tiling.block,))
            body.append(line(f"{name} = {text}"))
            self.running[user] = name

    def add(
        self, body: list[NestNode], value: GraphValue, data: str, axis: Axis, psum: bool
    ) -> None:
        """Combines one chunk of `value` with those before it."""
        block, rows = self.block, self.block.tiling.block
        if block.tiling.chunks(axis.extent) == 1:
            return
        for user in block.plan.combined(value):
            name = self.running[user]
            slow = (
                1.0 if psum or user.function == "add" else block.spec.two_input_cycles_per_element
            )
            cycles = slow * rows + block.spec.access_cycles
            text = f"{name}[...] = nisa.tensor_tensor({data}, {name}, op=nl.{user.function})"
            body.append(Line((Form(text, "vector", cycles / block.spec.vector_ghz),)))

    def combine(self, body: list[NestNode], value: GraphValue) -> None:
        """What is combined of the chunks, over partitions: one number a row."""
        block, tiling, spec = self.block, self.block.tiling, self.block.spec
        (terms,) = value.arguments
        axis = block.roles.feature(terms)
        assert axis is not None
        chunk = tiling.chunk(axis.extent)
        name = block.storage.name(value)
        parts = self._parts(body, value, axis)
        block.storage.declare(body, name, (tiling.row_tile, tiling.tiles))
        tile = block.variable(block.roles.rows, "tile", tiling.tiles)
        each = block.loop(body, tile, tiling.tiles)
        rows = part(variable(tile) * tiling.row_tile, tiling.row_tile, tiling.block)
        turned = block.names.new(f"{name}_turned")
        target = f"{name}[:, {part(variable(tile), 1, tiling.tiles)}]"
        if value.function == "add":
            text = f"{turned} = nisa.nc_matmul({parts}{rows}], {self._ones(chunk)})"
            each.append(Line((Form(text, "tensor", matmul_ns(spec, 1, tiling.row_tile)),)))
            each.append(Line(copy_forms(target, turned, 1, spec)))
        else:
            text = f"{turned} = nisa.nc_transpose({parts}{rows}])"
            ns = transpose_ns(spec, chunk, tiling.row_tile)
            each.append(Line((Form(text, "tensor", ns),)))
            function = "nl.max" if value.function == "maximum" else "nl.min"
            text = (
                f"{target} = nisa.tensor_reduce({function}, data={turned}, axis=[1], keepdims=True)"
            )
            ns = (chunk + spec.access_cycles) / spec.vector_ghz
            each.append(Line((Form(text, "vector", ns),)))
        block.tiles[Placed(value, "rows")] = Tile(name, "number")

    def _parts(self, body: list[NestNode], value: GraphValue, axis: Axis) -> str:
        """What chunks were combined in, in SBUF, as far as the rows in its subscript."""
        block, tiling = self.block, self.block.tiling
        if tiling.chunks(axis.extent) == 1:
            return f"{block.tiles[Placed(value.arguments[0], 'transposed')].name}[:, 0, "
        running = self.running[value]
        if value.function != "add":
            return f"{running}[:, "
        name = block.storage.name(value, "_parts")
        body.append(Line(copy_forms(name, running, tiling.block, block.spec)))
        block.storage.count(name, (tiling.block,))
        return f"{name}[:, "

    def _ones(self, partitions: int) -> str:
        """A column of ones."""
        if partitions not in self.ones:
            self.ones[partitions] = self.block.names.new("ones")
            text = (
                f"{self.ones[partitions]} = nisa.memset(({partitions}, 1), 1.0, dtype=nl.float32)"
            )
            self.block.first.append(line(text))
        return self.ones[partitions]
