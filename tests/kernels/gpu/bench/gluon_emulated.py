"""Runs Gluon kernels on NumPy, one program of the grid after the other, without a GPU or Triton.

    namespace = emulated(text)
    launch(namespace, "kernel", (4,), num_warps=8, x_ptr=flat_array, n=7, BLOCK=64)

What Triton 3.6 refuses to compile (layouts that differ, a tensor in place of a constant) and what a
Hopper GPU would get wrong (a copy or product that was not waited for, a missing fence, an address
out of range) raises `Fault`. Fresh shared memory is NaN. Time and threads are not modelled.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import MagicMock, patch

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Operand: TypeAlias = "Tensor | int | float"


class Fault(Exception):
    """What the compiler refuses, or what the hardware would get wrong."""


def require(condition: object, why: str) -> None:
    if not condition:
        raise Fault(why)


def constant(value: Any) -> Any:
    require(not isinstance(value, (Tensor, Accumulator)), "a constexpr is needed, not a tensor")
    return value


@dataclass(frozen=True)
class Layout:
    """Where elements lie; layouts are equal if their fields are."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (list, tuple)):
                object.__setattr__(self, field.name, tuple(map(constant, value)))


class Distributed(Layout):
    """A layout over a program's threads."""

    @property
    def warps(self) -> tuple[int, ...]:
        """The warps along each axis."""
        return tuple(self.parent.warps if hasattr(self, "parent") else self.warps_per_cta)  # type: ignore[attr-defined]

    @property
    def rank(self) -> int:
        return self.parent.rank - 1 if isinstance(self, SliceLayout) else len(self.warps)


@dataclass(frozen=True)
class BlockedLayout(Distributed):
    size_per_thread: Sequence[int]
    threads_per_warp: Sequence[int]
    warps_per_cta: Sequence[int]
    order: Sequence[int]


@dataclass(frozen=True)
class SliceLayout(Distributed):
    dim: int
    parent: Distributed


@dataclass(frozen=True)
class NVMMADistributedLayout(Distributed):
    version: Sequence[int]
    warps_per_cta: Sequence[int]
    instr_shape: Sequence[int]


@dataclass(frozen=True)
class DotOperandLayout(Distributed):
    operand_index: int
    parent: Distributed
    k_width: int


class Shared(Layout):
    """A layout of shared memory, or of each of several buffers."""

    rank: int


@dataclass(frozen=True)
class NVMMASharedLayout(Shared):
    swizzle_byte_width: int
    element_bitwidth: int
    rank: int = 2
    transposed: bool = False


@dataclass(frozen=True)
class SwizzledSharedLayout(Shared):
    vec: int
    per_phase: int
    max_phase: int
    order: Sequence[int]

    @property
    def rank(self) -> int:  # type: ignore[override]
        return len(self.order)


@dataclass(frozen=True)
class DType:
    """A type of numbers; of its kinds (0 truths, 1 integers, 2 floats) the higher wins."""

    name: str
    numpy: np.dtype[Any]
    kind: int

    @property
    def primitive_bitwidth(self) -> int:
        return self.numpy.itemsize * 8 if self.kind else 1

    @property
    def garbage(self) -> Any:
        """What memory holds that nobody wrote."""
        return (True, -77_777_777, np.nan)[self.kind]


INT1 = DType("int1", np.dtype(bool), 0)
INT32 = DType("int32", np.dtype(np.int32), 1)
INT64 = DType("int64", np.dtype(np.int64), 1)
FLOAT16 = DType("float16", np.dtype(np.float16), 2)
BFLOAT16 = DType("bfloat16", np.dtype(ml_dtypes.bfloat16), 2)
FLOAT32 = DType("float32", np.dtype(np.float32), 2)
DTYPES = {dtype.numpy: dtype for dtype in (INT1, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32)}


@dataclass(frozen=True, eq=False)
class Pointer:
    """The dtype of addresses in a flat array; a tensor of it holds positions."""

    memory: Array

    @property
    def element_ty(self) -> DType:
        return DTYPES[self.memory.dtype]


class Type(NamedTuple):
    """What the compiler knows of a tensor; a scalar has no layout."""

    dtype: DType | Pointer
    shape: tuple[int, ...]
    layout: Distributed | None


