"""Sums of a plane written for blocks that share tiles of both operands in shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.launching import with_launch
from accelopt.kernels.cuda.programs.plane import Axis
from accelopt.kernels.cuda.programs.products import Operand, Product
from accelopt.kernels.cuda.programs.syntax import (
    Unread,
    replaced,
    said,
    statements,
)

THREADS = 256
SIDE = 16  # threads along each axis of a tile
WIDEST = 16  # bytes of one access


class Tile(NamedTuple):
    """How many sums a thread has along both axes, and how many steps are shared at a time."""

    rows: int = 8
    columns: int = 8
    steps: int = 16


class Side(NamedTuple):
    """An operand, the axis along which it changes, its name, and how many places of it a block has."""

    operand: Operand
    axis: Axis
    name: str
    extent: int

    @property
    def lanes(self) -> int:
        """Elements of the widest access."""
        return WIDEST // self.operand.size


def tiled(product: Product, tile: Tile) -> str:
    """The source with each block's operands in shared memory and each thread's sums in registers.

    Before: every thread reads a row and a column of memory. After: a block of 256 threads reads tiles,
    the next one while it works on this one; each thread adds `rows` by `columns` sums, in the order of
    before. What is out of bounds is neither read nor stored.
    """
    return _Plain(product, tile).source()


class Blocks:
    """A product by blocks of `rows` by `columns` sums that share `steps` steps at a time."""

    def __init__(self, product: Product, rows: int, columns: int, steps: int, threads: int) -> None:
        self.product, self.steps, self.threads = product, steps, threads
        self.left = Side(product.left, product.row, "left", rows)
        self.right = Side(product.right, product.column, "right", columns)
        for side in self.sides:
            if side.extent * steps % (threads * side.lanes):
                raise Unread("tiles of less than an access a thread")

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both operands."""
        return self.left, self.right

    def lines(self) -> Iterator[str]:
        """The kernel's body."""
        raise NotImplementedError

    def source(self, shared: int = 0) -> str:
        """The whole source, its launch with so many bytes of dynamic shared memory."""
        launch = self.product.kernel.launch
        heights, widths = (-(-side.axis.covered // side.extent) for side in self.sides)
        if heights > 65535:
            raise Unread("too many tiles")
        if launch.block[2] != 1:
            raise Unread("a block of three dimensions")
        grid, block = (widths, heights, launch.grid[2]), (self.threads, 1, 1)
        launch = launch._replace(grid=grid, block=block, shared=shared)
        return with_launch(self.product.kernel.with_body(self.lines()), launch)

    def groups(self, side: Side) -> int:
        """How many of the widest accesses a thread has to a tile."""
        return side.extent * self.steps // self.threads // side.lanes

    def place(self, side: Side, at: str) -> tuple[str, str]:
        """The place and the step of an element of a tile, neighbours in memory first."""
        if side.operand.along_steps:
            return f"{at} / {self.steps}", f"{at} % {self.steps}"
        return f"{at} % {side.extent}", f"{at} / {side.extent}"

    def of_one(
        self, row: str, column: str, sum_: str, *, ends: bool, also: str = ""
    ) -> Iterator[str]:
        """What a thread does before (`ends` false) or after its sum, for the sum at a place of the block,
        where it is there and what `also` says is true."""
        p = self.product
        yield f"const {p.row.type} {p.row.name} = row_begin_ + {row};"
        yield f"const {p.column.type} {p.column.name} = column_begin_ + {column};"
        inside = f"{p.row.name} < ({p.row.bound}) && {p.column.name} < ({p.column.bound})"
        yield f"if ({inside}{also}) {{"
        for node in p.before:
            yield from indented(said(node).splitlines())
        if ends:
            yield f"  {p.sum.type} {p.sum.name} = {sum_};"
            for node in p.after:
                yield from indented(said(node).splitlines())
        else:
            yield f"  {sum_} = {said(p.sum.value)};"
        yield "}"


class _Plain(Blocks):
    """Each thread adds up its own sums."""

    def __init__(self, product: Product, tile: Tile) -> None:
        super().__init__(product, SIDE * tile.rows, SIDE * tile.columns, tile.steps, THREADS)
        self.tile = tile

    def lines(self) -> Iterator[str]:
        """As the base says."""
        p, steps = self.product, self.steps
        yield f"const long long row_begin_ = (long long)blockIdx.y * {self.left.extent};"
        yield f"const long long column_begin_ = (long long)blockIdx.x * {self.right.extent};"
        yield f"const long long depth_ = {p.depth};"
        yield "const int thread_ = threadIdx.x;"
        for side in self.sides:
            kind, width = side.operand.type, side.extent + side.lanes
            yield f"alignas({WIDEST}) __shared__ {kind} {side.name}_tile_[{steps}][{width}];"
        yield f"{p.sum.type} sum_[{self.tile.rows}][{self.tile.columns}];"
        yield from self._each(ends=False)
        for side in self.sides:
            count = self.groups(side) * side.lanes
            yield f"alignas({WIDEST}) {side.operand.type} {side.name}_next_[{count}];"
        yield from self._loaded("0LL")
        yield f"for (long long step_ = 0; step_ < depth_; step_ += {steps}) {{"
        for side in self.sides:
            yield from indented(self._shared(side))
        yield "  __syncthreads();"
        yield f"  if (step_ + {steps} < depth_) {{"
        yield from indented(self._loaded(f"step_ + {steps}"), 2)
        yield "  }"
        yield f"  if (step_ + {steps} <= depth_) {{"
        yield "    #pragma unroll"
        yield from indented(self._steps(str(steps)), 2)
        yield "  } else {"
        yield from indented(self._steps("depth_ - step_"), 2)
        yield "  }"
        yield "  __syncthreads();"
        yield "}"
        yield from self._each(ends=True)

    def _loaded(self, begin: str) -> Iterator[str]:
        """Elements of the next tiles from memory, 16 bytes at once where they are there and aligned."""
        for side in self.sides:
            operand, lanes = side.operand, side.lanes
            place, step = self.place(side, "at_")
            v, k = side.axis.name, self.product.step.name
            moves = k if operand.along_steps else v
            bounds = {k: "depth_", v: f"(long long)({side.axis.bound})"}
            stays = v if moves == k else k
            yield "#pragma unroll"
            yield f"for (int group_ = 0; group_ < {self.groups(side)}; ++group_) {{"
            yield f"  const int at_ = (thread_ + group_ * {THREADS}) * {lanes};"
            yield f"  long long {v} = {begin_of(side)} + {place};"
            yield f"  long long {k} = {begin} + {step};"
            source = f"{operand.access.pointer} + ({operand.access.at.text})"
            target = f"{side.name}_next_ + group_ * {lanes}"
            inside = f"{stays} < {bounds[stays]} && {moves} + {lanes} <= {bounds[moves]}"
            yield f"  if ({inside} && (size_t)({source}) % {WIDEST} == 0) {{"
            yield f"    *reinterpret_cast<uint4*>({target}) = *reinterpret_cast<const uint4*>({source});"
            yield "  } else {"
            yield "    #pragma unroll"
            yield f"    for (int lane_ = 0; lane_ < {lanes}; ++lane_, ++{moves}) {{"
            there = f"{v} < {bounds[v]} && {k} < depth_"
            yield f"      ({target})[lane_] = {operand.type}();"
            yield f"      if ({there}) ({target})[lane_] = *({source});"
            yield "    }"
            yield "  }"
            yield "}"

    def _shared(self, side: Side) -> Iterator[str]:
        """What was read goes where neighbouring places are neighbours."""
        lanes, tile = side.lanes, f"{side.name}_tile_"
        place, step = self.place(side, "at_")
        yield "#pragma unroll"
        yield f"for (int group_ = 0; group_ < {self.groups(side)}; ++group_) {{"
        yield f"  const int at_ = (thread_ + group_ * {THREADS}) * {lanes};"
        if side.operand.along_steps:
            yield "  #pragma unroll"
            yield f"  for (int lane_ = 0; lane_ < {lanes}; ++lane_) {{"
            yield f"    {tile}[{step} + lane_][{place}] = {side.name}_next_[group_ * {lanes} + lane_];"
            yield "  }"
        else:
            yield f"  *reinterpret_cast<uint4*>(&{tile}[{step}][{place}]) ="
            yield f"      *reinterpret_cast<const uint4*>({side.name}_next_ + group_ * {lanes});"
        yield "}"

    def _each(self, *, ends: bool) -> Iterator[str]:
        tile = self.tile
        yield "#pragma unroll"
        yield f"for (int m_ = 0; m_ < {tile.rows}; ++m_) {{"
        yield "  #pragma unroll"
        yield f"  for (int n_ = 0; n_ < {tile.columns}; ++n_) {{"
        if not ends:
            yield f"    sum_[m_][n_] = {self.product.sum.type}();"
        row = f"m_ / 4 * {4 * SIDE} + thread_ / {SIDE} * 4 + m_ % 4"
        column = f"n_ / 4 * {4 * SIDE} + thread_ % {SIDE} * 4 + n_ % 4"
        yield from indented(self.of_one(row, column, "sum_[m_][n_]", ends=ends), 2)
        yield "  }"
        yield "}"

    def _steps(self, count: str) -> Iterator[str]:
        p, tile = self.product, self.tile
        yield f"for (int k_ = 0; k_ < {count}; ++k_) {{"
        for side, size, lane in ((self.left, tile.rows, f"thread_ / {SIDE}"),
                                 (self.right, tile.columns, f"thread_ % {SIDE}")):  # fmt: skip
            yield f"  {side.operand.type} {side.name}_[{size}];"
            yield "  #pragma unroll"
            yield (
                f"  for (int at_ = 0; at_ < {size}; ++at_) {side.name}_[at_] = "
                f"{side.name}_tile_[k_][at_ / 4 * {4 * SIDE} + {lane} * 4 + at_ % 4];"
            )
        yield "  #pragma unroll"
        yield f"  for (int m_ = 0; m_ < {tile.rows}; ++m_) {{"
        yield "    #pragma unroll"
        yield f"    for (int n_ = 0; n_ < {tile.columns}; ++n_) {{"
        edits = {p.left.access.node.id: "left_[m_]", p.right.access.node.id: "right_[n_]"}

        def change(node: Node) -> str | None:
            if node.type == "identifier" and said(node) == p.sum.name:
                return "sum_[m_][n_]"
            return edits.get(node.id)

        for node in statements(p.body):
            yield from indented(replaced(node, change).splitlines(), 3)
        yield "    }"
        yield "  }"
        yield "}"


def begin_of(side: Side) -> str:
    """Where a block begins along an operand's axis."""
    return "row_begin_" if side.name == "left" else "column_begin_"


def indented(lines: Iterable[str], by: int = 1) -> Iterator[str]:
    """Lines so many steps further in."""
    return ("  " * by + line for line in lines)
