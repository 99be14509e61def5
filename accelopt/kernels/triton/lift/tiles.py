"""Tiles, pointers and block pointers of a kernel while it is traced."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import ml_dtypes
import numpy as np

from accelopt.algorithm.traced_array import NotTraced, Storage, Trace, TracedArray
from accelopt.algorithm.value_nodes import Value
from accelopt.kernels.triton.lift.memory import Buffer

FORMATS = {
    **{name: np.dtype(name) for name in (
        "float64 float32 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64").split()},
    "bfloat16": np.dtype(ml_dtypes.bfloat16), "float8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e5": np.dtype(ml_dtypes.float8_e5m2), "int1": np.dtype(bool),
}  # fmt: skip
"""Formats by Triton's names."""


class KernelTrace(Trace):
    """The trace of a file with kernels and of what it imports."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.files = {path}

    def array(self, shape: Sequence[int], dtype: Any, value: Value) -> Tile:
        """A new tile, whose value is over d0, d1, ..."""
        return Tile(self, Storage(tuple(shape), np.dtype(dtype), value))

    def line(self) -> tuple[str, int]:
        """The file and the line of a kernel or of its host function that is being executed."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in self.files:
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return self.path, 0

    def refuse(self, reason: str) -> NoReturn:
        """Raises NotTraced at the line that is being executed."""
        self.refuse_at(self.line(), reason)

    def refuse_at(self, line: tuple[str, int], reason: str) -> NoReturn:
        """Raises NotTraced at a line."""
        raise NotTraced(reason, *line)


@dataclass(frozen=True)
class PointerType:
    """`pointer.dtype`, and `tl.pointer_type`."""

    element_ty: np.dtype
    address_space: int = 1


class Tile(TracedArray):
    """A tensor or a scalar of a kernel."""

    type = property(lambda self: self)
    scalar = property(lambda self: self)
    element_ty = property(lambda self: self.dtype)

    def to(self, dtype: Any, *_: Any, bitcast: bool = False, **__: Any) -> Tile:
        """tl.cast."""
        if bitcast:
            self.trace.refuse("a tile's bits as another format have no definition as an Algorithm")
        return cast(Tile, self.astype(dtype))

    cast = to

    def trans(self, *order: Any) -> TracedArray:
        """tl.trans: the last two dimensions exchanged, or all in an order."""
        if order:
            return self.transpose(*order)
        return self.swapaxes(-1, -2) if self.ndim > 1 else self

    permute = TracedArray.transpose
    view = TracedArray.reshape

    def broadcast_to(self, *shape: Any) -> TracedArray:
        """tl.broadcast_to."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self.broadcast(tuple(int(n) for n in given))

    def expand_dims(self, axis: Any) -> TracedArray:
        """tl.expand_dims."""
        return cast(TracedArray, np.expand_dims(cast(Any, self), axis))


@dataclass(frozen=True)
class Pointer:
    """Addresses in a buffer: `offset` in elements, a tile of integers. `radix` are the digits of the
    view that was given to the kernel."""

    buffer: Buffer
    offset: Tile
    radix: tuple[int, ...]

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
