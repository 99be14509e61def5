"""Shared memory, asynchronous copies and products: when they land, and what may not happen before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gluon_emulated.values import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    INT32,
    Access,
    Accumulator,
    Array,
    BlockedLayout,
    Distributed,
    DotOperandLayout,
    DType,
    Fault,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    Operand,
    Shared,
    SwizzledSharedLayout,
    Tensor,
    Type,
    accessed,
    as_tensor,
    block,
    constant,
    require,
)


class SharedMemory:
    """A view of shared memory. Each cell has a value, and says whether it was written since the last
    fence, whether a copy is on its way to it, and how many outstanding products read it."""

    def __init__(self, machine: Machine, cells: Array, dtype: DType, layout: Shared) -> None:
        self._machine, self.cells, self.dtype, self.layout = machine, cells, dtype, layout
        require(cells.ndim - layout.rank in (0, 1), f"the rank of {layout} is not {cells.ndim}")

    @property
    def shape(self) -> list[int]:
        return list(self.cells.shape)

    def slice(self, start: int, length: int, dim: int = 0) -> SharedMemory:
        end = constant(start) + constant(length)
        require(0 <= start < end <= self.shape[dim], f"{start} to {end} of {self.shape}")
        cells = self.cells[(slice(None),) * dim + (slice(start, end),)]
        return SharedMemory(self._machine, cells, self.dtype, self.layout)

    def index(self, index: Operand) -> SharedMemory:
        at = int(as_tensor(index).value)
        require(as_tensor(index).dtype == INT32, "an index is an int32")
        require(0 <= at < self.shape[0], f"{at} of {self.shape}")
        return SharedMemory(self._machine, self.cells[at, ...], self.dtype, self.layout)

    def permute(self, order: Sequence[int]) -> SharedMemory:
        layout = self.layout
        if isinstance(layout, SwizzledSharedLayout):
            layout = replace(layout, order=[list(order).index(axis) for axis in layout.order])
        elif isinstance(layout, NVMMASharedLayout) and tuple(order) == (1, 0):
            layout = replace(layout, transposed=not layout.transposed)
        return SharedMemory(self._machine, self.cells.transpose(order), self.dtype, layout)

    def load(self, layout: Distributed) -> Tensor:
        self._machine.check_block(self.shape, layout)
        return Tensor(self.cells["value"], self.dtype, layout)

    def store(self, value: Tensor) -> None:
        same = (list(block(value).shape), value.dtype) == (self.shape, self.dtype)
        require(same, f"{value.type} is stored to {self.shape} of {self.dtype.name}")
        self.begin_write()
        self.cells["value"] = value.value

    def begin_write(self) -> None:
        require(not self.cells["readers"].any(), "race: an outstanding product reads this memory")
        require(not self.cells["arriving"].any(), "race: a copy is on its way to this memory")
        self.cells["written"] = True


class Copy(NamedTuple):
    """A copy from global to shared memory that has not landed."""

    source: Access
    cells: Array

    def land(self) -> None:
        """Writes zeros where it is masked: Triton 3.6 writes cp.async with a source size of 0."""
        self.cells["value"] = self.source.read(0)
        self.cells["arriving"] = False


class Product(NamedTuple):
    """A product that was begun and not waited for; None is added where there is no sum yet."""

    operands: tuple[SharedMemory | Tensor, SharedMemory]
    added: Tensor | Accumulator | None
    result: Accumulator

    @property
    def cells(self) -> Iterable[Array]:
        return (x.cells for x in self.operands if isinstance(x, SharedMemory))

    def finish(self) -> None:
        read = [x.value if isinstance(x, Tensor) else x.cells["value"] for x in self.operands]
        product = read[0].astype(np.float32) @ read[1].astype(np.float32)
        added = 0.0 if self.added is None else np.asarray(self.added.value)
        self.result.value = product + added
        for cells in self.cells:
            cells["readers"] -= 1


class Machine:
    """One program at a time: what it allocated, and what it began and has not waited for."""

    def __init__(self) -> None:
        self.start((0,), (1,), 4)

    def start(self, place: Sequence[int], grid: Sequence[int], num_warps: int) -> None:
        self.place, self.grid, self.warps = place, grid, num_warps
        self.allocations: list[Array] = []
        self.copies: list[Copy] = []
        self.groups: list[list[Copy]] = []
        self.products: list[Product] = []

    def finish(self) -> None:
        require(
            not self.copies and not any(self.groups), "the program ends with copies outstanding"
        )
        require(not self.products, "the program ends with products outstanding")

    def check_block(self, shape: Sequence[int], layout: Distributed) -> None:
        require(isinstance(layout, Distributed), f"no layout of a block: {layout}")
        require(layout.rank == len(shape), f"the rank of {layout} is not that of {shape}")
        require(math.prod(layout.warps) == self.warps, f"{layout} is not for {self.warps} warps")
        powers = all(constant(n) > 0 and n & (n - 1) == 0 for n in shape)
        require(powers, f"extents must be powers of two: {shape}")

    def program_id(self, axis: int) -> Tensor:
        return as_tensor(self.place[axis])

    def num_programs(self, axis: int) -> Tensor:
        return as_tensor(self.grid[axis])

    def num_warps(self) -> int:
        return self.warps

    def arange(self, start: int, end: int, layout: Distributed) -> Tensor:
        self.check_block([constant(end) - constant(start)], layout)
        return Tensor(np.arange(start, end), INT32, layout)

    def full(
        self, shape: Sequence[int], value: Operand, dtype: DType, layout: Distributed
    ) -> Tensor:
        self.check_block(shape, layout)
        require(as_tensor(value).layout is None, "a block is filled with a scalar")
        return Tensor(np.full(shape, as_tensor(value).value), dtype, layout)

    def zeros(self, shape: Sequence[int], dtype: DType, layout: Distributed) -> Tensor:
        return self.full(shape, 0, dtype, layout)

    def convert_layout(self, value: Tensor, layout: Distributed) -> Tensor:
        self.check_block(block(value).shape, layout)
        return Tensor(value.value, value.dtype, layout)

    def allocate_shared_memory(
        self, element_ty: DType, shape: Sequence[int], layout: Shared, value: Tensor | None = None
    ) -> SharedMemory:
        require(isinstance(layout, Shared), f"no layout of shared memory: {layout}")
        width = getattr(layout, "element_bitwidth", element_ty.primitive_bitwidth)
        require(width == element_ty.primitive_bitwidth, f"{layout} for {element_ty.name}")
        flags = [("written", bool), ("arriving", bool), ("readers", np.int16)]
        cells = np.zeros([constant(n) for n in shape], [("value", element_ty.numpy), *flags])
        cells["value"] = element_ty.garbage
        self.allocations.append(cells)
        memory = SharedMemory(self, cells, element_ty, layout)
        if value is not None:
            memory.store(value)
        return memory

    def async_copy_global_to_shared(
        self, smem: SharedMemory, pointer: Tensor, mask: Operand | None = None, **hints: object
    ) -> None:
        source, layout = accessed(pointer, mask), pointer.layout
        if not isinstance(layout, BlockedLayout):
            raise Fault(f"addresses of a copy are in a blocked layout, not in {layout}")
        require(list(pointer.shape) == smem.shape, f"{pointer.shape} is copied to {smem.shape}")
        require(pointer.dtype.element_ty == smem.dtype, "a copy does not change the dtype")
        check_width(source, layout)
        smem.begin_write()
        smem.cells["value"], smem.cells["arriving"] = smem.dtype.garbage, True
        self.copies.append(Copy(source, smem.cells))

    def commit_group(self) -> None:
        self.groups.append(self.copies)
        self.copies = []

    def wait_group(self, num_outstanding: int = 0) -> None:
        while len(self.groups) > constant(num_outstanding):
            for copy in self.groups.pop(0):
                copy.land()

    def fence_async_shared(self, cluster: bool = False) -> None:
        for cells in self.allocations:
            cells["written"] &= cells["arriving"]

    def warpgroup_mma_init(self, value: Tensor) -> Accumulator:
        return Accumulator(block(value).type, value.value)

    def warpgroup_mma(
        self, a: SharedMemory | Tensor, b: SharedMemory, acc: Tensor | Accumulator, *,
        use_acc: Operand = True, precision: str | None = None, is_async: bool = False,
    ) -> Accumulator | Tensor:  # fmt: skip
        check_product(a, b, acc.type)
        result = Accumulator(acc.type)
        self.products.append(Product((a, b), acc if as_tensor(use_acc) else None, result))
        for cells in self.products[-1].cells:
            seen = not cells["written"].any()
            require(seen, "a product reads what was written, without a wait and fence_async_shared")
            cells["readers"] += 1
        return result if constant(is_async) else self.warpgroup_mma_wait(0, deps=(result,))

    def warpgroup_mma_wait(self, num_outstanding: int = 0, deps: Sequence[Any] = ()) -> Any:
        require(deps, "the deps of a wait must be given")
        while len(self.products) > constant(num_outstanding):
            self.products.pop(0).finish()
        done = all(dep.value is not None for dep in deps)
        require(done, "a wait leaves the product outstanding that it is for")
        results = [Tensor(dep.value, dep.type.dtype, dep.type.layout) for dep in deps]
        return results[0] if len(results) == 1 else tuple(results)


def check_width(source: Access, layout: BlockedLayout) -> None:
    """cp.async copies at least four bytes: a thread's elements must lie side by side."""
    inner, count = layout.order[0], 4 // source.memory.dtype.itemsize
    if count > 1:
        groups = np.moveaxis(source.at, inner, -1).reshape(-1, count)
        beside = (groups[:, 0] % count == 0).all() and (np.diff(groups, axis=1) == 1).all()
        wide = layout.size_per_thread[inner] >= count and beside
        require(wide, "a copy of less than four bytes side by side")


