"""Views of a tensor with another shape or format over the same elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelopt.sim.affine import Affine
from accelopt.sim.errors import KernelValueError
from accelopt.sim.nki.builder import fail, parse_dtype
from accelopt.sim.nki.tensor import TensorView
from accelopt.sim.rules import operands, shapes


def wanted_shape(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape in `reshape(2, 3)` or `reshape((2, 3))`."""
    first = arguments[0]
    given = arguments if isinstance(first, (int, np.integer)) else tuple(first)
    return tuple(int(n) for n in given)


def reshape(view: TensorView, wanted: tuple[int, ...]) -> TensorView:
    """Other dimensions over the same elements; on-chip only free dimensions split and merge, and
    block dimensions stay as they are."""
    if -1 in wanted:
        known = -math.prod(wanted)
        wanted = tuple(math.prod(view.shape) // known if n == -1 else n for n in wanted)
    if math.prod(wanted) != math.prod(view.shape):
        fail(KernelValueError("reshape", f"cannot reshape {view.shape} to {wanted}."))
    blocks = view.open_blocks
    if wanted[:blocks] != view.shape[:blocks]:
        fail(operands.not_a_tile(repr(view), "its block dimensions cannot be reshaped"))
    tile = wanted[blocks:]
    if view.on_chip and (not tile or tile[0] != view.tile_shape[0]):
        fail(shapes.leading_dimension(repr(view), wanted))
    strides = reshaped_strides(view.tile_shape, view.strides, tile)
    if strides is None:
        mend = "Reshape before slicing, or copy it first."
        problem = f"{view!r} is not contiguous enough to become {wanted}."
        fail(KernelValueError("reshape", problem, mend))
    return view.replaced(shape=wanted, strides=strides)


def broadcast(view: TensorView, wanted: tuple[int, ...]) -> TensorView:
    """Axes of length 1 repeated, without copying."""
    try:
        access = view.access(view.mask).broadcast_to(wanted)
    except ValueError as error:
        fail(KernelValueError("broadcast", f"{error}."))
    return view.replaced(shape=access.shape, strides=access.strides)


def expand_dims(view: TensorView, axis: Any) -> TensorView:
    """New axes of length 1."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = view.ndim + len(axes)
    for at in sorted(int(n) % rank for n in axes):
        if view.on_chip and at <= view.open_blocks:
            fail(shapes.leading_dimension(repr(view), (1, *view.shape)))
        tile = at - view.open_blocks
        view = view.replaced(
            shape=(*view.shape[:at], 1, *view.shape[at:]),
            strides=(*view.strides[:tile], 0, *view.strides[tile:]),
        )
    return view


def reinterpret(view: TensorView, dtype: Any) -> TensorView:
    """The same bytes as another format; the last dimension changes with the item size."""
    new = parse_dtype(dtype)
    old, size = view.dtype.itemsize, new.itemsize
    if size == old:
        return view.replaced(dtype=new)
    steps = (*view.strides[:-1], *(factor for _, factor in view.offset.terms), view.offset.constant)
    fits = view.strides[-1] == 1 and all(n * old % size == 0 for n in (*steps, view.shape[-1]))
    if not fits:
        fail(KernelValueError("view", f"cannot view {view!r} as {new}."))
    offset = Affine(
        view.offset.constant * old // size,
        tuple((term, factor * old // size) for term, factor in view.offset.terms),
    )
    return view.replaced(
        dtype=new,
        shape=(*view.shape[:-1], view.shape[-1] * old // size),
        strides=(*(stride * old // size for stride in view.strides[:-1]), 1),
        offset=offset,
    )


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the same elements in another shape, or None when that needs a copy."""
    pairs = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    used = 0
    available, stride = 1, 1
    for size in reversed(wanted):
        if size == 1:
            result.append(0)
            continue
        while available < size or available % size:
            if used == len(pairs):
                return None
            n, s = pairs[-1 - used]
            if available > 1 and s != stride * available:
                return None
            if available == 1:
                stride = s
            available *= n
            used += 1
        result.append(stride)
        stride *= size
        available //= size
        if available == 1:
            stride = 1
    return tuple(reversed(result))
