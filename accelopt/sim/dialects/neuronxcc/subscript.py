"""What a subscript of a tensor selects: block dimensions, basic and advanced indices, run-time
indices.

Sources: SDK 2.26.1 `nki/programming_model.rst` "Tensor indexing" and the error reference; the
numbers S5, S6, S9 to S12 are those of the reference `nki-api.md`.
"""

from __future__ import annotations

import math
from types import EllipsisType, NoneType
from typing import Any

import numpy as np

from accelopt.sim.access import Indirect
from accelopt.sim.affine import Affine
from accelopt.sim.dialects.neuronxcc.builder import fail
from accelopt.sim.dialects.neuronxcc.index import TileIndex, broadcast_shapes, tile_axis
from accelopt.sim.dialects.neuronxcc.index_min_max import Extremum
from accelopt.sim.dialects.neuronxcc.tensor import (
    DynamicSlice,
    IndexBound,
    RuntimeIndex,
    TensorView,
    View,
)
from accelopt.sim.errors import (
    KernelAssertionError,
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
)
from accelopt.sim.rules import indexing, operands

Number = int | Affine
"""One number per iteration; plain where no loop index takes part, which is quicker to compute."""

ALL = slice(None)
RANGES = frozenset((slice, DynamicSlice))
PLAIN = RANGES | {int}


def subscript(view: View, key: Any) -> View:
    """`view[key]`."""
    if key is Ellipsis and not view.open_blocks:
        return view.replaced()
    items = key if isinstance(key, tuple) else (key,)
    kinds = set(map(type, items))
    if EllipsisType in kinds:
        items = _expand(items, view.ndim)
    if NoneType in kinds:
        return _with_new_axes(view, items)
    if len(items) > view.ndim:
        fail(KernelSyntaxError("too_many_indices", f"{len(items)} indices for {view!r}."))
    chosen, rest = view, items
    if view.open_blocks:
        chosen, rest = _choose_blocks(view, items), items[view.open_blocks :]
        kinds = set(map(type, rest))
    if kinds <= PLAIN or not _advances(rest):
        return _basic(chosen, rest)
    if not kinds.isdisjoint(RANGES):
        fail(
            indexing.mixed_indexing(
                "slices and nl.arange/nl.mgrid indices are mixed in one subscript."
            )
        )
    if any(isinstance(item, TileIndex) and item.ndim == 1 for item in rest):
        fail(indexing.one_dimensional_arange())
    if chosen.open_blocks:
        fail(operands.not_a_tile(repr(view), "not every block dimension is chosen"))
    if len(rest) < len(chosen.tile_shape):
        rest = _completed(rest, chosen.tile_shape)
    return _advanced(chosen, rest)


def _advances(items: tuple[Any, ...]) -> bool:
    """True when some index has tile axes of its own, or is read at run time."""
    return any(
        isinstance(item, (TensorView, RuntimeIndex))
        or (isinstance(item, TileIndex) and item.ndim > 0)
        for item in items
    )