class Tensor:
    """A block with its layout, or a scalar, which has none."""

    def __init__(self, value: Any, dtype: Any, layout: Distributed | None = None) -> None:
        numpy = dtype.numpy if isinstance(dtype, DType) else np.int64
        self.value, self.dtype, self.layout = np.asarray(value).astype(numpy), dtype, layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def type(self) -> Type:
        return Type(self.dtype, self.shape, self.layout)

    def to(self, dtype: DType) -> Tensor:
        require(isinstance(self.dtype, DType), "no cast of pointers")
        return Tensor(self.value, dtype, self.layout)

    def __bool__(self) -> bool:
        require(self.layout is None, "a block decides no branch")
        return bool(self.value)

    def __getitem__(self, index: Any) -> Tensor:
        require(index in ((slice(None), None), (None, slice(None))), "an index only adds an axis")
        return expand_dims(self, index.index(None))


class Accumulator:
    """What an asynchronous product will be; `value` is None until it is waited for."""

    def __init__(self, type: Type, value: Array | None = None) -> None:
        self.type, self.value = type, value


def as_tensor(value: Any) -> Tensor:
    """What a kernel computes with as a tensor: a Python number becomes a scalar."""
    require(not isinstance(value, Accumulator), "an asynchronous product is read before its wait")
    if isinstance(value, Tensor):
        return value
    require(isinstance(value, (bool, int, float)), f"no value of a kernel: {value!r}")
    if isinstance(value, bool):
        return Tensor(value, INT1)
    small = -(2**31) <= value < 2**31
    return Tensor(value, FLOAT32 if isinstance(value, float) else INT32 if small else INT64)


def block(value: Any) -> Tensor:
    require(as_tensor(value).layout is not None, "a block with a layout is needed, not a scalar")
    return as_tensor(value)


def aligned(*operands: Any) -> tuple[list[Array], Distributed | None]:
    """The values of operands in one shape, and the layout that all its blocks must have."""
    tensors = [as_tensor(operand) for operand in operands]
    blocks = [tensor for tensor in tensors if tensor.layout is not None]
    for one, two in itertools.pairwise(blocks):
        require(one.layout == two.layout, f"layouts differ: {one.layout} and {two.layout}")
        fit = all(m == n or 1 in (m, n) for m, n in zip(one.shape, two.shape, strict=True))
        require(fit, f"shapes differ: {one.shape} and {two.shape}")
    values = np.broadcast_arrays(*(tensor.value for tensor in tensors))
    return list(values), blocks[0].layout if blocks else None


def common_dtype(x: Operand, y: Operand, divides: bool = False) -> DType:
    """The dtype two operands are computed in, by `computation_type_impl` of Triton 3.6."""
    one, two = as_tensor(x).dtype, as_tensor(y).dtype
    require(isinstance(one, DType) and isinstance(two, DType), "no arithmetic of pointers")
    number, tensor = (one, two) if isinstance(y, Tensor) else (two, one)
    if isinstance(x, Tensor) != isinstance(y, Tensor) and number.kind <= tensor.kind:
        found = tensor
    elif one.kind == two.kind == 1 or max(one.kind, two.kind) < 2:
        found = max(one, two, key=lambda dtype: dtype.primitive_bitwidth)
    elif one == two == BFLOAT16:
        found = BFLOAT16
    else:
        found = FLOAT16 if FLOAT16 in (one, two) and FLOAT32 not in (one, two) else FLOAT32
    return FLOAT32 if divides and found in (FLOAT16, BFLOAT16) else found


def elementwise(operation: Callable[..., Array], *operands: Operand, dtype: DType) -> Tensor:
    """An operation computed in `dtype`, element by element; a comparison gives truths."""
    values, layout = aligned(*operands)
    result = np.asarray(operation(*(value.astype(dtype.numpy) for value in values)))
    return Tensor(result, INT1 if result.dtype == bool else dtype, layout)