def check_product(a: SharedMemory | Tensor, b: SharedMemory, acc: Type) -> None:
    """Raises where wgmma has no such product, or one that is not modelled: 8-bit and TF32 ones."""
    layout = acc.layout
    if not isinstance(layout, NVMMADistributedLayout):
        raise Fault(f"the accumulator of a product is in {layout}")
    (m, n, k), inner = layout.instr_shape, a.shape[-1]
    known = (*layout.version, m, k) == (3, 0, 16, 16) and n % 8 == 0 and n <= 256
    require(known and layout.warps[0] % 4 == 0, f"no instruction of wgmma: {layout}")
    fits = [*a.shape, *b.shape] == [acc.shape[0], inner, inner, acc.shape[1]]
    require(fits, f"no product: {a.shape} by {b.shape} onto {acc.shape}")
    require(acc.shape[0] % 64 == acc.shape[1] % n == inner % k == 0, f"{acc.shape} in {layout}")
    dtypes = a.dtype == b.dtype and a.dtype in (FLOAT16, BFLOAT16) and acc.dtype == FLOAT32
    require(dtypes, f"no product of {a.dtype} and {b.dtype} onto {acc.dtype}")
    left = a.layout if isinstance(a, Tensor) else None
    if isinstance(left, DotOperandLayout):
        require((left.operand_index, left.parent) == (0, layout), f"{left} is not for {layout}")
    for memory in (b,) if isinstance(left, DotOperandLayout) else (a, b):
        shared = isinstance(memory, SharedMemory) and isinstance(memory.layout, NVMMASharedLayout)
        require(shared, f"no operand of wgmma: {memory.layout}")
