"""Sums of a plane written for blocks that share tiles of both operands in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
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
PAD = 8  # short floats behind a row, so that 16 bytes of eight rows lie in different banks


class Tile(NamedTuple):
    """How many sums a thread has along both axes, and how many steps are shared at a time."""

    rows: int = 8
    columns: int = 8
    steps: int = 16


def tiled(product: Product, tile: Tile) -> str:
    """The source with each block's operands in shared memory and each thread's sums in registers.

    Before: every thread reads a row and a column of memory. After: a block of 256 threads reads tiles,
    the next one while it works on this one; each thread adds `rows` by `columns` sums, in the order of
    before. What is out of bounds is neither read nor stored.
    """
    return _written(product, tile, _Plain(product, tile).lines(), THREADS)


def with_tensor_cores(product: Product, steps: int) -> str:
    """The source with tiles of 128 by 128 sums multiplied by tensor cores, 16 by 16 by 16 at a time.

    Legal for products of two half or two bfloat16 numbers that are added up as float; sums are taken in
    another order. Raises Unread for any other.
    """
    kinds = {"half": "half", "__half": "half", "__nv_bfloat16": "__nv_bfloat16"}
    left, right = (kinds.get(one.type) for one in (product.left, product.right))
    if not product.multiplies or left is None or left != right:
        raise Unread("no product of short floats")
    tile = Tile(8, 8, steps)
    text = _written(product, tile, _Tensor(product, tile).lines(), THREADS)
    return "#include <mma.h>\n" + text if "#include <mma.h>" not in text else text


def _written(product: Product, tile: Tile, lines: Iterator[str], threads: int) -> str:
    kernel = product.kernel
    launch = kernel.launch
    heights = -(-product.row.covered // (SIDE * tile.rows))
    widths = -(-product.column.covered // (SIDE * tile.columns))
    if heights > 65535:
        raise Unread("too many tiles")
    grid = (widths, heights, launch.grid[2])
    if launch.block[2] != 1:
        raise Unread("a block of three dimensions")
    return with_launch(
        kernel.with_body(lines), launch._replace(grid=grid, block=(threads, 1, 1), shared=0)
    )


class _Writer:
    """What both kinds of tiles have in common. Sums lie in `sum_`, whatever that is."""

    def __init__(self, product: Product, tile: Tile) -> None:
        self.product, self.tile = product, tile
        self.sides = (
            (product.left, product.row, "left", SIDE * tile.rows),
            (product.right, product.column, "right", SIDE * tile.columns),
        )
        for operand, _, _, extent in self.sides:
            if extent * tile.steps % (THREADS * WIDEST // operand.size):
                raise Unread("tiles of less than an access a thread")

    def lines(self) -> Iterator[str]:
        """The kernel's body."""
        p, tile = self.product, self.tile
        yield f"const long long row_begin_ = (long long)blockIdx.y * {SIDE * tile.rows};"
        yield f"const long long column_begin_ = (long long)blockIdx.x * {SIDE * tile.columns};"
        yield f"const long long depth_ = {p.depth};"
        yield "const int thread_ = threadIdx.x;"
        yield from self.declared()
        for operand, _, name, extent in self.sides:
            yield f"alignas({WIDEST}) {operand.type} {name}_next_[{extent * tile.steps // THREADS}];"
        yield from self._loaded("0LL")
        yield f"for (long long step_ = 0; step_ < depth_; step_ += {tile.steps}) {{"
        for operand, _, name, extent in self.sides:
            yield from _in(self._shared(operand, name, extent))
        yield "  __syncthreads();"
        yield f"  if (step_ + {tile.steps} < depth_) {{"
        yield from _in(self._loaded(f"step_ + {tile.steps}"), 2)
        yield "  }"
        yield from _in(self.worked())
        yield "  __syncthreads();"
        yield "}"
        yield from self.stored()

    def declared(self) -> Iterator[str]:
        """Tiles and sums."""
        raise NotImplementedError

    def worked(self) -> Iterator[str]:
        """The steps of the tiles that are shared."""
        raise NotImplementedError

    def stored(self) -> Iterator[str]:
        """What becomes of the sums."""
        raise NotImplementedError

    def shared_at(self, name: str, place: str, step: str) -> str:
        """An element of a shared tile."""
        raise NotImplementedError

    def rows_along_steps(self, name: str) -> bool:
        """Whether neighbours of a shared tile are neighbouring steps."""
        raise NotImplementedError

    def _places(self, operand: Operand, extent: int) -> tuple[str, str]:
        """The place and the step of the element `at_` of a tile, neighbours in memory first."""
        if operand.along_steps:
            return f"at_ / {self.tile.steps}", f"at_ % {self.tile.steps}"
        return f"at_ % {extent}", f"at_ / {extent}"

    def _loaded(self, begin: str) -> Iterator[str]:
        """Elements of the next tiles from memory, 16 bytes at once where they are there and aligned."""
        for operand, axis, name, extent in self.sides:
            lanes = WIDEST // operand.size
            place, step = self._places(operand, extent)
            v, k = axis.name, self.product.step.name
            moves = k if operand.along_steps else v
            bounds = {k: "depth_", v: f"(long long)({axis.bound})"}
            stays = v if moves == k else k
            yield "#pragma unroll"
            yield f"for (int group_ = 0; group_ < {extent * self.tile.steps // THREADS // lanes}; ++group_) {{"
            yield f"  const int at_ = (thread_ + group_ * {THREADS}) * {lanes};"
            yield f"  long long {v} = {self._begin(axis)} + {place};"
            yield f"  long long {k} = {begin} + {step};"
            source = f"{operand.access.pointer} + ({operand.access.at.text})"
            target = f"{name}_next_ + group_ * {lanes}"
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

    def _shared(self, operand: Operand, name: str, extent: int) -> Iterator[str]:
        lanes = WIDEST // operand.size
        place, step = self._places(operand, extent)
        first = self.shared_at(name, place, step)
        yield "#pragma unroll"
        yield f"for (int group_ = 0; group_ < {extent * self.tile.steps // THREADS // lanes}; ++group_) {{"
        yield f"  const int at_ = (thread_ + group_ * {THREADS}) * {lanes};"
        if self.rows_along_steps(name) == operand.along_steps:
            yield f"  *reinterpret_cast<uint4*>(&{first}) ="
            yield f"      *reinterpret_cast<const uint4*>({name}_next_ + group_ * {lanes});"
        else:
            yield "  #pragma unroll"
            yield f"  for (int lane_ = 0; lane_ < {lanes}; ++lane_) {{"
            place, step = (
                (place, f"{step} + lane_") if operand.along_steps else (f"{place} + lane_", step)
            )
            yield f"    {self.shared_at(name, place, step)} = {name}_next_[group_ * {lanes} + lane_];"
            yield "  }"
        yield "}"

    def _begin(self, axis: Axis) -> str:
        return "row_begin_" if axis.name == self.product.row.name else "column_begin_"

    def _of_one(self, row: str, column: str, sum_: str, *, ends: bool) -> Iterator[str]:
        """What a thread does before (`ends` false) or after its sum, for the sum at a place."""
        p = self.product
        yield f"const {p.row.type} {p.row.name} = row_begin_ + {row};"
        yield f"const {p.column.type} {p.column.name} = column_begin_ + {column};"
        yield f"if ({p.row.name} < ({p.row.bound}) && {p.column.name} < ({p.column.bound})) {{"
        for node in p.before:
            yield from _in(iter(said(node).splitlines()))
        if ends:
            yield f"  {p.sum.type} {p.sum.name} = {sum_};"
            for node in p.after:
                yield from _in(iter(said(node).splitlines()))
        else:
            yield f"  {sum_} = {said(p.sum.value)};"
        yield "}"