def arithmetic(name: str, x: Operand, y: Operand) -> Tensor:
    """A binary operator of Triton; integers divide towards zero."""
    dtypes = [as_tensor(x).dtype, as_tensor(y).dtype]
    if any(isinstance(dtype, Pointer) for dtype in dtypes):
        pointer, offset = dtypes if isinstance(dtypes[0], Pointer) else dtypes[::-1]
        moves = name == "add" or (name == "sub" and pointer is dtypes[0])
        require(moves and isinstance(offset, DType) and offset.kind < 2, f"{name} of a pointer")
        (one, two), layout = aligned(x, y)
        return Tensor(OPERATORS[name](one.astype(np.int64), two), pointer, layout)
    dtype = common_dtype(x, y, name in ("truediv", "floordiv", "mod"))
    if name == "truediv" and dtype.kind < 2:
        dtype = FLOAT32
    whole = name in ("floordiv", "and", "or", "xor", "lshift", "rshift")
    require(not whole or dtype.kind < 2, f"{name} of floats")
    counts = name in ("add", "sub", "mul", "floordiv", "mod", "lshift", "rshift")
    require(not counts or dtype != INT1, f"{name} of truths")
    return elementwise(OPERATORS[name], x, y, dtype=dtype)


OPERATORS: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "floordiv": lambda x, y: np.floor_divide(x - np.fmod(x, y), y), "mod": np.fmod,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift,
    "rshift": np.right_shift, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
for _class, _name in itertools.product((Tensor, Accumulator), OPERATORS):
    setattr(_class, f"__{_name}__", lambda x, y, name=_name: arithmetic(name, x, y))
    setattr(_class, f"__r{_name}__", lambda x, y, name=_name: arithmetic(name, y, x))


def unary(operation: Callable[..., Array], *, floats: bool = False) -> Callable[[Operand], Tensor]:
    def function(x: Operand) -> Tensor:
        require(not floats or as_tensor(x).dtype == FLOAT32, "a function of float32 alone")
        return elementwise(operation, x, dtype=as_tensor(x).dtype)

    return function


def binary(operation: Callable[..., Array]) -> Callable[[Operand, Operand], Tensor]:
    return lambda x, y: elementwise(operation, x, y, dtype=common_dtype(x, y))


for _name, _operation in (("neg", np.negative), ("invert", np.invert)):
    setattr(Tensor, f"__{_name}__", unary(_operation))


def where(condition: Operand, x: Operand, y: Operand) -> Tensor:
    (chosen, one, two), layout = aligned(condition, x, y)
    dtype = common_dtype(x, y)
    return Tensor(np.where(chosen, one.astype(dtype.numpy), two.astype(dtype.numpy)), dtype, layout)


def fma(x: Operand, y: Operand, z: Operand) -> Tensor:
    dtype = common_dtype(arithmetic("mul", x, y), z)
    return elementwise(lambda x, y, z: x * y + z, x, y, z, dtype=dtype)


def cdiv(x: Any, div: Any) -> Any:
    return (x + div - 1) // div


def expand_dims(input: Tensor, axis: int) -> Tensor:
    layout = block(input).layout
    if not (isinstance(layout, SliceLayout) and layout.dim == constant(axis)):
        raise Fault(f"axis {axis} is added to a slice along it, not to {layout}")
    return Tensor(np.expand_dims(input.value, axis), input.dtype, layout.parent)


def reduction(operation: Callable[..., Array], *, widens: bool) -> Callable[..., Tensor]:
    """A reduction, computed in 32 bits; `widens` says whether it stays there (Triton's max does)."""

    def reduced(input: Tensor, axis: int | None = None) -> Tensor:
        layout, dtype = block(input).layout, input.dtype
        wide = INT32 if dtype == INT1 else dtype if dtype.kind == 1 else FLOAT32
        value = operation(input.value.astype(wide.numpy), axis=constant(axis))
        left = SliceLayout(axis, layout) if np.ndim(value) and layout and axis is not None else None
        return Tensor(value, wide if widens or dtype == INT1 else dtype, left)

    return reduced


class Access(NamedTuple):
    """Positions in global memory, and which of them are touched."""

    memory: Array
    at: Array
    active: Array
    layout: Distributed | None

    def read(self, other: Any) -> Array:
        """The elements there, `other` where none is touched."""
        value: Array = np.empty(self.at.shape, self.memory.dtype)
        value[...] = other
        value[self.active] = self.memory[self.at[self.active]]
        return value


