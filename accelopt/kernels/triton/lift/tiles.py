"""Tiles, pointers and block pointers of a kernel while it is traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import ml_dtypes
import numpy as np

from accelopt.algorithm.traced_array import is_float
from accelopt.algorithm.value_nodes import Value
from accelopt.kernels.triton.lift.kernel_trace import KernelTrace, Tile
from accelopt.kernels.triton.lift.memory import Buffer

FORMATS = {
    **{name: np.dtype(name) for name in (
        "float64 float32 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64").split()},
    "bfloat16": np.dtype(ml_dtypes.bfloat16), "float8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e5": np.dtype(ml_dtypes.float8_e5m2), "int1": np.dtype(bool),
}  # fmt: skip
"""Formats by Triton's names."""


KINDS: dict[str, Callable[[np.dtype], bool]] = {
    "is_floating": is_float, "is_int": lambda d: d.kind in "iub", "is_int_signed": lambda d: d.kind == "i",
    "is_int_unsigned": lambda d: d.kind in "ub", "is_bool": lambda d: d.kind == "b",
    "is_int1": lambda d: d.kind == "b", "is_ptr": lambda d: False,
    "is_fp8": lambda d: is_float(d) and d.itemsize == 1,
    "is_standard_floating": lambda d: is_float(d) and d.itemsize > 1,
}  # fmt: skip
"""What `tl.dtype` is asked."""
NAMES = {"is_fp16": "float16", "is_bf16": "bfloat16", "is_fp32": "float32", "is_fp64": "float64",
         "is_int8": "int8", "is_int16": "int16", "is_int32": "int32", "is_int64": "int64"}  # fmt: skip


def attribute(trace: KernelTrace, held: Any, name: str) -> Any:
    """An attribute in a kernel's text. Formats are NumPy's; a `tl.constexpr` is its own `value`; a number is
    a scalar."""
    if isinstance(held, np.dtype):
        if name in ("value", "scalar", "element_ty"):
            return held
        if name in ("primitive_bitwidth", "int_bitwidth"):
            return 8 * held.itemsize if held.kind != "b" else 1
        if name in KINDS or name in NAMES:
            return lambda: KINDS[name](held) if name in KINDS else held.name == NAMES[name]
    if name == "value" and (held is None or isinstance(held, (bool, str, tuple))):
        return held
    number = isinstance(held, (bool, int, float)) and not hasattr(held, name)
    return getattr(trace.traced(held) if number else held, name)


@dataclass(frozen=True)
class PointerType:
    """`pointer.dtype`, and `tl.pointer_type`."""

    element_ty: np.dtype
    address_space: int = 1


@dataclass(frozen=True)
class Pointer:
    """Addresses in a buffer: `offset` in elements, a tile of integers. `radix` are the digits of the
    view that was given to the kernel."""

    buffer: Buffer
    offset: Tile
    radix: tuple[int, ...]

    __array_ufunc__ = None
    dtype = property(lambda self: PointerType(self.buffer.dtype))
    type = dtype
    shape = property(lambda self: self.offset.shape)

    def __add__(self, other: Any) -> Pointer:
        return replace(self, offset=self.offset + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Pointer):
            return self.offset - other.offset
        return replace(self, offset=self.offset - other)

    def __getitem__(self, key: Any) -> Pointer:
        return replace(self, offset=cast(Tile, self.offset[key]))

    def to(self, kind: Any, **_: Any) -> Any:
        """A pointer to the same elements; anything else is refused."""
        if isinstance(kind, PointerType) and kind.element_ty != self.buffer.dtype:
            self.offset.trace.refuse(
                "a pointer to another format has no definition as an Algorithm"
            )
        return self

    cast = to


@dataclass(frozen=True)
class ChosenPointer:
    """`on_true` where a truth value holds, which differs by program, else `on_false`, into another buffer."""

    chosen: Value
    on_true: Pointer | ChosenPointer
    on_false: Pointer | ChosenPointer

    __array_ufunc__ = None
    dtype = property(lambda self: self.on_true.dtype)
    type = dtype
    shape = property(lambda self: self.on_true.shape)

    def _both(self, change: Callable[[Any], Any]) -> ChosenPointer:
        return replace(self, on_true=change(self.on_true), on_false=change(self.on_false))

    def __add__(self, other: Any) -> ChosenPointer:
        return self._both(lambda pointer: pointer + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> ChosenPointer:
        return self._both(lambda pointer: pointer - other)

    def __getitem__(self, key: Any) -> ChosenPointer:
        return self._both(lambda pointer: pointer[key])

    def to(self, kind: Any, **_: Any) -> ChosenPointer:
        """The same elements as each pointer's own; anything else is refused."""
        return self._both(lambda pointer: pointer.to(kind))

    cast = to


@dataclass(frozen=True)
class BlockPointer:
    """`tl.make_block_ptr`, and a tensor descriptor, whose blocks lie where they are asked for."""

    base: Pointer
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offsets: tuple[Any, ...]
    block_shape: tuple[int, ...]

    dtype = property(lambda self: self.base.buffer.dtype)
    type = property(lambda self: self)
    element_ty = dtype

    def at(self, offsets: Sequence[Any]) -> BlockPointer:
        """The block at other offsets."""
        return replace(self, offsets=tuple(offsets))