class _Plain(_Writer):
    """Each thread adds up its own sums."""

    def declared(self) -> Iterator[str]:
        p, tile = self.product, self.tile
        for operand, _, name, extent in self.sides:
            pad = WIDEST // operand.size
            yield f"alignas({WIDEST}) __shared__ {operand.type} {name}_tile_[{tile.steps}][{extent + pad}];"
        yield f"{p.sum.type} sum_[{tile.rows}][{tile.columns}];"
        yield from self._each(ends=False)

    def shared_at(self, name: str, place: str, step: str) -> str:
        return f"{name}_tile_[{step}][{place}]"

    def rows_along_steps(self, name: str) -> bool:
        return False

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
        yield from _in(self._of_one(row, column, "sum_[m_][n_]", ends=ends), 2)
        yield "  }"
        yield "}"

    def worked(self) -> Iterator[str]:
        yield f"if (step_ + {self.tile.steps} <= depth_) {{"
        yield "  #pragma unroll"
        yield from _in(self._steps(str(self.tile.steps)))
        yield "} else {"
        yield from _in(self._steps("depth_ - step_"))
        yield "}"

    def _steps(self, count: str) -> Iterator[str]:
        p, tile = self.product, self.tile
        yield f"for (int k_ = 0; k_ < {count}; ++k_) {{"
        for operand, name, size, lane in ((p.left, "left", tile.rows, f"thread_ / {SIDE}"),
                                          (p.right, "right", tile.columns, f"thread_ % {SIDE}")):  # fmt: skip
            yield f"  {operand.type} {name}_[{size}];"
            yield "  #pragma unroll"
            yield (
                f"  for (int at_ = 0; at_ < {size}; ++at_) {name}_[at_] = "
                f"{name}_tile_[k_][at_ / 4 * {4 * SIDE} + {lane} * 4 + at_ % 4];"
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
            yield from _in(iter(replaced(node, change).splitlines()), 3)
        yield "    }"
        yield "  }"
        yield "}"

    def stored(self) -> Iterator[str]:
        yield from self._each(ends=True)


class _Tensor(_Writer):
    """Eight warps multiply 64 by 32 sums each."""

    def declared(self) -> Iterator[str]:
        kind, steps = self.product.left.type, self.tile.steps
        yield f"alignas(32) __shared__ {kind} left_tile_[128][{steps + PAD}];"
        yield f"alignas(32) __shared__ {kind} right_tile_[{steps}][128 + {PAD}];"
        yield "alignas(32) __shared__ float sums_[8][16][16];"
        yield "const int warp_ = threadIdx.x / 32;"
        yield "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum_[4][2];"
        yield "#pragma unroll"
        yield "for (int m_ = 0; m_ < 4; ++m_) {"
        yield "  #pragma unroll"
        yield "  for (int n_ = 0; n_ < 2; ++n_) nvcuda::wmma::fill_fragment(sum_[m_][n_], 0.0f);"
        yield "}"

    def shared_at(self, name: str, place: str, step: str) -> str:
        first, second = (place, step) if name == "left" else (step, place)
        return f"{name}_tile_[{first}][{second}]"

    def rows_along_steps(self, name: str) -> bool:
        return name == "left"

    def worked(self) -> Iterator[str]:
        kind = self.product.left.type
        fragment = "nvcuda::wmma::fragment<nvcuda::wmma::matrix_{}, 16, 16, 16, {}, nvcuda::wmma::row_major> {};"
        yield "#pragma unroll"
        yield f"for (int k_ = 0; k_ < {self.tile.steps}; k_ += 16) {{"
        yield "  " + fragment.format("a", kind, "left_[4]")
        yield "  " + fragment.format("b", kind, "right_[2]")
        yield "  #pragma unroll"
        yield "  for (int m_ = 0; m_ < 4; ++m_) {"
        yield (
            "    nvcuda::wmma::load_matrix_sync(left_[m_], &left_tile_[warp_ / 4 * 64 + m_ * 16][k_], "
            f"{self.tile.steps + PAD});"
        )
        yield "  }"
        yield "  #pragma unroll"
        yield "  for (int n_ = 0; n_ < 2; ++n_) {"
        yield (
            "    nvcuda::wmma::load_matrix_sync(right_[n_], "
            f"&right_tile_[k_][warp_ % 4 * 32 + n_ * 16], {128 + PAD});"
        )
        yield "  }"
        yield "  #pragma unroll"
        yield "  for (int m_ = 0; m_ < 4; ++m_) {"
        yield "    #pragma unroll"
        yield "    for (int n_ = 0; n_ < 2; ++n_) {"
        yield "      nvcuda::wmma::mma_sync(sum_[m_][n_], left_[m_], right_[n_], sum_[m_][n_]);"
        yield "    }"
        yield "  }"
        yield "}"

    def stored(self) -> Iterator[str]:
        p = self.product
        yield "#pragma unroll"
        yield "for (int m_ = 0; m_ < 4; ++m_) {"
        yield "  #pragma unroll"
        yield "  for (int n_ = 0; n_ < 2; ++n_) {"
        yield (
            "    nvcuda::wmma::store_matrix_sync(&sums_[warp_][0][0], sum_[m_][n_], 16, "
            "nvcuda::wmma::mem_row_major);"
        )
        yield "    __syncwarp();"
        yield "    for (int at_ = threadIdx.x % 32; at_ < 256; at_ += 32) {"
        yield "      float whole_ = 0.0f;"
        row, column = "warp_ / 4 * 64 + m_ * 16 + at_ / 16", "warp_ % 4 * 32 + n_ * 16 + at_ % 16"
        yield "      {"
        yield from _in(self._of_one(row, column, "whole_", ends=False), 4)
        yield "      }"
        yield "      whole_ += sums_[warp_][at_ / 16][at_ % 16];"
        yield from _in(self._of_one(row, column, "whole_", ends=True), 3)
        yield "    }"
        yield "    __syncwarp();"
        yield "  }"
        yield "}"
        assert p.sum.type == "float"


def _in(lines: Iterator[str], by: int = 1) -> Iterator[str]:
    return ("  " * by + line for line in lines)