def accessed(pointer: Tensor, mask: Operand | None) -> Access:
    require(isinstance(as_tensor(pointer).dtype, Pointer), "no pointer")
    memory = pointer.dtype.memory
    (at, active), layout = aligned(pointer, True if mask is None else mask)
    require(at.shape == pointer.shape, f"{pointer.shape} addresses, but the mask is {at.shape}")
    outside = active & ((at < 0) | (at >= memory.size))
    require(not outside.any(), f"address out of range: {at[outside][:1]} of {memory.size}")
    return Access(memory, at, active.astype(bool), layout)


def load(
    pointer: Tensor, mask: Operand | None = None, other: Operand | None = None, **hints: object
) -> Tensor:
    require(other is None or mask is not None, "`other` without a mask")
    access, dtype = accessed(pointer, mask), pointer.dtype.element_ty
    rest = dtype.garbage if other is None else aligned(pointer, other)[0][1]
    return Tensor(access.read(rest), dtype, access.layout)


def store(pointer: Tensor, value: Operand, mask: Operand | None = None, **hints: object) -> None:
    access = accessed(pointer, mask)
    (at, stored), _ = aligned(pointer, value)
    require(at.shape == pointer.shape, f"{stored.shape} is stored to {pointer.shape} addresses")
    access.memory[at[access.active]] = stored[access.active].astype(access.memory.dtype)


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


def runtime_value(value: Any) -> Any:
    """What `x = value` makes of a value: numbers become scalars, layouts are refused."""
    if isinstance(value, (tuple, list)):
        return tuple(map(runtime_value, value))
    kept = value is None or isinstance(value, (Accumulator, SharedMemory, DType))
    return value if kept else as_tensor(value)


def runtime_range(*bounds: Operand) -> Iterator[Tensor]:
    return map(as_tensor, range(*(int(as_tensor(bound).value) for bound in bounds)))


def known_types(names: Mapping[str, Any]) -> dict[str, Any]:
    """What the compiler knows of the tensors among a function's names."""

    def known(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(known, value))
        return (
            (type(value).__name__, value.type) if isinstance(value, (Tensor, Accumulator)) else ()
        )

    return {name: known(value) for name, value in names.items() if known(value)}


def check_types(before: Mapping[str, Any], names: Mapping[str, Any], test: Any = None) -> None:
    """Raises where a step of a loop, or a branch that no constant decides, changes a name's type."""
    after = known_types(names) if test is None or isinstance(test, Tensor) else before
    for name, was in before.items():
        require(after.get(name) == was, f"{name} changes its type: {was} to {after.get(name)}")


class Compiled(ast.NodeTransformer):
    """Has Python do with assignments and loops what Triton's compiler does."""

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        node.value = ast.Call(ast.Name("runtime_value", ast.Load()), [node.value], [])
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if is_constexpr(ast.unparse(node.annotation)) or node.value is None:
            return self.generic_visit(node)
        return self.visit_Assign(ast.Assign([node.target], node.value, lineno=node.lineno))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        left = ast.parse(ast.unparse(node.target), mode="eval").body
        value = ast.BinOp(left, node.op, node.value)
        return self.visit_Assign(ast.Assign([node.target], value, lineno=node.lineno))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("runtime_range" if node.id == "range" else node.id, node.ctx)

    def visit_For(self, node: ast.For | ast.While) -> ast.stmt:
        unrolled = isinstance(node, ast.For) and "static_range" in ast.unparse(node.iter)
        self.generic_visit(node)
        if not unrolled:
            first = ast.parse(f"types_{node.lineno} = known_types(locals())").body
            last = ast.parse(f"check_types(types_{node.lineno}, locals())").body
            node.body = [*first, *node.body, *last]
        return node

    visit_While = visit_For

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        self.generic_visit(node)
        test, before = f"test_{node.lineno}", f"types_{node.lineno}"
        first = ast.parse(
            f"{test} = {ast.unparse(node.test)}; {before} = known_types(locals())"
        ).body
        last = ast.parse(f"check_types({before}, locals(), {test})").body
        node.test = ast.Name(test, ast.Load())
        return [*first, node, *last]


def is_constexpr(annotation: Any) -> bool:
    return str(getattr(annotation, "__name__", annotation)).endswith("constexpr")


def constexpr(value: Any) -> Any:
    return constant(value)


