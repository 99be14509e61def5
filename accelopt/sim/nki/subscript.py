"""What a subscript of a tensor selects: block dimensions, basic and advanced indices, run-time
indices.

Sources: SDK 2.26.1 `nki/programming_model.rst` "Tensor indexing" and the error reference; the
numbers S5, S6, S9 to S12 are those of the reference `nki-api.md`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelopt.sim.access import Indirect
from accelopt.sim.affine import Affine
from accelopt.sim.errors import (
    KernelAssertionError,
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
)
from accelopt.sim.nki.builder import fail
from accelopt.sim.nki.extremum import Extremum
from accelopt.sim.nki.index import Index, broadcast_shapes, tile_axis
from accelopt.sim.nki.tensor import Bound, DynamicSlice, RuntimeIndex, TensorView
from accelopt.sim.rules import indexing, operands


def subscript(view: TensorView, key: Any) -> TensorView:
    """`view[key]`."""
    items = _expand(key if isinstance(key, tuple) else (key,), view.ndim)
    if any(item is None for item in items):
        return _with_new_axes(view, items)
    if len(items) > view.ndim:
        fail(KernelSyntaxError("too_many_indices", f"{len(items)} indices for {view!r}."))
    chosen = _choose_blocks(view, items[: view.open_blocks])
    rest = items[view.open_blocks :]
    advanced = any(
        isinstance(item, (TensorView, RuntimeIndex)) or (isinstance(item, Index) and item.ndim > 0)
        for item in rest
    )
    basic = any(isinstance(item, (slice, DynamicSlice)) for item in rest)
    if advanced and basic:
        fail(
            indexing.mixed_indexing(
                "slices and nl.arange/nl.mgrid indices are mixed in one subscript."
            )
        )
    if not advanced:
        return _basic(chosen, rest)
    if any(isinstance(item, Index) and item.ndim == 1 for item in rest):
        fail(indexing.one_dimensional_arange())
    if chosen.open_blocks:
        fail(operands.not_a_tile(repr(view), "not every block dimension is chosen"))
    if len(rest) < len(chosen.tile_shape):
        rest = _completed(rest, chosen.tile_shape)
    return _advanced(chosen, rest)


def _expand(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Replaces `...` by the slices it stands for."""
    at = next((n for n, item in enumerate(items) if item is Ellipsis), None)
    if at is None:
        return items
    given = sum(1 for item in items if item is not None) - 1
    return (*items[:at], *(slice(None),) * (ndim - given), *items[at + 1 :])


def _with_new_axes(view: TensorView, items: tuple[Any, ...]) -> TensorView:
    """`t[:, None, :]`: the subscript without None, then the new axes."""
    kept = subscript(view, tuple(item for item in items if item is not None))
    position = 0
    for item in items:
        if item is None:
            kept = kept.expand_dims(position)
            position += 1
        elif isinstance(item, (slice, DynamicSlice)):
            position += 1
    return kept


