"""Products of short floats by tensor cores: tiles come by asynchronous copies while others are multiplied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accelopt.kernels.cuda.programs.plane import times_of
from accelopt.kernels.cuda.programs.products import Product
from accelopt.kernels.cuda.programs.syntax import SHORT_FLOATS, Unread
from accelopt.kernels.cuda.programs.tiles import WIDEST, Blocks, Side, begin_of, indented

PAD = 8  # short floats behind a row, so that 16 bytes of eight rows lie in different banks
PIECE = 16  # sums along both axes, and steps, of one multiplication
STRIP = 32  # columns that a warp stores side by side
HEADERS = ("mma.h", "cuda_pipeline.h")


class MatrixTile(NamedTuple):
    """Sums of a block and of a warp along both axes, steps of a tile, tiles that are there or under way,
    and how many blocks a multiprocessor is to hold."""

    rows: int
    columns: int
    steps: int
    stages: int
    warp_rows: int = 64
    warp_columns: int = 64
    blocks: int = 2

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)


def with_tensor_cores(product: Product, tile: MatrixTile) -> str:
    """The source with a block's tiles multiplied by tensor cores, 16 by 16 by 16 at a time.

    Before: a thread a sum. After: copies of the next `stages - 1` tiles are under way while a block
    multiplies one. A block at an edge begins further back, so that all that it reads is there, and stores
    only sums of its own. What is not aligned to 16 bytes, or fewer sums or steps than a tile has, comes
    element by element. Legal for products of two half or two bfloat16 numbers that are added up as
    float; sums are taken in another order. Raises Unread for any other.
    """
    left, right = (SHORT_FLOATS.get(one.type) for one in (product.left, product.right))
    if not product.multiplies or left is None or left != right:
        raise Unread("no product of short floats")
    matrices = _Matrices(product, tile)
    source = matrices.source(matrices.shared)
    wanted = [f"#include <{name}>\n" for name in HEADERS]
    return "".join(line for line in wanted if line not in source) + source


class _Matrices(Blocks):
    """Each warp multiplies tiles of its own sums, in pieces of 16 by 16."""

    def __init__(self, product: Product, tile: MatrixTile) -> None:
        super().__init__(product, tile.rows, tile.columns, tile.steps, tile.threads)
        self.tile = tile

    @property
    def shared(self) -> int:
        """Bytes of shared memory: of the tiles, and in the end of sums on their way."""
        tiles = self.left.operand.size * self.tile.stages * self._whole
        return max(tiles, 4 * self._strip * self.threads // 32)

    @property
    def _whole(self) -> int:
        """Elements of a stage."""
        return sum(self._size(side) for side in self.sides)

    @property
    def _strip(self) -> int:
        """Sums of a warp on their way."""
        return PIECE * (STRIP + PAD)

    def _pitch(self, side: Side) -> int:
        return (self.steps if side.operand.along_steps else side.extent) + PAD

    def _size(self, side: Side) -> int:
        lines = side.extent if side.operand.along_steps else self.steps
        return lines * self._pitch(side)

    def _shared_at(self, side: Side, place: str, step: str) -> str:
        """The index of an element in a stage."""
        before = f"{self._size(self.left)} + " if side is self.right else ""
        line, element = (place, step) if side.operand.along_steps else (step, place)
        return f"{before}{line} * {self._pitch(side)} + {element}"

    def _apart(self, side: Side, name: str) -> str:
        """How far apart neighbours along `name` are in memory."""
        found = times_of(side.operand.access.at, name)
        assert found is not None, "a product's operands have one stride along each axis"
        return found.text

    def lines(self) -> Iterator[str]:
        """As the base says."""
        tile, steps = self.tile, self.steps
        yield f"extern __shared__ __align__(128) {self.product.left.type} shared_[];"
        yield f"const long long depth_ = {self.product.depth};"
        yield "const int thread_ = threadIdx.x, warp_ = thread_ / 32;"
        for side, along, begin in ((self.left, "y", "row"), (self.right, "x", "column")):
            first = f"(long long)blockIdx.{along} * {side.extent}"
            last = f"(long long)({side.axis.bound}) - {side.extent}"
            yield f"const long long {begin}_begin_ = max(0LL, min({first}, {last}));"
            yield f"const int {begin}_others_ = {first} - {begin}_begin_;"
        yield from self._declared()
        yield from self._multiplied()
        yield "long long step_ = 0;"
        yield f"if ({' && '.join(f'{side.name}_wide_' for side in self.sides)}) {{"
        yield from indented(self._copied())
        yield f"  for (int stage_ = 0; stage_ < {tile.stages - 1}; ++stage_) {{"
        yield f"    if ((stage_ + 1) * {steps} <= depth_) copy_(stage_);"
        yield "    __pipeline_commit();"
        yield "  }"
        yield "  int stage_ = 0;"
        onward = f"    stage_ = stage_ + 1 < {tile.stages} ? stage_ + 1 : 0;"
        yield f"  for (; step_ + {tile.stages * steps} <= depth_; step_ += {steps}) {{"
        yield f"    __pipeline_wait_prior({tile.stages - 2});"
        yield "    __syncthreads();"
        yield "    multiply_(stage_, [&] {"
        yield f"      copy_(stage_ ? stage_ - 1 : {tile.stages - 1});"
        yield "      __pipeline_commit();"
        yield "    });"
        yield onward
        yield "  }"
        yield "  __pipeline_wait_prior(0);"
        yield "  __syncthreads();"
        yield f"  for (; step_ + {steps} <= depth_; step_ += {steps}) {{"
        yield "    multiply_(stage_, [] {});"
        yield onward
        yield "  }"
        yield "}"
        yield f"for (; step_ < depth_; step_ += {steps}) {{"
        yield "  __syncthreads();"
        for side in self.sides:
            yield from indented(self._each(side))
        yield "  __syncthreads();"
        yield "  multiply_(0, [] {});"
        yield "}"
        yield "__syncthreads();"
        yield from self._stored()

    def _declared(self) -> Iterator[str]:
        """Sums, and for each operand whether it may be read by 16 bytes, where a thread's are, and how far
        apart what a line of a tile holds is in memory."""
        rows, columns = self.tile.warp_rows // PIECE, self.tile.warp_columns // PIECE
        yield f"nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum_[{rows}][{columns}];"
        yield "#pragma unroll"
        yield f"for (int m_ = 0; m_ < {rows}; ++m_) {{"
        yield "  #pragma unroll"
        yield f"  for (int n_ = 0; n_ < {columns}; ++n_) nvcuda::wmma::fill_fragment(sum_[m_][n_], 0.0f);"
        yield "}"
        for side in self.sides:
            operand, v, k = side.operand, side.axis.name, self.product.step.name
            apart = self._apart(side, v if operand.along_steps else k)
            place, step = self.place(side, f"thread_ * {side.lanes}")
            yield f"const {operand.type}* {side.name}_from_;"
            yield f"const long long {side.name}_apart_ = {apart};"
            yield f"bool {side.name}_wide_ = (long long)({side.axis.bound}) >= {side.extent};"
            yield "{"
            yield f"  long long {v} = {begin_of(side)}, {k} = 0;"
            yield f"  const {operand.type}* begin_ = {operand.access.pointer} + ({operand.access.at.text});"
            yield f"  {side.name}_wide_ &= (size_t)begin_ % {WIDEST} == 0 && {side.name}_apart_ % {side.lanes} == 0;"
            yield f"  {v} += {place};"
            yield f"  {k} += {step};"
            yield f"  {side.name}_from_ = {operand.access.pointer} + ({operand.access.at.text});"
            yield "}"

    def _copied(self) -> Iterator[str]:
        """Start copies of the next tiles into a stage."""
        yield "const auto copy_ = [&](int stage_) {"
        for side in self.sides:
            place, step = self.place(side, f"thread_ * {side.lanes}")
            lines = self.threads * side.lanes // (self._pitch(side) - PAD)
            onward = self._apart(side, self.product.step.name)
            yield "  #pragma unroll"
            yield f"  for (int group_ = 0; group_ < {self.groups(side)}; ++group_) {{"
            yield "    __pipeline_memcpy_async("
            at = self._shared_at(side, place, step)
            yield f"        shared_ + stage_ * {self._whole} + {at} + group_ * {lines * self._pitch(side)},"
            yield f"        {side.name}_from_ + group_ * {lines} * {side.name}_apart_, {WIDEST});"
            yield "  }"
            yield f"  {side.name}_from_ += {self.steps} * ({onward});"
        yield "};"

    def _each(self, side: Side) -> Iterator[str]:
        """Elements of a tile one by one; zeros where there are none."""
        operand, v, k = side.operand, side.axis.name, self.product.step.name
        place, step = self.place(side, "at_")
        yield "#pragma unroll 4"
        yield f"for (int at_ = thread_; at_ < {side.extent * self.steps}; at_ += {self.threads}) {{"
        yield f"  const long long {v} = {begin_of(side)} + {place};"
        yield f"  const long long {k} = step_ + {step};"
        yield f"  {operand.type} one_ = {operand.type}();"
        there = f"{v} < (long long)({side.axis.bound}) && {k} < depth_"
        yield f"  if ({there}) one_ = {operand.access.pointer}[{operand.access.at.text}];"
        yield f"  shared_[{self._shared_at(side, place, step)}] = one_;"
        yield "}"

    def _multiplied(self) -> Iterator[str]:
        """Multiply a stage's tiles, and do something else once the first pieces are in registers."""
        tile = self.tile
        across = tile.columns // tile.warp_columns
        yield "const auto multiply_ = [&](int stage_, const auto& beside_) {"
        yield f"  const {self.product.left.type}* tile_ = shared_ + stage_ * {self._whole};"
        yield "  #pragma unroll"
        yield f"  for (int k_ = 0; k_ < {self.steps}; k_ += {PIECE}) {{"
        for side, use, warp, size in (
            (self.left, "a", f"warp_ / {across}", tile.warp_rows),
            (self.right, "b", f"warp_ % {across}", tile.warp_columns),
        ):
            rows = side.operand.along_steps == (side is self.left)
            layout = f"nvcuda::wmma::{'row' if rows else 'col'}_major"
            kind = f"nvcuda::wmma::matrix_{use}, 16, 16, 16, {side.operand.type}, {layout}"
            at = self._shared_at(side, f"({warp} * {size} + at_ * {PIECE})", "k_")
            yield f"    nvcuda::wmma::fragment<{kind}> {side.name}_[{size // PIECE}];"
            yield "    #pragma unroll"
            yield f"    for (int at_ = 0; at_ < {size // PIECE}; ++at_)"
            yield f"      nvcuda::wmma::load_matrix_sync({side.name}_[at_], tile_ + {at}, {self._pitch(side)});"
        yield "    if (k_ == 0) beside_();"
        yield "    #pragma unroll"
        yield f"    for (int m_ = 0; m_ < {tile.warp_rows // PIECE}; ++m_) {{"
        yield "      #pragma unroll"
        yield f"      for (int n_ = 0; n_ < {tile.warp_columns // PIECE}; ++n_)"
        yield "        nvcuda::wmma::mma_sync(sum_[m_][n_], left_[m_], right_[n_], sum_[m_][n_]);"
        yield "    }"
        yield "  }"
        yield "};"

    def _stored(self) -> Iterator[str]:
        """Sums by way of shared memory, a strip of a warp at a time, each lane a column."""
        tile, pitch = self.tile, STRIP + PAD
        across = tile.columns // tile.warp_columns
        yield f"float* const strip_ = reinterpret_cast<float*>(shared_) + warp_ * {self._strip};"
        yield "#pragma unroll"
        yield f"for (int m_ = 0; m_ < {tile.warp_rows // PIECE}; ++m_) {{"
        yield "  #pragma unroll"
        yield f"  for (int n_ = 0; n_ < {tile.warp_columns // STRIP}; ++n_) {{"
        for piece in range(STRIP // PIECE):
            yield f"    nvcuda::wmma::store_matrix_sync(strip_ + {piece * PIECE}, sum_[m_][{STRIP // PIECE} * n_ + {piece}], {pitch},"
            yield "        nvcuda::wmma::mem_row_major);"
        yield "    __syncwarp();"
        yield "    #pragma unroll 4"
        yield f"    for (int line_ = 0; line_ < {PIECE}; ++line_) {{"
        row = f"warp_ / {across} * {tile.warp_rows} + m_ * {PIECE} + line_"
        column = f"warp_ % {across} * {tile.warp_columns} + n_ * {STRIP} + thread_ % 32"
        own = f" && {row} >= row_others_ && {column} >= column_others_"
        yield "      float whole_ = 0.0f;"
        yield "      {"
        yield from indented(self.of_one(row, column, "whole_", ends=False, also=own), 4)
        yield "      }"
        yield f"      whole_ += strip_[line_ * {pitch} + thread_ % 32];"
        yield from indented(self.of_one(row, column, "whole_", ends=True, also=own), 3)
        yield "    }"
        yield "    __syncwarp();"
        yield "  }"
        yield "}"