def constexpr_function(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(lambda *values: function(*map(constant, values)))


@dataclass(frozen=True)
class JitFunction:
    """A function of a kernel's text."""

    machine: Machine
    function: Callable[..., Any]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)


def module(name: str, members: Iterable[Any] = (), **named: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update({member.__name__: member for member in members}, **named)
    return made


def modules(machine: Machine) -> dict[str, Any]:
    """What stands for the modules of Gluon, and for torch and Triton, which the host's code uses."""
    of_floats = (np.exp, np.exp2, np.log, np.log2, np.sqrt, np.sin, np.cos, np.floor, np.ceil)
    language = module(
        "language",
        (
            expand_dims, where, fma, cdiv, load, store, constexpr, machine.program_id,
            machine.num_programs, machine.num_warps, machine.arange, machine.full, machine.zeros,
            machine.convert_layout, machine.allocate_shared_memory, BlockedLayout, SliceLayout,
            NVMMADistributedLayout, DotOperandLayout, NVMMASharedLayout, SwizzledSharedLayout,
        ),
        **{dtype.name: dtype for dtype in DTYPES.values()},
        **{operation.__name__: unary(operation, floats=True) for operation in of_floats},
        rsqrt=unary(lambda x: 1 / np.sqrt(x), floats=True), abs=unary(np.abs),
        minimum=binary(np.fmin), maximum=binary(np.fmax), sum=reduction(np.sum, widens=False),
        min=reduction(np.fmin.reduce, widens=True), max=reduction(np.fmax.reduce, widens=True),
        static_range=lambda *bounds: range(*map(constant, bounds)),
        static_assert=lambda condition, text="": require(constant(condition), f"static: {text}"),
        thread_barrier=lambda: None,
    )  # fmt: skip
    groups = (machine.async_copy_global_to_shared, machine.commit_group, machine.wait_group)
    products = (machine.warpgroup_mma, machine.warpgroup_mma_init, machine.warpgroup_mma_wait)
    copies = module("async_copy", groups)
    jit = functools.partial(JitFunction, machine)
    gluon = module("gluon", (constexpr_function,), jit=jit, language=language)
    of_host = ("torch", "torch.nn", "torch.nn.functional", "triton", "triton.language")
    within = "triton.experimental.gluon.language"
    return {
        **{name: MagicMock() for name in of_host},
        "triton.experimental": module("experimental", gluon=gluon),
        "triton.experimental.gluon": gluon,
        within: language,
        f"{within}.nvidia": module("nvidia"),
        f"{within}.nvidia.ampere": module("ampere", async_copy=copies),
        f"{within}.nvidia.ampere.async_copy": copies,
        f"{within}.nvidia.hopper": module("hopper", (machine.fence_async_shared, *products)),
    }


def emulated(text: str) -> dict[str, Any]:
    """The names of a module's text, whose `@gluon.jit` functions `launch` runs."""
    tree = ast.parse(text)
    for place, node in enumerate(tree.body):
        if "gluon.jit" in map(ast.unparse, getattr(node, "decorator_list", ())):
            tree.body[place] = Compiled().visit(node)
    written_in = (runtime_value, runtime_range, known_types, check_types)
    namespace: dict[str, Any] = {function.__name__: function for function in written_in}
    with patch.dict(sys.modules, modules(Machine())):
        exec(compile(ast.fix_missing_locations(tree), "<gluon>", "exec"), namespace)
    return namespace


def launch(
    namespace: dict[str, Any],
    kernel_name: str,
    grid: Sequence[int],
    *,
    num_warps: int = 4,
    **given: Any,
) -> None:
    """Runs a kernel's programs in order: flat arrays are pointers, numbers scalars or constants."""
    kernel = namespace[kernel_name]
    parameters, arguments = inspect.signature(kernel.function).parameters, dict(given)
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            assert value.ndim == 1 and value.dtype in DTYPES, f"{name} is no flat array of a dtype"
            arguments[name] = Tensor(0, Pointer(value))
        elif not is_constexpr(parameters[name].annotation):
            arguments[name] = runtime_value(value)
    extents = (*grid, 1, 1)[:3]
    for place in itertools.product(*map(range, extents)):
        kernel.machine.start(place, extents, num_warps)
        with np.errstate(all="ignore"):
            kernel(**arguments)
        kernel.machine.finish()
