"""Matrix products: where their operands lie, and the loops that sum them in PSUM.

The Tensor engine contracts over partitions. The operand with rows is kept for a block of rows with
the contracted axis on partitions; the one without rows is resident, or streamed past the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis
from accelopt.kernels.nki.lift.emission.graph import GraphValue, NotLowered
from accelopt.kernels.nki.lift.emission.nest import Form, Line, NestNode, largest_divisor, line
from accelopt.kernels.nki.lift.emission.phases import Placed, ProductTerm
from accelopt.kernels.nki.lift.emission.prices import matmul_ns, transpose_ns
from accelopt.kernels.nki.lift.emission.selection import copy_forms
from accelopt.kernels.nki.lift.emission.value_locations import (
    START,
    At,
    Spot,
    part,
    variable,
)
from accelopt.kernels.nki.lift.schedule import ResourceShort

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock

BANK = 512
BANKS = 8
SQUARE = 32
"""Rows and columns of what the Vector engine transposes (isa: nc_transpose)."""


class Products:
    """The matrix products of a kernel that `RowBlock` emits."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.moving: dict[GraphValue, str] = {}  # operands with rows, contracted axis on partitions
        self.streamed: dict[tuple[GraphValue, Axis], str] = {}
        self.sums: dict[GraphValue, str] = {}

    # ---- streamed past a block of rows --------------------------------------------------------

    def stream_rows(self, body: list[NestNode], product: GraphValue, start: At, width: int) -> None:
        """What a product with rows on partitions needs for columns from `start`: their weights, or
        its sums for every tile of rows."""
        tiles, row_tile = self.block.tiling.tiles, self.block.tiling.row_tile
        if self.block.weights.streaming(product) == "columns":
            self._columns(body, product, start, width)
            return
        if tiles > BANKS:
            raise ResourceShort("PSUM banks", tiles, BANKS, "a block of rows")
        name = self._declare_sums(body, product, row_tile, tiles, width)
        for term in self.block.roles.terms(product):
            inner, at, weights = self._stream(body, term, start, width)
            row = self.block.variable(self.block.roles.rows, "tile", tiles)
            each = self.block.loop(inner, row, tiles)
            rows = part(variable(row) * row_tile, row_tile, self.block.tiling.block)
            moving = f"{self.moving[term.rows]}[:, {at}, {rows}]"
            target = f"{name}[:, {variable(row)}, :]"
            each.append(self._matmul(target, moving, weights, width, row_tile, term))

    def stream_transposed(
        self, body: list[NestNode], product: GraphValue, first: At, count: int
    ) -> None:
        """The same for a product with rows along the free axis, `count` chunks of columns."""
        axis = self.block.weights.columns(self.block.roles.terms(product)[0])
        chunk = self.block.tiling.chunk(axis.extent)
        if self.block.weights.streaming(product) == "columns":
            self._columns(body, product, first * chunk, count * chunk)
            return
        rows = self.block.tiling.block
        name = self._declare_sums(body, product, chunk, count, rows)
        for term in self.block.roles.terms(product):
            inner, at, weights = self._stream(body, term, first * chunk, count * chunk)
            column = self.block.variable(axis, "tile", count)
            each = self.block.loop(inner, column, count)
            where = part(variable(column) * chunk, chunk, count * chunk)
            moving = f"{self.moving[term.rows]}[:, {at}, :]"
            target = f"{name}[:, {variable(column)}, :]"
            each.append(self._matmul(target, f"{weights}[:, {where}]", moving, rows, chunk, term))

    def _declare_sums(
        self, body: list[NestNode], product: GraphValue, partitions: int, count: int, width: int
    ) -> str:
        name = self.block.storage.sums(product)
        body.append(
            line(
                f"{name} = nl.zeros((nl.par_dim({partitions}), {count}, {width}), "
                "dtype=nl.float32, buffer=nl.psum)"
            )
        )
        self.sums[product] = name
        return name

    def _stream(
        self, body: list[NestNode], term: ProductTerm, start: At, width: int
    ) -> tuple[list[NestNode], At, str]:
        """A loop over the contracted axis that loads one tile of the operand without rows."""
        self.block.weights.require_contracted_first(term)
        chunk, chunks = self.block.weights.chunks(term.axis)
        loop = self.block.variable(term.axis, "tile", chunks)
        inner = self.block.loop(body, loop, chunks)
        at = variable(loop)
        name = self.block.names.new(f"{self.block.weights.array(term)}_tile")
        text = f"{name} = {self.block.weights.load(term, at, chunk, start, width)}"
        dtype = term.weights.dtype
        inner.append(self.block.transfers.dma(text, chunk, width, dtype))
        self.block.storage.count(name, (width,), 4, dtype)
        return inner, at, name

    def _columns(self, body: list[NestNode], product: GraphValue, start: At, width: int) -> None:
        """Loads the columns of the operands without rows, over all of the contracted axes."""
        for term in self.block.roles.terms(product):
            self.block.weights.require_contracted_first(term)
            chunk, chunks = self.block.weights.chunks(term.axis)
            name = self.block.names.new(f"{self.block.weights.array(term)}_columns")
            dtype = term.weights.dtype
            self.block.storage.declare(body, name, (chunk, chunks, width), 2, dtype)
            loop = self.block.variable(term.axis, "tile", chunks)
            inner = self.block.loop(body, loop, chunks)
            at = variable(loop)
            text = f"{name}[:, {at}, :] = {self.block.weights.load(term, at, chunk, start, width)}"
            inner.append(self.block.transfers.dma(text, chunk, width, dtype))
            self.streamed[term.weights, term.axis] = name

    # ---- sums ---------------------------------------------------------------------------------

    def _weights(
        self, product: GraphValue, term: ProductTerm, at: At, spot: Spot, start: At, width: int
    ) -> str:
        if self.block.weights.streaming(product) == "resident":
            name, whole, begin = (
                self.block.weights.kept[term.weights, term.axis],
                self.block.weights.columns(term).extent,
                start,
            )
        else:
            name = self.streamed[term.weights, term.axis]
            begin, whole = spot.offset, spot.block
        return f"{name}[:, {at}, {part(begin, width, whole)}]"

    def rows_product(self, body: list[NestNode], product: GraphValue, spot: Spot) -> str:
        """Sums one part of a product, rows on partitions; the text of the sums in PSUM."""
        tiles, row_tile = self.block.tiling.tiles, self.block.tiling.row_tile
        if self.block.plan.turned(product):
            return self._turned_back(body, product, spot)
        if self.block.weights.streaming(product) == "accumulate":
            return f"{self.sums[product]}[:, {spot.row}, :]"
        name = self.block.storage.sums(product)
        body.append(self._zeros(name, row_tile, spot.width))
        for term in self.block.roles.terms(product):
            _, chunks = self.block.weights.chunks(term.axis)
            loop = self.block.variable(term.axis, "tile", chunks)
            inner = self.block.loop(body, loop, chunks)
            at = variable(loop)
            rows = part(spot.row * row_tile, row_tile, row_tile * tiles)
            stationary = f"{self.moving[term.rows]}[:, {at}, {rows}]"
            weights = self._weights(product, term, at, spot, spot.start, spot.width)
            target = f"{name}[...]"
            inner.append(self._matmul(target, stationary, weights, spot.width, row_tile, term))
        return name

    def _turned_back(self, body: list[NestNode], product: GraphValue, spot: Spot) -> str:
        """A part of a product that was summed with rows along the free axis, rows on partitions."""
        block = self.block
        axis = self.block.weights.columns(self.block.roles.terms(product)[0])
        chunk, row_tile = block.tiling.chunk(axis.extent), block.tiling.row_tile
        source = block.tiles[Placed(product, "transposed")].name
        name = block.names.new(_turned(source))
        body.append(
            line(
                f"{name} = nl.ndarray((nl.par_dim({row_tile}), {spot.width}), "
                "dtype=nl.float32, buffer=nl.psum)"
            )
        )
        loop = block.variable(axis, "tile", spot.width // chunk)
        inner = block.loop(body, loop, spot.width // chunk)
        at = variable(loop)
        first = At(
            spot.start.constant // chunk, tuple((v, f // chunk) for v, f in spot.start.terms)
        )
        rows = part(spot.row * row_tile, row_tile, block.tiling.block)
        target = f"{name}[:, {part(at * chunk, chunk, spot.width)}]"
        text = f"{target} = nisa.nc_transpose({source}[:, {first + at}, {rows}])"
        inner.append(Line((Form(text, "tensor", transpose_ns(block.spec, chunk, row_tile)),)))
        return name

    def transposed_product(
        self, body: list[NestNode], product: GraphValue, axis: Axis, spot: Spot
    ) -> str:
        """Sums one chunk of a product, rows along the free axis; the text of the sums in PSUM."""
        chunk, rows = self.block.tiling.chunk(axis.extent), self.block.tiling.block
        if self.block.weights.streaming(product) == "accumulate":
            return f"{self.sums[product]}[:, {spot.offset}, :]"
        name = self.block.storage.sums(product)
        body.append(self._zeros(name, chunk, rows))
        for term in self.block.roles.terms(product):
            _, chunks = self.block.weights.chunks(term.axis)
            loop = self.block.variable(term.axis, "tile", chunks)
            inner = self.block.loop(body, loop, chunks)
            at = variable(loop)
            if self.block.weights.streaming(product) == "resident":
                where = part(spot.start * chunk, chunk, axis.extent)
                weights = f"{self.block.weights.kept[term.weights, term.axis]}[:, {at}, {where}]"
            else:
                count = largest_divisor(axis.extent // chunk, BANK // chunk)
                where = part(spot.offset * chunk, chunk, count * chunk)
                weights = f"{self.streamed[term.weights, term.axis]}[:, {at}, {where}]"
            moving = f"{self.moving[term.rows]}[:, {at}, :]"
            inner.append(self._matmul(f"{name}[...]", weights, moving, rows, chunk, term))
        return name

    def _zeros(self, name: str, partitions: int, width: int) -> Line:
        return line(
            f"{name} = nl.zeros((nl.par_dim({partitions}), {width}), "
            "dtype=nl.float32, buffer=nl.psum)"
        )

    def _matmul(
        self, target: str, stationary: str, moving: str, width: int, columns: int, term: ProductTerm
    ) -> Line:
        ns = matmul_ns(self.block.spec, width, columns, term.weights.dtype)
        text = f"{target} += nisa.nc_matmul({stationary}, {moving})"
        return Line((Form(text, "tensor", ns),))

    # ---- transposing --------------------------------------------------------------------------

    def transpose(self, body: list[NestNode], value: GraphValue, spot: Spot) -> None:
        """Transposes the part of an operand that was just computed with rows on partitions."""
        axis = self.block.roles.feature(value)
        assert axis is not None
        chunk, _ = self.block.weights.chunks(axis)
        tile = self.block.place(Placed(value, "rows"), spot)
        first = At(
            spot.start.constant // chunk, tuple((v, f // chunk) for v, f in spot.start.terms)
        )
        tiling = self.block.tiling
        count = spot.width // chunk
        if self.block.plan.mode(value) == "squares":
            self._by_squares(body, value, spot, first, chunk, count)
            return
        kept = Placed(value, "rows") in self.block.lives.kept
        source, begin = tile, START
        if kept:
            source = self.block.tiles[Placed(value, "rows")].name
            begin = spot.start
        self.transpose_into(
            body, source, begin, self.moving[value], count, chunk, tiling.row_tile, spot.row,
            tiling.block, first, f"{spot.row}, " if kept and tiling.tiles > 1 else "", spot.width,
            value.dtype,
        )  # fmt: skip

    def _by_squares(
        self, body: list[NestNode], value: GraphValue, spot: Spot, first: At, chunk: int, count: int
    ) -> None:
        """The same by the Vector engine, a square of 32 by 32 elements at a time."""
        block, tiling, spec = self.block, self.block.tiling, self.block.spec
        if tiling.row_tile % SQUARE or chunk % SQUARE:
            raise NotLowered(f"tiles of {tiling.row_tile} by {chunk} in squares of {SQUARE}")
        names = [
            block.names.new(word) if extent > 1 else None
            for word, extent in (
                ("chunk", count),
                ("row_square", tiling.row_tile // SQUARE),
                ("square", chunk // SQUARE),
            )
        ]
        at, row, column = map(variable, names)
        inner = block.loop(body, names[0], count)
        inner = block.loop(inner, names[1], tiling.row_tile // SQUARE)
        inner = block.loop(inner, names[2], chunk // SQUARE)
        placed = Placed(value, "rows")
        source, prefix, begin, whole = block.tiles[placed].name, "", spot.offset, spot.block
        if placed in block.lives.kept:
            prefix = f"{spot.row}, " if tiling.tiles > 1 else ""
            axis = block.roles.feature(value)
            assert axis is not None
            begin, whole = spot.start, axis.extent
        columns = part(begin + at * chunk + column * SQUARE, SQUARE, whole)
        rows = part(row * SQUARE, SQUARE, tiling.row_tile)
        turned = part(spot.row * tiling.row_tile + row * SQUARE, SQUARE, tiling.block)
        target = (
            f"{self.moving[value]}[{part(column * SQUARE, SQUARE, chunk)}, {first + at}, {turned}]"
        )
        data = f"{source}[{rows}, {prefix}{columns}]"
        text = f"{target} = nisa.nc_transpose({data}, engine=nisa.vector_engine)"
        cycles = max(SQUARE + spec.access_cycles, spec.minimum_issue_cycles)
        inner.append(Line((Form(text, "vector", cycles / spec.vector_ghz),)))

    def transpose_into(
        self,
        body: list[NestNode],
        source: str,
        begin: At,
        target: str,
        chunks: int,
        chunk: int,
        rows: int,
        row: At,
        row_extent: int,
        first: At = START,
        prefix: str = "",
        whole: int = 0,
        dtype: str = "float32",
    ) -> None:
        """`target[:, first + c, rows] = source[:, c].T` for all chunks, as many at a time as a
        PSUM bank holds."""
        block = self.block
        group = largest_divisor(chunks, max(BANK // rows, 1))
        loop = block.names.new("group") if chunks > group else None
        outer = block.loop(body, loop, chunks // group)
        name = block.names.new(_turned(source))
        outer.append(
            line(
                f"{name} = nl.ndarray((nl.par_dim({chunk}), {group}, {rows}), "
                f"dtype=nl.{dtype}, buffer=nl.psum)"
            )
        )
        column = block.names.new("chunk") if group > 1 else None
        inner = block.loop(outer, column, group)
        at = begin + variable(loop) * (group * chunk) + variable(column) * chunk
        where = part(at, chunk, whole or chunks * chunk)
        spec = block.spec
        piece = source if where == ":" and not prefix else f"{source}[:, {prefix}{where}]"
        inner.append(
            Line(
                (
                    Form(
                        f"{name}[:, {variable(column)}, :] = nisa.nc_transpose({piece})",
                        "tensor",
                        transpose_ns(spec, rows, chunk, dtype),
                    ),
                )
            )
        )
        chunks_text = part(first + variable(loop) * group, group, 0)
        rows_text = part(row * rows, rows, row_extent)
        destination = f"{target}[:, {chunks_text}, {rows_text}]"
        outer.append(Line(copy_forms(destination, name, group * rows, spec)))


def _turned(source: str) -> str:
    """The name of a tile in PSUM that a part of another is transposed into."""
    for suffix in ("_transposed", "_rows", "_tile"):
        source = source.removesuffix(suffix)
    return f"{source}_turned"
