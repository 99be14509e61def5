"""NkiTensor: a tensor or part of one, as the `nki` package has it.

Storage and a strided view of it, at most the partition axis and four free axes; no block dimensions,
no masks, no operators. Source: SDK 2.32 `nki/api/nki/language` (class NkiTensor), the language guide
and `nki/deep-dives/nki-aps.rst`.
"""

from __future__ import annotations

import math
import sys
from typing import Any, TypeVar

import numpy as np

from accelopt.algorithm.linear import row_major
from accelopt.hardware import TARGETS
from accelopt.sim.access import Indirect
from accelopt.sim.affine import Affine
from accelopt.sim.call_sites import asks_whether_it_is_there
from accelopt.sim.dialects.neuronxcc.builder import fail
from accelopt.sim.dialects.neuronxcc.index import MaskExpression, TileIndex
from accelopt.sim.dialects.neuronxcc.neuronxcc_tensor import NeuronxccTensor
from accelopt.sim.dialects.neuronxcc.poison import POISON
from accelopt.sim.dialects.neuronxcc.subscript import subscript
from accelopt.sim.dialects.neuronxcc.tensor import DynamicSlice, IndexBound, TensorView, whole
from accelopt.sim.dialects.nki import versions
from accelopt.sim.dialects.nki.call_conventions import element_of
from accelopt.sim.dialects.nki.overlapping_tiles import place_of
from accelopt.sim.dialects.nki.registers import VirtualRegister, is_known, offset_of
from accelopt.sim.errors import KernelError, KernelTypeError, KernelValueError
from accelopt.sim.isa.limits import SHARING
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "mod": "%", "and": "&",
    "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "floordiv": "//", "matmul": "@",
}  # fmt: skip
_OTHERS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neg": "-", "invert": "~"}
COMPARISONS = frozenset({"<", "<=", ">", ">="})
COMPUTED = "Call nisa.tensor_tensor(dst, ...) or nl.add and its like."
COMPARED = (
    "Call nl.greater and its like for a tile of truth values. Python runs while the kernel is "
    "compiled and cannot branch on them: select with nl.where, or loop on the device with "
    "nl.while_loop and a register."
)
T = TypeVar("T", bound=type)


def without_operators(kind: T) -> T:
    """`kind` with all operators refused, but for equality, which is identity. Source: SDK 2.32, language guide."""
    for name, sign in _BINARY.items():
        for form, shown in (("", sign), ("r", sign), ("i", f"{sign}=")):
            setattr(kind, f"__{form}{name}__", _refused(shown))
    for name, sign in _OTHERS.items():
        setattr(kind, f"__{name}__", _refused(sign))
    for name in ("__eq__", "__ne__", "__hash__"):
        setattr(kind, name, getattr(object, name))
    return kind


def _refused(name: str) -> Any:
    def method(*_: Any) -> Any:
        fail(
            KernelTypeError(
                "tensor_operator",
                f"nki tensors have no operator {name}.",
                COMPARED if name in COMPARISONS else COMPUTED,
            )
        )

    return method


