"""The tensor that kernel code holds: a view of storage that can be indexed, never read."""

from __future__ import annotations

import linecache
import math
from typing import Any

import numpy as np

from accelopt.sim.access import Access, Affine, Indirect, Mask
from accelopt.sim.errors import (
    KernelAssertionError,
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
)
from accelopt.sim.nki.index import Index, MaskExpression, broadcast_shapes, tile_axis
from accelopt.sim.program import Tensor
from accelopt.sim.trace import current

OUT_OF_BOUNDS = "err_tensor_access_out_of_bound"
MIXING = "err_unsupported_mixing_basic_advanced_tensor_indexing"


class Bound:
    """An index of one dimension that may leave it: legal only under a mask that keeps it inside.

    `expression` counts tile axes from the last of a result of `ndim` axes.
    """

    __slots__ = ("dimension", "expression", "size")

    def __init__(self, expression: Affine, size: int, dimension: int) -> None:
        self.expression = expression
        self.size = size
        self.dimension = dimension


class DynamicSlice:
    """nl.ds(start, size): a slice whose start may be a loop index."""

    __slots__ = ("size", "start")

    def __init__(self, start: Any, size: int) -> None:
        self.start = start
        self.size = int(size)


class TensorView:
    """A tensor or part of one. `shape` starts with the block dimensions that are not chosen yet,
    then partition and free dimensions (on-chip) or all dimensions (HBM)."""

    __array_ufunc__ = None
    __array_priority__ = 1000

    def __init__(
        self,
        tensor: Tensor,
        shape: tuple[int, ...],
        block: tuple[Affine | None, ...],
        offset: Affine,
        strides: tuple[int, ...],
        dtype: np.dtype,
        bounds: tuple[Bound, ...] = (),
        indirect: tuple[Indirect, ...] = (),
        mask: Mask | None = None,
    ) -> None:
        self.storage = tensor
        self.block = block
        self.open_blocks = sum(1 for index in block if index is None)
        self.shape = shape
        self.offset = offset
        self.strides = strides
        self.dtype = dtype
        self.bounds = bounds
        self.indirect = indirect
        self.mask = mask or Mask()
        self.updated_in_place = False

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """The shape without open block dimensions."""
        return self.shape[self.open_blocks :]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

    @property
    def buffer(self) -> str:
        """hbm, shared_hbm, sbuf or psum."""
        return self.storage.buffer.value

    @property
    def on_chip(self) -> bool:
        """True in SBUF and PSUM."""
        return self.storage.buffer.on_chip

    @property
    def name(self) -> str:
        """The name it was declared with."""
        return self.storage.name

    def __repr__(self) -> str:
        return f"<{self.buffer} tensor '{self.name}' {self.shape} {self.dtype}>"

    def _replace(self, **changes: Any) -> TensorView:
        values = {
            "tensor": self.storage,
            "shape": self.shape,
            "block": self.block,
            "offset": self.offset,
            "strides": self.strides,
            "dtype": self.dtype,
            "bounds": self.bounds,
            "indirect": self.indirect,
            "mask": self.mask,
        }
        return TensorView(**{**values, **changes})

    # Indexing

    def __getitem__(self, key: Any) -> TensorView:
        if isinstance(key, MaskExpression):
            return self._replace(mask=self.mask & key.mask)
        items = _expand_ellipsis(key if isinstance(key, tuple) else (key,), self.ndim)
        if len(items) > self.ndim:
            raise KernelSyntaxError(
                "too_many_indices",
                f"{len(items)} indices for {self!r}.", "", current().here(),
            )  # fmt: skip
        view = self._choose_blocks(items[: self.open_blocks])
        rest = items[self.open_blocks :]
        advanced = any(
            isinstance(item, TensorView) or (isinstance(item, Index) and item.shape)
            for item in rest
        )
        basic = any(isinstance(item, (slice, DynamicSlice)) for item in rest)
        if advanced and basic:
            raise KernelSyntaxError(
                MIXING,
                "slices and nl.arange/nl.mgrid indices are mixed in one subscript.",
                "Use nl.arange (or nl.mgrid) for every dimension, or slices for every dimension.",
                current().here(),
            )
        if advanced and len(rest) < len(view.tile_shape):
            raise KernelSyntaxError(
                MIXING,
                f"{len(rest)} advanced indices for {len(view.tile_shape)} dimensions of {self!r}.",
                "Give an index for every dimension.",
                current().here(),
            )
        return view._index_advanced(rest) if advanced else view._index_basic(rest)

    def _choose_blocks(self, items: tuple[Any, ...]) -> TensorView:
        block = list(self.block)
        places = [at for at, index in enumerate(block) if index is None]
        kept: list[int] = []
        bounds = self.bounds
        for number, at in enumerate(places):
            item = items[number] if number < len(items) else slice(None)
            size = self.storage.shape[at]
            scalar = _scalar(item)
            if scalar is not None:
                bounds += _scalar_bound(scalar, size, number)
                block[at] = scalar
            elif isinstance(item, slice) and item.indices(size) == (0, size, 1):
                kept.append(size)
            else:
                raise _not_a_tile(self, "a block dimension is indexed by more than one number")
        return self._replace(block=tuple(block), shape=(*kept, *self.tile_shape), bounds=bounds)

    def _index_basic(self, items: tuple[Any, ...]) -> TensorView:
        shape: list[int] = list(self.shape[: self.open_blocks])
        tile: list[tuple[int, int]] = []
        offset = self.offset
        # Bounds of axes that stay whole keep their meaning only if no axis moves.
        bounds: list[tuple[Affine, int, int, int]] = []
        pending = list(_kept_bounds(self, items))
        for at, (size, stride) in enumerate(zip(self.tile_shape, self.strides, strict=True)):
            item = items[at] if at < len(items) else slice(None)
            scalar = _scalar(item)
            if scalar is not None:
                pending += _scalar_bound(scalar, size, at)
                offset = offset + scalar * stride
                last = at == len(self.tile_shape) - 1 and len(tile) < 2
                if self.on_chip and (at == 0 or last):
                    tile.append((1, stride))
                continue
            start, length, step = _slice_parts(item, size)
            if self.on_chip and at == 0 and step != 1:
                raise KernelError(
                    "partition_stride", "the partition dimension cannot be sliced with a step.",
                    "Slice partitions with step 1.", current().here(),
                )  # fmt: skip
            low, high = start.bounds
            if low < 0 or high + (length - 1) * step >= size:
                bounds.append((start, size, step, len(tile)))
            offset = offset + start * stride
            tile.append((length, stride * step))
        for start, size, step, axis in bounds:
            position = axis - len(tile)
            expression = start + tile_axis(position, tile[axis][0]) * step
            pending.append(Bound(expression, size, axis))
        shape += [size for size, _ in tile]
        return self._replace(
            shape=tuple(shape),
            offset=offset,
            strides=tuple(stride for _, stride in tile),
            bounds=tuple(pending),
        )

    def _index_advanced(self, items: tuple[Any, ...]) -> TensorView:
        if self.open_blocks:
            raise _not_a_tile(self, "not every block dimension is chosen")
        shapes = [item.shape for item in items if isinstance(item, (Index, TensorView))]
        shape = broadcast_shapes(*shapes) if len(shapes) > 1 else shapes[0]
        if any(isinstance(item, Index) and item.ndim == 1 for item in items):
            raise KernelError(
                "err_1d_arange_not_supported",
                "a one-dimensional nl.arange indexes a tensor.",
                "Give it a place: nl.arange(n)[:, None] or nl.arange(n)[None, :].",
                current().here(),
            )
        offset = self.offset
        strides: dict[int, int] = {}
        indirect = list(self.indirect)
        pending = list(_kept_bounds(self, items))
        for at, (item, size, stride) in enumerate(
            zip(items, self.tile_shape, self.strides, strict=True)
        ):
            if isinstance(item, TensorView):
                indirect.append(self._indirect(item, at, size, stride, shape))
                continue
            affine = item.affine if isinstance(item, Index) else Affine(int(item))
            low, high = affine.bounds
            if low < 0 or high >= size:
                pending.append(Bound(affine, size, at))
            rest, coefficients = affine.split()
            if any(axis not in coefficients for axis in _positions(affine)):
                raise KernelSyntaxError(
                    "non_affine_index", "an nl.arange index is divided or taken modulo.",
                    "Use more axes instead: nl.arange(a)[:, None, None] and so on.",
                    current().here(),
                )  # fmt: skip
            offset = offset + rest * stride
            for position, coefficient in coefficients.items():
                if self.on_chip and (at == 0) != (position == -len(shape)) and shape[position] > 1:
                    raise _not_a_tile(self, "the partition axis of the index is not its first axis")
                if self.on_chip and at == 0 and coefficient != 1:
                    raise KernelError(
                        "partition_stride", "the partition dimension is indexed with a stride.",
                        "Index partitions with step 1.", current().here(),
                    )  # fmt: skip
                strides[position] = strides.get(position, 0) + coefficient * stride
        return self._replace(
            shape=shape,
            offset=offset,
            strides=tuple(strides.get(axis - len(shape), 0) for axis in range(len(shape))),
            bounds=tuple(pending),
            indirect=tuple(indirect),
        )

    def _indirect(
        self, index: TensorView, at: int, size: int, stride: int, shape: tuple[int, ...]
    ) -> Indirect:
        if index.dtype.kind not in "iu":
            raise KernelTypeError(
                "indirect_index_dtype", f"a run-time index must be integer, not {index.dtype}.",
                "Convert it with dtype=nl.int32.", current().here(),
            )  # fmt: skip
        if not index.on_chip:
            raise KernelError(
                "err_unsupported_memory", "a run-time index must lie in SBUF.",
                "nl.load it first.", current().here(),
            )  # fmt: skip
        if at != 0 and not self.on_chip and self.tile_shape[:at] != (1,) * at:
            raise KernelError(
                "err_indirect_indices_free_dim",
                "a run-time index is used on a dimension that is not the first.",
                "Index the first (partition or block) dimension with the index tile.",
                current().here(),
            )
        if index.tile_shape[1:] != (1,) * (len(index.tile_shape) - 1):
            raise KernelError(
                "err_indirect_indices_free_dim",
                f"a run-time index must be a (partition, 1) tile, not {index.tile_shape}.",
                "Index it as idx[nl.arange(n)[:, None], 0].",
                current().here(),
            )
        return Indirect(index.access(), stride, size)

    # Shape changes

    def reshape(self, *shape: Any) -> TensorView:
        """Another shape over the same elements (HBM), or over the free dimensions (on-chip)."""
        wanted = tuple(
            int(n) for n in (shape[0] if len(shape) == 1 and not _is_int(shape[0]) else shape)
        )
        if -1 in wanted:
            known = -math.prod(wanted)
            wanted = tuple(math.prod(self.shape) // known if n == -1 else n for n in wanted)
        if math.prod(wanted) != math.prod(self.shape):
            raise KernelValueError(
                "reshape", f"cannot reshape {self.shape} to {wanted}.", "", current().here()
            )
        if self.open_blocks:
            raise _not_a_tile(self, "a block tensor cannot be reshaped")
        if self.on_chip and wanted[0] != self.shape[0]:
            raise KernelValueError(
                "reshape", f"the partition dimension of {self.shape} cannot change to {wanted}.",
                "Only free dimensions can be reshaped on-chip.", current().here(),
            )  # fmt: skip
        strides = reshaped_strides(self.shape, self.strides, wanted)
        if strides is None:
            raise KernelValueError(
                "reshape", f"{self!r} is not contiguous enough to become {wanted}.",
                "Reshape before slicing, or copy it first.", current().here(),
            )  # fmt: skip
        return self._replace(shape=wanted, strides=strides)

    def broadcast_to(self, *shape: Any) -> TensorView:
        """Axes of length 1 repeated, without copying."""
        wanted = tuple(
            int(n) for n in (shape[0] if len(shape) == 1 and not _is_int(shape[0]) else shape)
        )
        try:
            access = self.access().broadcast_to(wanted)
        except ValueError as error:
            raise KernelValueError("broadcast", f"{error}.", "", current().here()) from None
        return self._replace(shape=access.shape, strides=access.strides)

    def expand_dims(self, axis: int) -> TensorView:
        """A new free axis of length 1."""
        at = axis % (self.ndim + 1)
        return self._replace(
            shape=(*self.shape[:at], 1, *self.shape[at:]),
            strides=(*self.strides[:at], 0, *self.strides[at:]),
        )

    def view(self, dtype: Any) -> TensorView:
        """The same bytes as another dtype; the last dimension changes with the item size."""
        new = np.dtype(dtype)
        old = self.dtype.itemsize
        if new.itemsize == old:
            return self._replace(dtype=new)
        if self.strides[-1] != 1 or (self.shape[-1] * old) % new.itemsize:
            raise KernelValueError("view", f"cannot view {self!r} as {new}.", "", current().here())
        ratio = old / new.itemsize

        def scaled(value: int) -> int:
            return int(value * ratio)

        offset = Affine(
            scaled(self.offset.constant), tuple((t, scaled(c)) for t, c in self.offset.terms)
        )
        return self._replace(
            dtype=new,
            shape=(*self.shape[:-1], scaled(self.shape[-1])),
            strides=(*(scaled(s) for s in self.strides[:-1]), 1),
            offset=offset,
        )

    def astype(self, dtype: Any) -> TensorView:
        """A copy in another dtype."""
        from accelopt.sim.nki import language

        return language.copy(self, dtype=dtype)

    def assert_shape(self, shape: Any) -> TensorView:
        """Itself, when it has that shape."""
        if tuple(shape) != self.shape:
            raise KernelAssertionError(
                "assert_shape", f"{self!r} does not have shape {tuple(shape)}.", "",
                current().here(),
            )  # fmt: skip
        return self

    # What instructions need

    def access(self, mask: Mask | None = None) -> Access:
        """The tile as an operand. `mask` is the instruction's: indices may leave the tensor only
        where it does not hold."""
        if self.open_blocks:
            raise _not_a_tile(self, "not every block dimension is chosen")
        effective = self.mask & mask if mask is not None else self.mask
        for bound in self.bounds:
            below = effective.upper_bound(bound.expression * -1) > 0
            if below or effective.upper_bound(bound.expression) >= bound.size:
                low, high = bound.expression.bounds
                current().refuse(
                    KernelError(
                        OUT_OF_BOUNDS,
                        f"dimension {bound.dimension} of {self!r} is indexed from {low} to {high}, "
                        f"but has {bound.size} elements.",
                        "Shrink the tile, or give the instruction a mask that excludes the rest.",
                    )
                )
        return Access(
            self.storage,
            self.shape,
            tuple(index for index in self.block if index is not None),
            self.offset,
            self.strides,
            self.dtype,
            self.indirect,
            self.mask,
        )

    # Assignment and arithmetic are instructions; the language module knows them.

    def __setitem__(self, key: Any, value: Any) -> None:
        from accelopt.sim.nki import assignment

        target = self[key]
        if isinstance(value, TensorView) and value.updated_in_place:
            value.updated_in_place = False
            if value.access(value.mask).same_elements(target.access(value.mask)):
                return
        assignment.assign(target, value)

    def __bool__(self) -> bool:
        here = current().here()
        line = linecache.getline(here.file, here.line).strip()
        if line.startswith("while"):
            raise KernelValueError(
                "err_while_loop_requires_unconditional_entry",
                "the condition of a while loop is a tensor.",
                "Loop a fixed number of times and mask the work.", here,
            )  # fmt: skip
        if line.startswith(("if ", "elif ", "assert ")) and " and " not in line:
            raise KernelError(
                "err_dynamic_control_flow_not_supported",
                "a Python condition depends on a tensor's value.",
                "Use masks, nl.where or predicated instructions.", here,
            )  # fmt: skip
        raise KernelValueError(
            "err_ambiguous_tensor_truth_value",
            "the truth value of a tensor is not known while tracing.",
            "Use nl.where or '&', '|', '~' instead of 'and', 'or', 'not'.", here,
        )  # fmt: skip

    def __iter__(self) -> Any:
        raise KernelTypeError(
            "tensor_iteration", "a tensor cannot be iterated over.",
            "Loop over nl.affine_range(t.shape[0]) and index it.", current().here(),
        )  # fmt: skip

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise KernelTypeError(
            "kernel_touches_data", "kernel code never sees data: NumPy cannot read a tensor.",
            "Use nl.* and nisa.* instead of np.* here.", current().here(),
        )  # fmt: skip

    __hash__ = object.__hash__


def whole(tensor: Tensor) -> TensorView:
    """A view of everything."""
    strides: list[int] = []
    step = 1
    for size in reversed(tensor.tile_shape):
        strides.append(step)
        step *= size
    return TensorView(
        tensor,
        tensor.shape,
        (None,) * tensor.block_rank,
        Affine(),
        tuple(reversed(strides)),
        tensor.dtype,
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


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _expand_ellipsis(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    at = next((n for n, item in enumerate(items) if item is Ellipsis), None)
    if at is None:
        return items
    return (*items[:at], *(slice(None),) * (ndim - len(items) + 1), *items[at + 1 :])


def _scalar(item: Any) -> Affine | None:
    """The item as one number per iteration, or None when it selects several elements."""
    if isinstance(item, (bool, np.bool_)):
        return None
    if isinstance(item, (int, np.integer)):
        return Affine(int(item))
    if isinstance(item, Index) and not item.shape:
        return item.affine
    return None


def _positions(affine: Affine) -> set[int]:
    return {axis.position for axis in affine.axes}


def _scalar_bound(index: Affine, size: int, dimension: int) -> tuple[Bound, ...]:
    """What is left to prove about a number or loop index used on a dimension."""
    low, high = index.bounds
    return () if low >= 0 and high < size else (Bound(index, size, dimension),)


def _slice_parts(item: Any, size: int) -> tuple[Affine, int, int]:
    """Start, length and step of a slice or dynamic slice."""
    if isinstance(item, DynamicSlice):
        start = _scalar(item.start)
        if start is None:
            raise KernelTypeError(
                "dynamic_slice", "nl.ds needs a number or loop index to start from.", "",
                current().here(),
            )  # fmt: skip
        return start, item.size, 1
    if not isinstance(item, slice):
        raise KernelTypeError(
            "index_type", f"a tensor cannot be indexed with {type(item).__name__}.",
            "Use numbers, loop indices, slices, nl.ds, nl.arange or nl.mgrid.", current().here(),
        )  # fmt: skip
    step = 1 if item.step is None else int(item.step)
    start = Affine() if item.start is None else _scalar(item.start)
    stop = Affine(size) if item.stop is None else _scalar(item.stop)
    if start is None or stop is None:
        raise KernelTypeError(
            "slice_bounds", "slice bounds must be numbers or loop indices.", "", current().here()
        )
    span = stop - start
    if not span.is_constant:
        raise KernelAssertionError(
            "variable_slice", "slice with variable size is not supported.",
            "Use a constant length, nl.ds(start, size), and a mask for the last tile.",
            current().here(),
        )  # fmt: skip
    length = -(-span.constant // step)
    if length <= 0:
        raise KernelValueError(
            "empty_slice", f"a slice selects {length} elements.", "", current().here()
        )
    return start, length, step


def _kept_bounds(view: TensorView, items: tuple[Any, ...]) -> tuple[Bound, ...]:
    """Bounds pending from an earlier subscript. Those of axes cannot move to a new subscript,
    so taking less than everything makes them an error now."""
    whole_view = all(isinstance(item, slice) and item == slice(None) for item in items)
    for bound in view.bounds:
        if bound.expression.axes and not whole_view:
            raise KernelError(
                OUT_OF_BOUNDS,
                f"{view!r} reaches outside of its tensor and is indexed again.",
                "Index the tensor once, with the mask on the instruction.",
                current().here(),
            )
    return view.bounds


def _not_a_tile(view: TensorView, reason: str) -> KernelError:
    return KernelError(
        "err_failed_to_infer_tile_from_local_tensor",
        f"{view!r} is not a tile: {reason}.",
        "Index every block dimension with a number or loop index first.",
        current().here(),
    )
