"""Tiles, pointers and block pointers of a kernel while it is traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import ml_dtypes
import numpy as np

from accelopt.kernels.triton.lift.kernel_trace import Tile
from accelopt.kernels.triton.lift.memory import Buffer

FORMATS = {
    **{name: np.dtype(name) for name in (
        "float64 float32 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64").split()},
    "bfloat16": np.dtype(ml_dtypes.bfloat16), "float8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e5": np.dtype(ml_dtypes.float8_e5m2), "int1": np.dtype(bool),
}  # fmt: skip
"""Formats by Triton's names."""


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