@without_operators
class NkiTensor(NeuronxccTensor):
    """A strided view of a tensor in SBUF, PSUM or HBM."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def buffer(self) -> Any:
        """Its memory: nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm."""
        from accelopt.sim.dialects.nki.language.memories import REGIONS

        return REGIONS[self.storage.buffer]

    @property
    def data(self) -> NkiTensor:
        """Itself: what a grid has, too (NKI 0.7)."""
        return self

    @property
    def address(self) -> tuple[int, int] | None:
        """(partition, byte) of a tensor that was given its place."""
        place = place_of(self.storage)
        return None if place is None else (place.first, place.begin)

    @property
    def base_tensor(self) -> NkiTensor:
        """What this is a view of; undocumented, the vendor's gate_up_projection_mx.py asks for it."""
        own = whole(self.storage)
        return subscript(own, current().rank) if self.storage in current().parts else own  # type: ignore[return-value]

    @property
    def _part(self) -> tuple[int, int]:
        """Where what this rank has of the storage begins, and its size, in elements of the storage."""
        part = current().parts.get(self.storage)
        return (
            (0, math.prod(self.storage.tile_shape))
            if part is None
            else (current().rank * part, part)
        )

    def is_contiguous(self) -> bool:
        """True when the elements follow one another; on-chip, those of each partition."""
        first = 1 if self.on_chip else 0
        pairs = [(n, s) for n, s in zip(self.shape, self.strides, strict=True)][first:]
        long = [(n, s) for n, s in pairs if n != 1]
        return tuple(s for _, s in long) == row_major(tuple(n for n, _ in long))

    def get_pattern(self) -> list[list[int]]:
        """[[stride, count], ...] of every dimension."""
        return [[stride, size] for size, stride in zip(self.shape, self.strides, strict=True)]

    def is_indirect(self) -> bool:
        """True when part of its address is read at run time."""
        return bool(self.gathered)

    def __bool__(self) -> bool:
        """True for a tensor in HBM, and for a tile that might have been None: it is there, as any object
        (the vendor's library asks `if tensor`). Whoever asks for another tile wants its values, which
        are not known here."""
        return not self.on_chip or asks_whether_it_is_there(sys._getframe(1)) or super().__bool__()

    # Views.

    def __getitem__(self, key: Any) -> NkiTensor:
        items = key if isinstance(key, tuple) else (key,)
        self._check_viewed()
        at = next((n for n, item in enumerate(items) if _register_of(item) is not None), None)
        if at is not None and Ellipsis not in items[:at]:
            return self._from_register(items, at)
        for item in items:
            if item is None or isinstance(item, (TensorView, MaskExpression, np.ndarray, list)):
                fail(_not_an_index(item))
            if isinstance(item, TileIndex) and item.shape:
                fail(_not_an_index(item))
        tracer = current()
        try:
            view = subscript(self, key)
        except KernelError as error:
            if not tracer.collecting:
                raise
            tracer.collect(error)
            return POISON  # type: ignore[return-value]
        if not view.shape:  # HBM views keep one dimension
            view = view.replaced(shape=(1,), strides=(1,))
        return view  # type: ignore[return-value]

    def __setitem__(self, key: Any, value: Any) -> None:
        """`x[...] = tile`: a copy within on-chip memory, a DMA where one side lies in HBM."""
        target = self[key]
        tiles = [view for view in (target, value) if isinstance(view, TensorView)]
        if len(tiles) == 2 and not all(view.on_chip for view in tiles):
            from accelopt.sim.dialects.nki.isa.transfers import dma_copy

            dma_copy(target, value)
        else:
            super().__setitem__(key, value)

    def slice(self, dim: int, start: Any, end: Any, step: int = 1) -> NkiTensor:
        """Elements start to end (exclusive) along one dimension."""
        return self[self._along(dim, slice(start, end, step))]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """One element along a dimension, which goes; a (1, 1) tile gives the index at run time."""
        at = self._dimension(dim)
        index = offset_of(index)
        if not isinstance(index, TensorView):
            return self[self._along(dim, index)]
        self._check_direct()
        if self.on_chip and at == 0:
            fail(KernelValueError("select", "a run-time index cannot select a partition."))
        rest = [n for n in range(self.ndim) if n != at]
        chosen = self._picked(rest)
        return chosen._with_scalar(index, self.strides[at], self.shape[at])

    def vector_select(self, dim: int, vector_offset: TensorView) -> NkiTensor:
        """Dimension 0 of a tensor in HBM by one run-time index a partition."""
        self._check_direct()
        if dim != 0 or self.on_chip:
            said = "vector_select works on dimension 0 of a tensor in HBM."
            fail(KernelValueError("vector_select", said))
        shape = (vector_offset.shape[0], *self.shape[1:])
        view = self.replaced(shape=shape, strides=(0, *self.strides[1:]))
        return view._with_vector(vector_offset, self.strides[0], self.shape[0])

    def permute(self, dims: Any) -> NkiTensor:
        """The dimensions in another order; on-chip the partitions stay first."""
        order = tuple(int(n) for n in dims)
        if sorted(order) != list(range(self.ndim)):
            said = f"permute{order} is no order of {self.ndim} dimensions."
            fail(KernelValueError("permute", said))
        if (self.on_chip or self.gathered) and order[0] != 0:
            fail(_partition_moves("permute"))
        return self._picked(order)

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """A dimension of length 1 repeated, without copying."""
        at = self._single(dim, "broadcast")
        return self._dims(at, ((int(size), 0),))

    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dimension of length 1."""
        return self.expanded(dim)

    def expanded(self, dim: int) -> NkiTensor:
        """What `nl.expand_dims` returns, which every version has."""
        at = int(dim) % (self.ndim + 1)
        if self.on_chip and at == 0:
            fail(_partition_moves("expand_dim"))
        pairs = list(zip(self.shape, self.strides, strict=True))
        return self._of([*pairs[:at], (1, 0), *pairs[at:]])

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Without a dimension of length 1."""
        at = self._single(dim, "squeeze_dim")
        return self._dims(at, ())

    def reshape_dim(self, dim: int, shape: Any) -> NkiTensor:
        """One dimension split into several; one of them may be -1."""
        at = self._dimension(dim)
        sizes = tuple(int(n) for n in shape)
        if -1 in sizes:
            known = max(-math.prod(sizes), 1)
            sizes = tuple(self.shape[at] // known if n == -1 else n for n in sizes)
        if math.prod(sizes) != self.shape[at]:
            said = f"dimension {dim} of {self.shape} does not split into {sizes}."
            fail(KernelValueError("reshape_dim", said))
        if self.on_chip and at == 0 and len(sizes) > 1:
            fail(_partition_moves("reshape_dim"))
        steps = (step * self.strides[at] for step in row_major(sizes))
        return self._dims(at, tuple(zip(sizes, steps, strict=True)))

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Dimensions start to end (inclusive), which must follow one another, as one."""
        first, last = self._dimension(start_dim), self._dimension(end_dim)
        if self.on_chip and first == 0 and last > 0:
            fail(_partition_moves("flatten_dims"))
        merged = math.prod(self.shape[first : last + 1])
        return self.reshape((*self.shape[:first], merged, *self.shape[last + 1 :]))

    def rearrange(
        self, src_pattern: Any, dst_pattern: Any, fixed_sizes: dict[str, int] | None = None
    ) -> NkiTensor:
        """Dimensions split, reordered and merged by name: a tuple of names, or of tuples of names."""
        sizes = dict(fixed_sizes or {})
        view: NkiTensor = self
        names: list[str] = []
        for group, size in zip(src_pattern, self.shape, strict=True):
            parts = (group,) if isinstance(group, str) else tuple(group)
            inner = tuple(sizes.get(name, -1) for name in parts) if len(parts) > 1 else (size,)
            view = view.reshape_dim(len(names), inner)
            names += parts
        flat = [n for g in dst_pattern for n in ((g,) if isinstance(g, str) else g)]
        view = view.permute(tuple(names.index(name) for name in flat))
        for at, group in enumerate(dst_pattern):
            if not isinstance(group, str) and len(group) > 1:
                view = view.flatten_dims(at, at + len(group) - 1)
        return view

    def ap(
        self,
        pattern: Any,
        offset: Any = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """[[stride, count], ...] over the storage, whatever this view's shape: counts are the shape.
        `offset` counts from the storage's first element; left out, the view begins where this one does
        (language guide, `.ap()`). Run-time offsets count along `indirect_dim` of this view's shape.
        Strides and offset are in elements of `dtype`."""
        if scalar_offset is not None and vector_offset is not None:
            said = "an access pattern has both scalar_offset and vector_offset."
            fail(KernelValueError("access_pattern", said, "Give one of them."))
        element = self.dtype if dtype is None else element_of(dtype)
        old, new = self.dtype.itemsize, element.itemsize
        if offset is not None:
            start = number_or_index(offset) + self._part[0] * old // new
        else:
            start = self.offset * old // new
        pairs = [(int(count), int(stride)) for stride, count in pattern]
        if vector_offset is not None and pairs:
            pairs[0] = (pairs[0][0], 0)  # read from the tensor's shape (nki-aps.rst)
        elif self.on_chip:
            self._check_partition_step(pairs, new)
        view = self._of(pairs, offset=start, dtype=element, bounds=())
        along = int(indirect_dim)
        step = math.prod(self.shape[along + 1 :]) * old // new
        if scalar_offset is not None and is_known(scalar_offset):
            moved = view.offset + number_or_index(scalar_offset) * step
            view = view.replaced(offset=moved)  # type: ignore[assignment]
        elif scalar_offset is not None:
            return view._with_scalar(scalar_offset, step, self.shape[along])
        if vector_offset is not None:
            return view._with_vector(vector_offset, step, self.shape[along])
        return view._within_reach()

    def view(self, dtype: Any) -> NkiTensor:
        """The same bytes in another format; the last dimension changes with the element's size."""
        self._check_viewed()
        return super().view(element_of(dtype))  # type: ignore[return-value]

    reinterpret_cast = view

    def indirect(self, index: Any, num_elem: Any = None) -> NkiTensor:
        """(P, num_elem): elements of this tile's free dimensions at offsets that an integer tile (P, K) in SBUF
        holds (NeuronCore-v4). Groups of 16 partitions, on the Tensor engine 32, share them: offset i is
        `index[i % 16, i // 16]` of each. Offsets are of integer formats and count elements of a tile whose
        free dimensions follow one another (assumed)."""
        if TARGETS[current().target].generation < 4:
            fail(operands.needs_indirection(current().target))
        self._check_direct()
        tile = _runtime_tile(index)
        rows, free, given = tile.shape[0], math.prod(self.shape[1:]), math.prod(tile.shape)
        count = given if num_elem is None else int(num_elem)
        if not self.on_chip or tile.in_psum or rows != self.shape[0] or not self.is_contiguous():
            said = f"of {self!r} by {tile!r} is not of a tile whose free dimensions follow one another, by one "
            fail(KernelValueError("indirect", f".indirect {said}in SBUF of as many partitions."))
        if not 1 <= count <= given:
            said = f"num_elem={count} is not one of 1 to {given}, the offsets of {tile!r}."
            fail(KernelValueError("indirect", said))
        flat = tile.reshape((rows, math.prod(tile.shape[1:]))).access()
        view = self._of([(rows, self.strides[0]), (count, 0)], bounds=())
        return view.replaced(gathered=(Indirect(flat, 1, free, SHARING),))  # type: ignore[return-value]

    # Parts of the above.

    def _from_register(self, items: tuple[Any, ...], at: int) -> NkiTensor:
        """This view indexed with a register, or a slice that starts at one."""
        item = items[at]
        rest = 0 if isinstance(item, VirtualRegister) else slice(0, item.size)
        view = self.__getitem__((*items[:at], rest, *items[at + 1 :]))
        self._check_direct()
        if self.on_chip and at == 0:
            fail(KernelValueError("select", "a run-time index cannot select a partition."))
        return view._with_scalar(_register_of(item), self.strides[at], self.shape[at])

    def _along(self, dim: int, item: Any) -> tuple[Any, ...]:
        at = self._dimension(dim)
        return (slice(None),) * at + (item,)

    def _dimension(self, dim: int) -> int:
        if not -self.ndim <= int(dim) < self.ndim:
            fail(KernelValueError("dimension", f"{self!r} has no dimension {dim}."))
        return int(dim) % self.ndim

    def _single(self, dim: int, name: str) -> int:
        """A dimension of length 1 that is not that of the partitions."""
        at = self._dimension(dim)
        if self.on_chip and at == 0:
            fail(_partition_moves(name))
        if self.shape[at] != 1:
            said = f"dimension {dim} of {self.shape} has length {self.shape[at]}, not 1."
            fail(KernelValueError(name, said))
        return at

    def _of(self, pairs: Any, **changes: Any) -> NkiTensor:
        self._check_viewed()
        shape, strides = zip(*pairs, strict=True) if pairs else ((), ())
        return self.replaced(shape=tuple(shape), strides=tuple(strides), **changes)  # type: ignore[return-value]

    def _picked(self, order: Any) -> NkiTensor:
        return self._of([(self.shape[n], self.strides[n]) for n in order])

    def _dims(self, at: int, new: tuple[tuple[int, int], ...]) -> NkiTensor:
        pairs = list(zip(self.shape, self.strides, strict=True))
        return self._of([*pairs[:at], *new, *pairs[at + 1 :]])

    def _check_direct(self) -> None:
        if self.gathered:
            said = f"{self!r} already has a run-time index."
            fail(KernelValueError("run_time_index", said, "Only one is possible."))

    def _check_viewed(self) -> None:
        if self.gathered and any(item.group for item in self.gathered):
            said = f"{self!r} is gathered by .indirect, and has no views."
            fail(KernelValueError("indirect", said, "View the tile, or what is copied from it."))

    def _check_partition_step(self, pairs: list[tuple[int, int]], itemsize: int) -> None:
        row = self.storage.partition_bytes // itemsize
        if pairs and pairs[0][0] > 1 and pairs[0][1] != row:
            said = (
                f"the first stride {pairs[0][1]} of a pattern on-chip is not the row length {row}."
            )
            fail(KernelValueError("partition_stride", said, "Partitions follow one another."))

    def _within_reach(self) -> NkiTensor:
        """The pattern; one that leaves its storage may not be used."""
        first, size = (n * self.storage.dtype.itemsize // self.dtype.itemsize for n in self._part)
        low, high = (end - first for end in self.access().reach)
        outside = [Affine(end) for end in (low, high) if not 0 <= end < size]
        bounds = tuple(IndexBound(end, size, None) for end in outside)
        return self.replaced(bounds=bounds) if bounds else self  # type: ignore[return-value]

    def _with_scalar(self, index: Any, stride: int, size: int) -> NkiTensor:
        """Displaced by a (1, 1) tile's value times the stride."""
        tile = _runtime_tile(offset_of(index))
        if math.prod(tile.tile_shape) != 1:
            said = f"scalar_offset has shape {tile.shape}, not (1, 1)."
            fail(KernelValueError("scalar_offset", said))
        return self._displaced(tile, (1,) * max(self.ndim, 2), stride, size)

    def _with_vector(self, index: Any, stride: int, size: int) -> NkiTensor:
        """Each partition displaced by its own index."""
        tile = _runtime_tile(index)
        if tile.free_elements != 1 or tile.tile_shape[0] != self.shape[0]:
            said = f"vector_offset of shape {tile.shape} for {self.shape[0]} rows is not (rows, 1)."
            fail(KernelValueError("vector_offset", said))
        if self.on_chip:
            mend = "Gather within partitions with nisa.nc_n_gather."
            fail(operands.wrong_memory("vector_offset's tensor", repr(self), "HBM", mend))
        return self._displaced(tile, (tile.tile_shape[0], *(1,) * (self.ndim - 1)), stride, size)

    def _displaced(
        self, index: TensorView, shape: tuple[int, ...], stride: int, size: int
    ) -> NkiTensor:
        step = index.strides[0] if len(shape) > 1 and shape[0] > 1 else 0
        spread = index.replaced(shape=shape, strides=(step, *(0,) * (len(shape) - 1)))
        item = Indirect(spread.access(), stride, size)
        return self.replaced(gathered=(*self.gathered, item), bounds=())  # type: ignore[return-value]


for _name, _member in versions.changed("NkiTensor", vars(NkiTensor)).items():
    setattr(NkiTensor, _name, _member)


def number_or_index(value: Any) -> Affine:
    """A number, or what loops make of one, as an affine expression."""
    return value.affine if isinstance(value, TileIndex) else Affine(int(value))


def _register_of(item: Any) -> VirtualRegister | None:
    start = item.start if isinstance(item, DynamicSlice) else item
    return start if isinstance(start, VirtualRegister) else None


def _runtime_tile(index: Any) -> TensorView:
    if not isinstance(index, TensorView):
        mend = "Pass a tile in SBUF or a register."
        fail(operands.operand_type("offset", type(index).__name__, mend))
    if not index.on_chip:
        fail(operands.wrong_memory("offset", repr(index), "SBUF", "nisa.dma_copy it first."))
    if index.dtype.kind not in "iu":
        said = f"a run-time index must be integer, not {index.dtype}."
        fail(KernelTypeError("indirect_index_dtype", said))
    return index


def _not_an_index(item: Any) -> KernelError:
    kind = "None" if item is None else "a tensor" if isinstance(item, TensorView) else type(item)
    return KernelTypeError(
        "index_type",
        f"an nki tensor cannot be indexed with {kind}.",
        "Use numbers, slices and nl.ds; .ap(scalar_offset= or vector_offset=) for run-time indices, "
        ".expand_dim for new dimensions.",
    )


def _partition_moves(name: str) -> KernelError:
    return KernelValueError(
        "partition_dimension",
        f"{name} would move or change the partition dimension of a tile on-chip.",
        "Only free dimensions can; nisa.nc_transpose moves partitions.",
    )


__all__ = ["DynamicSlice", "NkiTensor"]
