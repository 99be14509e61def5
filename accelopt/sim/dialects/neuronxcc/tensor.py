"""A view of storage: what instructions read and write, and what of it kernel code can never see."""

from __future__ import annotations

import linecache
import math
from typing import Any, NoReturn, TypeVar

import numpy as np

from accelopt.algorithm.linear import reshaped_strides, row_major
from accelopt.sim.access import Access, Indirect
from accelopt.sim.affine import ZERO, Affine
from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.neuronxcc.index import TileIndex, broadcast_shapes
from accelopt.sim.errors import KernelAssertionError, KernelError, KernelTypeError, KernelValueError
from accelopt.sim.mask import EVERYTHING, Mask
from accelopt.sim.program import Buffer, Tensor
from accelopt.sim.rules import indexing, kernels, operands
from accelopt.sim.tracer import current

View = TypeVar("View", bound="TensorView")


class IndexBound:
    """An index of one dimension that may leave it: legal only under a mask that keeps it inside.

    `expression` counts tile axes from the last of the view's shape; without a dimension, elements of the storage.
    """

    __slots__ = ("dimension", "expression", "size")

    def __init__(self, expression: Affine, size: int, dimension: int | None) -> None:
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
        "_access", "block", "bounds", "dtype", "gathered", "mask", "offset", "on_chip",
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
        gathered: tuple[Indirect, ...] = (),
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
        self.gathered = gathered
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
    def free_elements(self) -> int:
        """Elements a partition, of one block."""
        return math.prod(self.tile_shape[1:])

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

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

    def replaced(self: View, **changes: Any) -> View:
        """The same view with some of its fields changed, or none."""
        values = {
            "tensor": self.storage,
            "shape": self.shape,
            "block": self.block,
            "offset": self.offset,
            "strides": self.strides,
            "dtype": self.dtype,
            "bounds": self.bounds,
            "gathered": self.gathered,
            "mask": self.mask,
        }
        return type(self)(**{**values, **changes})

    def reshape(self: View, *sizes: Any, shape: Any = None) -> View:
        """Another shape over the same elements; on-chip only free dimensions split and merge, and
        block dimensions stay as they are."""
        wanted = _sizes(sizes or (shape,))
        if -1 in wanted:
            known = -math.prod(wanted)
            wanted = tuple(math.prod(self.shape) // known if n == -1 else n for n in wanted)
        if math.prod(wanted) != math.prod(self.shape):
            _fail(KernelValueError("reshape", f"cannot reshape {self.shape} to {wanted}."))
        blocks = self.open_blocks
        if wanted[:blocks] != self.shape[:blocks]:
            _fail(operands.not_a_tile(repr(self), "its block dimensions cannot be reshaped"))
        tile = wanted[blocks:]
        if self.on_chip and (not tile or tile[0] != self.tile_shape[0]):
            _fail(operands.leading_dimension(repr(self), wanted))
        strides = reshaped_strides(self.tile_shape, self.strides, tile)
        if strides is None:
            mend = "Reshape before slicing, or copy it first."
            problem = f"{self!r} is not contiguous enough to become {wanted}."
            _fail(KernelValueError("reshape", problem, mend))
        return self.replaced(shape=wanted, strides=strides)

    def broadcast_to(self: View, *sizes: Any, shape: Any = None) -> View:
        """Axes of length 1 repeated, without copying."""
        try:
            access = self.access(self.mask).broadcast_to(_sizes(sizes or (shape,)))
        except ValueError as error:
            _fail(KernelValueError("broadcast", f"{error}."))
        return self.replaced(shape=access.shape, strides=access.strides)

    def expand_dims(self: View, axis: Any) -> View:
        """New axes of length 1."""
        axes = axis if isinstance(axis, (tuple, list)) else (axis,)
        rank = self.ndim + len(axes)
        view = self
        for at in sorted(int(n) % rank for n in axes):
            if view.on_chip and at <= view.open_blocks:
                _fail(operands.leading_dimension(repr(view), (1, *view.shape)))
            tile = at - view.open_blocks
            view = view.replaced(
                shape=(*view.shape[:at], 1, *view.shape[at:]),
                strides=(*view.strides[:tile], 0, *view.strides[tile:]),
            )
        return view

    def assert_shape(self: View, shape: Any) -> View:
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
            self.gathered,
            self.mask,
        )
        if not self.bounds:
            self._access = access  # no mask can make it wrong
        return access

    def __bool__(self) -> bool:
        line = current_line()
        if line.startswith("while"):
            _fail(kernels.while_on_tensor())
        if line.startswith(("if ", "elif ", "if(", "assert ")) and self.shape in ((1, 1), (1,), ()):
            _fail(kernels.condition_on_tensor())
        _fail(kernels.ambiguous_truth())

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
    kind: type[TensorView] = current().conventions.view_type
    return kind(tensor, tensor.shape, (None,) * rank, ZERO, strides, tensor.dtype)


def _sizes(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape in `reshape(2, 3)` or `reshape((2, 3))`."""
    first = arguments[0]
    given = arguments if isinstance(first, (int, np.integer)) else tuple(first)
    return tuple(int(n) for n in given)


def current_line() -> str:
    """The text of the kernel line that is running."""
    here = running_line()
    return linecache.getline(here.file, here.line).strip()


def _no_data(what: str, mend: str) -> NoReturn:
    _fail(KernelTypeError("kernel_touches_data", f"kernel code never sees data: {what}.", mend))


def _fail(error: KernelError) -> NoReturn:
    raise current().blamed(error)
