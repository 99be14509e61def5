"""The tensor that kernel code holds: a view of storage that can be indexed, never read."""

from __future__ import annotations

import functools
import linecache
from typing import Any, NoReturn

import numpy as np

from accelopt.sim.access import Access, Indirect
from accelopt.sim.affine import ZERO, Affine
from accelopt.sim.call_sites import running_line
from accelopt.sim.errors import KernelAssertionError, KernelError, KernelTypeError
from accelopt.sim.mask import EVERYTHING, NOTHING, Mask
from accelopt.sim.nki.index import MaskExpression, TileIndex, broadcast_shapes
from accelopt.sim.nki.poison import POISON, is_poisoned
from accelopt.sim.program import Buffer, Tensor
from accelopt.sim.rules import control_flow, indexing, operands
from accelopt.sim.tracer import current


class IndexBound:
    """An index of one dimension that may leave it: legal only under a mask that keeps it inside.

    `expression` counts tile axes from the last of the view's shape.
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


class RuntimeIndex:
    """A tile of run-time numbers plus an index: `tensor[ix, offsets[0, i] + iy]`."""

    __slots__ = ("index", "tile")

    def __init__(self, tile: TensorView, index: TileIndex) -> None:
        self.tile = tile
        self.index = index

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of both."""
        return broadcast_shapes(self.tile.tile_shape, self.index.shape)

    def __add__(self, other: Any) -> RuntimeIndex:
        return RuntimeIndex(self.tile, self.index + other)

    __radd__ = __add__