def _expand(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Replaces `...` by the slices it stands for."""
    at = next(n for n, item in enumerate(items) if item is Ellipsis)
    given = sum(1 for item in items if item is not None) - 1
    return (*items[:at], *(slice(None),) * (ndim - given), *items[at + 1 :])


def _with_new_axes(view: View, items: tuple[Any, ...]) -> View:
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
    while len(rest) < len(shape) and shape[len(rest)] == 1:
        rest = (*rest, 0)  # no axis of its own: a mask for the index stays one for the tile
    tail = shape[len(rest) :]
    if not tail:
        return rest
    shapes = [item.shape for item in rest if isinstance(item, (TileIndex, TensorView))]
    rank = len(broadcast_shapes(*shapes))
    total = rank + len(tail)
    lifted: list[Any] = []
    for item in rest:
        if isinstance(item, TensorView) or (isinstance(item, TileIndex) and item.shape):
            for _ in tail:
                item = item.expand_dims(item.ndim)
        lifted.append(item)
    for at, size in enumerate(tail):
        position = rank + at - total
        axis = tuple(size if k == rank + at else 1 for k in range(total))
        lifted.append(TileIndex(tile_axis(position, size), axis))
    return tuple(lifted)


# Block dimensions.


def _choose_blocks(view: View, items: tuple[Any, ...]) -> View:
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
            block[at] = affine_of(scalar)
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


def _basic(view: View, items: tuple[Any, ...]) -> View:
    shape: list[int] = []
    strides: list[int] = []
    offset, steps = view.offset, 0
    ranges: list[tuple[Number, int, int, int]] = []
    pending = _kept_bounds(view, items)
    rank, given = len(view.tile_shape), len(items)
    for at, (size, stride) in enumerate(zip(view.tile_shape, view.strides, strict=True)):
        item = items[at] if at < given else ALL
        plain = _plain_start(item, size) if type(item) is slice else None
        if plain is not None:
            shape.append((size if item.stop is None else item.stop) - plain)
            strides.append(stride)
            steps += plain * stride
            continue
        start = None if type(item) is slice else scalar_of(item)
        if start is not None:
            start = _from_end(start, size)
            pending += _scalar_bound(start, size, at)
            last = at == rank - 1 and len(shape) < 2
            if view.on_chip and (at == 0 or last):
                shape.append(1)  # on-chip rank never drops below two (S6)
                strides.append(stride)
        else:
            start, length, step = _slice_parts(item, size)
            if step != 1 and view.on_chip and at == 0:
                fail(_partition_step())
            if not _lies_inside(start, (length - 1) * step, size):
                ranges.append((start, size, step, len(shape)))
            shape.append(length)
            strides.append(stride * step)
        if isinstance(start, int):
            steps += start * stride
        else:
            offset = offset + start * stride
    for start, size, step, axis in ranges:
        expression = affine_of(start) + tile_axis(axis - len(shape), shape[axis]) * step
        pending += (IndexBound(expression, size, axis),)
    return type(view)(
        view.storage,
        (*view.shape[: view.open_blocks], *shape),
        view.block,
        offset + steps if steps else offset,
        tuple(strides),
        view.dtype,
        pending,
        view.gathered,
        view.mask,
    )


def _from_end(index: Number, size: int) -> Number:
    """Python's negative constants count from the end."""
    return index + size if isinstance(index, int) and -size <= index < 0 else index


def _plain_start(item: slice, size: int) -> int | None:
    """The start of `a:b` of numbers that lie in order within the dimension, or are left out."""
    start = 0 if item.start is None else item.start
    stop = size if item.stop is None else item.stop
    if item.step is None and type(start) is int and type(stop) is int and 0 <= start < stop <= size:
        return start
    return None


def _slice_parts(item: Any, size: int) -> tuple[Number, int, int]:
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
    start = 0 if item.start is None else scalar_of(item.start)
    stop = size if item.stop is None else scalar_of(item.stop)
    if isinstance(item.start, Extremum) or isinstance(item.stop, Extremum):
        fail(_variable_slice())
    if start is None or stop is None:
        fail(KernelTypeError("slice_bounds", "slice bounds must be numbers or loop indices."))
    start = _from_end(start, size)
    span = _from_end(stop, size) - start
    if not isinstance(span, int):
        if not span.is_constant:
            fail(_variable_slice())
        span = span.constant
    length = -(-span // step)
    if length <= 0:
        fail(KernelValueError("empty_slice", f"a slice selects {length} elements."))
    return start, length, step


# Advanced indexing: nl.arange, nl.mgrid, run-time indices.


def _advanced(view: View, items: tuple[Any, ...]) -> View:
    shapes = [
        item.shape for item in items if isinstance(item, (TileIndex, TensorView, RuntimeIndex))
    ]
    shape = broadcast_shapes(*shapes) if len(shapes) > 1 else shapes[0]
    offset = view.offset
    strides: dict[int, int] = {}
    indirect = list(view.gathered)
    pending = _kept_bounds(view, items)
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
        affine = (
            item.affine if isinstance(item, TileIndex) else affine_of(_from_end(int(item), size))
        )
        if not runtime and not _lies_inside(affine, 0, size):
            pending += (IndexBound(affine, size, at),)
        rest, coefficients = affine.split()
        if not affine.is_affine and any(a.position not in coefficients for a in affine.axes):
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
        bounds=pending,
        gathered=tuple(indirect),
    )


def _only_numbers(items: tuple[Any, ...]) -> bool:
    """True when these dimensions are gone: a run-time index after them stands on the first."""
    return all(
        scalar_of(item) is not None or (isinstance(item, TileIndex) and math.prod(item.shape) == 1)
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


def scalar_of(item: Any) -> Number | None:
    """The item as one number per iteration, or None when it selects several elements."""
    if type(item) is int:
        return item
    if isinstance(item, (slice, bool, np.bool_)):
        return None
    if isinstance(item, (int, np.integer)):
        return int(item)
    if isinstance(item, TileIndex) and not item.shape:
        return item.affine.constant if item.affine.is_constant else item.affine
    return None


def affine_of(number: Number) -> Affine:
    """The number as an expression."""
    return Affine(number) if isinstance(number, int) else number


def _lies_inside(number: Number, span: int, size: int) -> bool:
    """True when number and number + span are in 0..size-1 in every iteration."""
    low, high = (number, number) if isinstance(number, int) else number.bounds
    return low >= 0 and high + span < size


def _scalar_bound(index: Number, size: int, dimension: int) -> tuple[IndexBound, ...]:
    """What is left to prove about a number or loop index used on a dimension."""
    return () if _lies_inside(index, 0, size) else (IndexBound(affine_of(index), size, dimension),)


def _kept_bounds(view: TensorView, items: tuple[Any, ...]) -> tuple[IndexBound, ...]:
    """Bounds pending from an earlier subscript. Those of axes cannot move to a new subscript,
    so taking less than everything makes them an error now."""
    if not view.bounds:
        return ()
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
        "Use a constant length, nl.ds(start, size), and a mask for the last tile, or nl.static_range "
        "for the loop whose index the size depends on: range, too, runs a loop's body once for all iterations.",
    )


def _partition_step() -> KernelError:
    return KernelError(
        "partition_stride",
        "the partition dimension is indexed with a step.",
        "Index partitions with step 1.",
    )
