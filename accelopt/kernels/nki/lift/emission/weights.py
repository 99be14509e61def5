"""The operands without rows of matrix products: those that stay in SBUF, and how all are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis
from accelopt.kernels.nki.lift.emission.graph import GraphValue, NotLowered
from accelopt.kernels.nki.lift.emission.nest import Comment, NestNode, largest_divisor
from accelopt.kernels.nki.lift.emission.phases import ProductTerm
from accelopt.kernels.nki.lift.emission.value_locations import (
    START,
    At,
    Span,
    part,
    subscript,
    variable,
)

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock

COLUMNS_FIRST = 1024
"""Columns of what stays in SBUF that are loaded for the whole contracted axis before the next: rows
of 4 KiB move at 97% of the DMA's rate (nki-dma-intro), and products begin once theirs are there."""


class Weights:
    """Those of a kernel that `RowBlock` emits."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.kept: dict[
            tuple[GraphValue, Axis], str
        ] = {}  # in SBUF for all rows, by the axis summed over

    def streaming(self, product: GraphValue) -> str:
        """Where the operands without rows of a product are."""
        number = self.block.plan.products.index(product)
        chosen = self.block.schedule.weights
        return chosen[number] if number < len(chosen) else "resident"

    def columns(self, term: ProductTerm) -> Axis:
        """The axis that the operand without rows brings."""
        axes = [a for a in term.weights.axes if a in self.block.roles.features and a != term.axis]
        if len(axes) != 1:
            raise NotLowered("a matrix product with a vector")
        return axes[0]

    def chunks(self, axis: Axis) -> tuple[int, int]:
        """Elements of an axis that lie on partitions at a time, and how many of those there are."""
        tiling = self.block.tiling
        return tiling.chunk(axis.extent), tiling.chunks(axis.extent)

    # ---- in HBM -------------------------------------------------------------------------------

    def array(self, term: ProductTerm) -> str:
        """The input that the operand without rows is."""
        if term.weights.kind != "input":
            raise NotLowered("an operand without rows that is computed on the way")
        return term.weights.array

    def load(self, term: ProductTerm, at: At, chunk: int, start: At, width: int) -> str:
        """The text that loads one chunk of the axis that is summed over, for some columns."""
        spans = {term.axis: Span(at * chunk, chunk), self.columns(term): Span(start, width)}
        return self._read(term, spans)

    def _read(self, term: ProductTerm, spans: dict[Axis, Span]) -> str:
        array = self.block.graph.arrays[self.array(term)]
        where = subscript(term.weights.indices, array.shape, spans, self.block.loops)
        return f"nl.load({self.block.views[array.name]}[{where}])"

    def require_contracted_first(self, term: ProductTerm) -> None:
        """Raises NotLowered where a part of the operand would have to be transposed, each time that
        it is read."""
        if not self._contracted_first(term):
            raise NotLowered(f"{self.array(term)} would be transposed for each block of rows")

    def _contracted_first(self, term: ProductTerm) -> bool:
        self.array(term)
        places = [n for n, i in enumerate(term.weights.indices) if term.axis in i.axes]
        others = [n for n, i in enumerate(term.weights.indices) if self.columns(term) in i.axes]
        return max(places) < min(others)

    # ---- in SBUF ------------------------------------------------------------------------------

    def load_kept(self) -> None:
        """Loads what stays for all rows, each where the batch axes it depends on are known."""
        for product in self.block.plan.products:
            if self.streaming(product) == "resident":
                for term in self.block.roles.terms(product):
                    key = (term.weights, term.axis)
                    if key not in self.kept:
                        self.kept[key] = self._loaded(term)

    def _scope(self, term: ProductTerm) -> list[NestNode]:
        """The body of the innermost batch loop that the operand depends on."""
        depth = 0
        for number, axis in enumerate(self.block.roles.batch):
            if axis in term.weights.axes:
                depth = number + 1
        return self.block.scopes[depth]

    def _loaded(self, term: ProductTerm) -> str:
        block = self.block
        body = self._scope(term)
        columns = self.columns(term)
        chunk, chunks = self.chunks(term.axis)
        array = self.array(term)
        name = block.names.new(f"{array}_kept")
        when = "all rows" if body is block.first else "one batch"
        body.append(Comment(f"{array} stays in SBUF for {when}."))
        dtype = term.weights.dtype
        block.storage.declare(body, name, (chunk, chunks, columns.extent), dtype=dtype)
        if not self._contracted_first(term):
            self._load_turned(body, term, name, columns)
            return name
        width = largest_divisor(columns.extent, COLUMNS_FIRST)
        blocks = columns.extent // width
        if width < COLUMNS_FIRST // 2:
            width, blocks = columns.extent, 1
        first = block.variable(columns, "block", blocks)
        variable_name = block.variable(term.axis, "tile", chunks)
        inner = block.loop(block.loop(body, first, blocks), variable_name, chunks)
        at, start = variable(variable_name), variable(first) * width
        target = f"{name}[:, {at}, {part(start, width, columns.extent)}]"
        text = f"{target} = {self.load(term, at, chunk, start, width)}"
        inner.append(block.transfers.dma(text, chunk, width, dtype))
        return name

    def _load_turned(
        self, body: list[NestNode], term: ProductTerm, name: str, columns: Axis
    ) -> None:
        """Loads rows of the columns' axis and transposes them."""
        block = self.block
        tile, tiles = self.chunks(columns)
        chunk, chunks = self.chunks(term.axis)
        loop = block.variable(columns, "tile", tiles)
        inner = block.loop(body, loop, tiles)
        at = variable(loop)
        rows = block.names.new(f"{self.array(term)}_rows")
        spans = {columns: Span(at * tile, tile), term.axis: Span(START, term.axis.extent)}
        dtype = term.weights.dtype
        text = f"{rows} = {self._read(term, spans)}"
        inner.append(block.transfers.dma(text, tile, term.axis.extent, dtype))
        block.storage.count(rows, (term.axis.extent,), 2, dtype)
        block.products.transpose_into(
            inner, rows, START, name, chunks, chunk, tile, at, columns.extent, dtype=dtype
        )