def _completed(rest: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Missing trailing dimensions taken whole, as axes after those of the given indices."""
    tail = shape[len(rest) :]
    shapes = [item.shape for item in rest if isinstance(item, (Index, TensorView))]
    rank = len(broadcast_shapes(*shapes))
    total = rank + len(tail)
    lifted: list[Any] = []
    for item in rest:
        if isinstance(item, TensorView) or (isinstance(item, Index) and item.shape):
            for _ in tail:
                item = item.expand_dims(item.ndim)
        lifted.append(item)
    for at, size in enumerate(tail):
        position = rank + at - total
        axis = tuple(size if k == rank + at else 1 for k in range(total))
        lifted.append(Index(tile_axis(position, size), axis))
    return tuple(lifted)


# Block dimensions.


def _choose_blocks(view: TensorView, items: tuple[Any, ...]) -> TensorView:
    if not view.open_blocks:
        return view
    block = list(view.block)
    places = [at for at, index in enumerate(block) if index is None]
    kept: list[int] = []
    bounds = view.bounds
    for number, at in enumerate(places):
        item = items[number] if number < len(items) else slice(None)
        size = view.storage.shape[at]
        scalar = scalar_of(item)
        if scalar is not None:
            scalar = _from_end(scalar, size)
            bounds += _scalar_bound(scalar, size, number)
            block[at] = scalar
        elif isinstance(item, slice) and item.indices(size) == (0, size, 1):
            kept.append(size)
        else:
            fail(
                operands.not_a_tile(
                    repr(view), "a block dimension is indexed by more than one number"
                )
            )
    return view.replaced(block=tuple(block), shape=(*kept, *view.tile_shape), bounds=bounds)


# Basic indexing: numbers, loop indices, slices.


def _basic(view: TensorView, items: tuple[Any, ...]) -> TensorView:
    tile: list[tuple[int, int]] = []
    offset = view.offset
    ranges: list[tuple[Affine, int, int, int]] = []
    pending = list(_kept_bounds(view, items))
    rank = len(view.tile_shape)
    for at, (size, stride) in enumerate(zip(view.tile_shape, view.strides, strict=True)):
        item = items[at] if at < len(items) else slice(None)
        scalar = scalar_of(item)
        if scalar is not None:
            scalar = _from_end(scalar, size)
            pending += _scalar_bound(scalar, size, at)
            offset = offset + scalar * stride
            last = at == rank - 1 and len(tile) < 2
            if view.on_chip and (at == 0 or last):
                tile.append((1, stride))  # on-chip rank never drops below two (S6)
            continue
        start, length, step = _slice_parts(item, size)
        if view.on_chip and at == 0 and step != 1:
            fail(_partition_step())
        low, high = start.bounds
        if low < 0 or high + (length - 1) * step >= size:
            ranges.append((start, size, step, len(tile)))
        offset = offset + start * stride
        tile.append((length, stride * step))
    for start, size, step, axis in ranges:
        expression = start + tile_axis(axis - len(tile), tile[axis][0]) * step
        pending.append(Bound(expression, size, axis))
    return view.replaced(
        shape=(*view.shape[: view.open_blocks], *(size for size, _ in tile)),
        offset=offset,
        strides=tuple(stride for _, stride in tile),
        bounds=tuple(pending),
    )


def _from_end(index: Affine, size: int) -> Affine:
    """Python's negative constants count from the end."""
    return index + size if index.is_constant and -size <= index.constant < 0 else index


def _slice_parts(item: Any, size: int) -> tuple[Affine, int, int]:
    """Start, length and step of a slice or dynamic slice."""
    if isinstance(item, DynamicSlice):
        start = scalar_of(item.start)
        if start is None:
            mend = "Pass a number or a loop index."
            fail(KernelTypeError("dynamic_slice", "nl.ds starts from neither.", mend))
        return start, item.size, 1
    if not isinstance(item, slice):
        mend = "Use numbers, loop indices, slices, nl.ds, nl.arange or nl.mgrid."
        kind = type(item).__name__
        fail(KernelTypeError("index_type", f"a tensor cannot be indexed with {kind}.", mend))
    step = 1 if item.step is None else int(item.step)
    start = Affine() if item.start is None else scalar_of(item.start)
    stop = Affine(size) if item.stop is None else scalar_of(item.stop)
    if isinstance(item.start, Extremum) or isinstance(item.stop, Extremum):
        fail(_variable_slice())
    if start is None or stop is None:
        fail(KernelTypeError("slice_bounds", "slice bounds must be numbers or loop indices."))
    if item.start is not None:
        start = _from_end(start, size)
    if item.stop is not None:
        stop = _from_end(stop, size)
    span = stop - start
    if not span.is_constant:
        fail(_variable_slice())
    length = -(-span.constant // step)
    if length <= 0:
        fail(KernelValueError("empty_slice", f"a slice selects {length} elements."))
    return start, length, step


# Advanced indexing: nl.arange, nl.mgrid, run-time indices.


def _advanced(view: TensorView, items: tuple[Any, ...]) -> TensorView:
    shapes = [item.shape for item in items if isinstance(item, (Index, TensorView, RuntimeIndex))]
    shape = broadcast_shapes(*shapes) if len(shapes) > 1 else shapes[0]
    offset = view.offset
    strides: dict[int, int] = {}
    indirect = list(view.indirect)
    pending = list(_kept_bounds(view, items))
    for at, (item, size, stride) in enumerate(
        zip(items, view.tile_shape, view.strides, strict=True)
    ):
        if isinstance(item, TensorView):
            leading = _only_numbers(items[:at])
            indirect.append(_runtime_index(view, item, at, size, stride, leading))
            continue
        runtime = isinstance(item, RuntimeIndex)
        if runtime:
            leading = _only_numbers(items[:at])
            indirect.append(_runtime_index(view, item.tile, at, size, stride, leading))
            item = item.index
        affine = item.affine if isinstance(item, Index) else _from_end(Affine(int(item)), size)
        low, high = affine.bounds
        if not runtime and (low < 0 or high >= size):
            pending.append(Bound(affine, size, at))
        rest, coefficients = affine.split()
        if any(axis.position not in coefficients for axis in affine.axes):
            mend = "Use more axes instead: nl.arange(a)[:, None, None] and so on."
            problem = "an nl.arange index is divided or taken modulo."
            fail(KernelSyntaxError("non_affine_index", problem, mend))
        offset = offset + rest * stride
        for position, coefficient in coefficients.items():
            _check_partition_axis(view, at, position, coefficient, shape)
            strides[position] = strides.get(position, 0) + coefficient * stride
    return view.replaced(
        shape=shape,
        offset=offset,
        strides=tuple(strides.get(axis - len(shape), 0) for axis in range(len(shape))),
        bounds=tuple(pending),
        indirect=tuple(indirect),
    )


def _only_numbers(items: tuple[Any, ...]) -> bool:
    """True when these dimensions are gone: a run-time index after them stands on the first."""
    return all(
        scalar_of(item) is not None or (isinstance(item, Index) and math.prod(item.shape) == 1)
        for item in items
    )


def _check_partition_axis(
    view: TensorView, at: int, position: int, coefficient: int, shape: tuple[int, ...]
) -> None:
    if not view.on_chip or shape[position] == 1:
        return
    if (at == 0) != (position == -len(shape)):
        fail(
            operands.not_a_tile(repr(view), "the partition axis of the index is not its first axis")
        )
    if at == 0 and coefficient != 1:
        fail(_partition_step())


def _runtime_index(
    view: TensorView, index: TensorView, at: int, size: int, stride: int, leading: bool
) -> Indirect:
    """An index that is read from SBUF while the kernel runs (S12)."""
    if index.dtype.kind not in "iu":
        mend = "Convert it with dtype=nl.int32."
        problem = f"a run-time index must be integer, not {index.dtype}."
        fail(KernelTypeError("indirect_index_dtype", problem, mend))
    if not index.on_chip:
        fail(operands.wrong_memory("index", repr(index), "SBUF", "nl.load it first."))
    vector = all(n == 1 for n in index.tile_shape[1:])
    if not vector:
        fail(indexing.runtime_index_on_free_dimension(f"has shape {index.tile_shape}"))
    if not view.on_chip and not leading:
        fail(indexing.runtime_index_on_free_dimension(f"stands on dimension {at}"))
    return Indirect(index.access(), stride, size)


# Shared.


def scalar_of(item: Any) -> Affine | None:
    """The item as one number per iteration, or None when it selects several elements."""
    if isinstance(item, (bool, np.bool_)):
        return None
    if isinstance(item, (int, np.integer)):
        return Affine(int(item))
    if isinstance(item, Index) and not item.shape:
        return item.affine
    return None


def _scalar_bound(index: Affine, size: int, dimension: int) -> tuple[Bound, ...]:
    """What is left to prove about a number or loop index used on a dimension."""
    low, high = index.bounds
    return () if low >= 0 and high < size else (Bound(index, size, dimension),)


def _kept_bounds(view: TensorView, items: tuple[Any, ...]) -> tuple[Bound, ...]:
    """Bounds pending from an earlier subscript. Those of axes cannot move to a new subscript,
    so taking less than everything makes them an error now."""
    whole_view = all(isinstance(item, slice) and item == slice(None) for item in items)
    for bound in view.bounds:
        if bound.expression.axes and not whole_view:
            low, high = bound.expression.bounds
            fail(indexing.out_of_bounds(repr(view), bound.dimension, low, high, bound.size))
    return view.bounds


def _variable_slice() -> KernelError:
    return KernelAssertionError(
        "variable_slice",
        "slice with variable size is not supported.",
        "Use a constant length, nl.ds(start, size), and a mask for the last tile.",
    )


def _partition_step() -> KernelError:
    return KernelError(
        "partition_stride",
        "the partition dimension is indexed with a step.",
        "Index partitions with step 1.",
    )