class TensorView:
    """A tensor or part of one. `shape` starts with the block dimensions that are not chosen yet,
    then partition and free dimensions (on-chip) or all dimensions (HBM)."""

    __slots__ = (
        "_access", "block", "bounds", "dtype", "indirect", "mask", "offset", "on_chip",
        "open_blocks", "shape", "storage", "strides", "tile_shape", "updated_in_place",
        "written_mask",
    )  # fmt: skip
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
        bounds: tuple[IndexBound, ...] = (),
        indirect: tuple[Indirect, ...] = (),
        mask: Mask = EVERYTHING,
    ) -> None:
        self.storage = tensor
        self.on_chip = tensor.buffer.on_chip
        """True in SBUF and PSUM."""
        self.block = block
        self.open_blocks = block.count(None)
        self.shape = shape
        self.tile_shape = shape[self.open_blocks :]
        """The shape without open block dimensions."""
        self.offset = offset
        self.strides = strides
        self.dtype = dtype
        self.bounds = bounds
        self.indirect = indirect
        self.mask = mask
        self.written_mask = EVERYTHING
        """Of a result: the mask of its instruction. Outside of it the elements are undefined."""
        self.updated_in_place = False
        self._access: Access | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

    @property
    def buffer(self) -> Any:
        """Its memory: nl.hbm, nl.shared_hbm, nl.sbuf or nl.psum."""
        from accelopt.sim.nki.language.creation import NAMES

        return NAMES[self.storage.buffer.value]

    @property
    def in_psum(self) -> bool:
        """True in PSUM."""
        return self.storage.buffer is Buffer.PSUM

    @property
    def name(self) -> str:
        """The name it was declared with."""
        return self.storage.name

    def __repr__(self) -> str:
        return f"<{self.storage.buffer.value} tensor '{self.name}' {self.shape} {self.dtype}>"

    def replaced(self, **changes: Any) -> TensorView:
        """The same view with some of its fields changed, or none."""
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
        return type(self)(**{**values, **changes})

    # Other views of the same elements.

    def __getitem__(self, key: Any) -> TensorView:
        from accelopt.sim.nki.subscript import subscript

        if isinstance(key, MaskExpression):
            return self.replaced(mask=self.mask & key.mask)
        if isinstance(key, (bool, np.bool_)):  # a comparison of numbers, where a loop is unrolled
            return self if key else self.replaced(mask=NOTHING)
        tracer = current()
        if not tracer.collecting:
            return subscript(self, key)
        try:
            return subscript(self, key)
        except KernelError as error:
            tracer.collect(error)
            return POISON  # type: ignore[return-value]

    def reshape(self, *sizes: Any, shape: Any = None) -> TensorView:
        """Another shape over the same elements (HBM), or over the free dimensions (on-chip)."""
        from accelopt.sim.nki import shaping

        return shaping.reshape(self, shaping.wanted_shape(sizes or (shape,)))

    def broadcast_to(self, *sizes: Any, shape: Any = None) -> TensorView:
        """Axes of length 1 repeated, without copying."""
        from accelopt.sim.nki import shaping

        return shaping.broadcast(self, shaping.wanted_shape(sizes or (shape,)))

    def expand_dims(self, axis: Any) -> TensorView:
        """New axes of length 1."""
        from accelopt.sim.nki import shaping

        return shaping.expand_dims(self, axis)

    def view(self, dtype: Any) -> TensorView:
        """The same bytes as another dtype; the last dimension changes with the item size."""
        from accelopt.sim.nki import shaping

        return shaping.reinterpret(self, dtype)

    def astype(self, dtype: Any) -> TensorView:
        """A copy in another dtype."""
        from accelopt.sim.nki.language import movement

        converted: TensorView = movement.copy(self, dtype=dtype)
        return converted

    def assert_shape(self, shape: Any) -> TensorView:
        """Itself, when it has that shape."""
        if tuple(shape) != self.shape:
            error = KernelAssertionError(
                "assert_shape", f"{self!r} does not have shape {tuple(shape)}."
            )
            _fail(error)
        return self

    # What instructions need.

    def access(self, mask: Mask | None = None) -> Access:
        """The tile as an operand. `mask` is the instruction's: indices may leave the tensor only
        where it does not hold."""
        if self._access is not None:
            return self._access
        if self.open_blocks:
            _fail(operands.not_a_tile(repr(self), "not every block dimension is chosen"))
        effective = self.mask & mask if mask is not None else self.mask
        for bound in self.bounds:
            if not effective.keeps(bound.expression, 0, bound.size - 1):
                low, high = bound.expression.bounds
                current().refuse(
                    indexing.out_of_bounds(repr(self), bound.dimension, low, high, bound.size)
                )
        access = Access(
            self.storage,
            self.shape,
            self.block,  # type: ignore[arg-type]  # no block dimension is open
            self.offset,
            self.strides,
            self.dtype,
            self.indirect,
            self.mask,
        )
        if not self.bounds:
            self._access = access  # no mask can make it wrong
        return access

    # Assignment and arithmetic are instructions; other modules know them.

    def __setitem__(self, key: Any, value: Any) -> None:
        from accelopt.sim.nki import assignment

        target = self[key]
        if is_poisoned((target, value)):
            current().written.add(self.storage)
            return
        if isinstance(value, TensorView) and value.updated_in_place:
            value.updated_in_place = False
            if value.access(value.mask).same_elements(target.access(value.mask)):
                return
        assignment.assign(target, value)

    def __bool__(self) -> bool:
        line = current_line()
        if line.startswith("while"):
            _fail(control_flow.while_on_tensor())
        if line.startswith(("if ", "elif ", "if(", "assert ")) and self.shape in ((1, 1), (1,), ()):
            _fail(control_flow.condition_on_tensor())
        _fail(control_flow.ambiguous_truth())

    def __iter__(self) -> Any:
        _no_data("a tensor cannot be iterated over", "Loop over nl.affine_range and index it.")

    def __index__(self) -> int:
        _no_data(
            "a tensor's value is used as a Python number",
            "Index with the tile itself, or pass the number as an argument of the kernel.",
        )

    def __int__(self) -> int:
        return self.__index__()

    def __float__(self) -> float:
        return float(self.__index__())

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *_: Any, **__: Any) -> Any:
        _no_data("NumPy cannot read a tensor", "Use nl.* and nisa.* instead of np.* here.")

    __hash__ = object.__hash__


def whole(tensor: Tensor) -> TensorView:
    """A view of everything, of the kind that the kernel's dialect knows."""
    rank = tensor.block_rank
    strides = row_major(tensor.shape[rank:])
    kind: type[TensorView] = current().conventions.view_type or TensorView
    return kind(tensor, tensor.shape, (None,) * rank, ZERO, strides, tensor.dtype)


@functools.lru_cache(maxsize=4096)
def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tile."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def current_line() -> str:
    """The text of the kernel line that is running."""
    here = running_line()
    return linecache.getline(here.file, here.line).strip()


def _no_data(what: str, mend: str) -> NoReturn:
    _fail(KernelTypeError("kernel_touches_data", f"kernel code never sees data: {what}.", mend))


def _fail(error: KernelError) -> NoReturn:
    raise current().blamed(error)
