"""Tensors of Gluon with their dtypes and layouts, and what is done to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias

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
