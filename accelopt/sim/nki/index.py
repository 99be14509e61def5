"""Index objects of NKI: loop indices, nl.arange, nl.mgrid, and the masks made by comparing them."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim.affine import Affine, Axis, LoopVariable, Term, variable
from accelopt.sim.errors import KernelError, KernelSyntaxError, KernelTypeError
from accelopt.sim.mask import NOTHING, Mask
from accelopt.sim.rules import control_flow, indexing
from accelopt.sim.tracer import current


class LoopIndex(int):
    """The number of an unrolled iteration, which still knows its loop."""

    loop: int

    def __new__(cls, value: int, loop: int) -> LoopIndex:
        self = super().__new__(cls, value)
        self.loop = loop
        return self


class Index:
    """An affine expression of loop indices and, with a shape, of tile axes.

    `shape` is () for a loop index and broadcasts like a NumPy array for nl.arange(n)[:, None].
    """

    __slots__ = ("affine", "shape")
    __array_ufunc__ = None

    def __init__(self, affine: Affine, shape: tuple[int, ...] = ()) -> None:
        self.affine = affine
        self.shape = shape

    @property
    def ndim(self) -> int:
        """Number of tile axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Index(shape={self.shape})"

    # Shaping: only new axes may be added, as in nl.arange(128)[:, None].

    def __getitem__(self, key: Any) -> Index:
        items = key if isinstance(key, tuple) else (key,)
        if Ellipsis in items:
            at = items.index(Ellipsis)
            given = sum(1 for item in items if item is not None and item is not Ellipsis)
            items = items[:at] + (slice(None),) * (self.ndim - given) + items[at + 1 :]
        shape: list[int] = []
        position: dict[int, int] = {}
        used = 0
        for item in items:
            if item is None:
                shape.append(1)
            elif isinstance(item, slice) and item == slice(None) and used < self.ndim:
                position[used] = len(shape)
                shape.append(self.shape[used])
                used += 1
            else:
                problem = f"an index of shape {self.shape} cannot be indexed with {item!r}."
                mend = "Use only ':' and None, as in nl.arange(128)[:, None]."
                raise _at_line(KernelTypeError("index_shape", problem, mend))
        if used != self.ndim:
            for axis in range(used, self.ndim):
                position[axis] = len(shape)
                shape.append(self.shape[axis])
        moved: dict[Term, Affine] = {
            axis: variable(Axis(position[axis.position + self.ndim] - len(shape), axis.extent))
            for axis in self.affine.axes
        }
        return Index(self.affine.substitute(moved), tuple(shape))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _assignment_error()

    def expand_dims(self, axis: int) -> Index:
        """A new axis of length 1."""
        at = axis % (self.ndim + 1)
        return self[(slice(None),) * at + (None,) + (slice(None),) * (self.ndim - at)]

    # Arithmetic keeps the expression affine, or asks for the loop to be unrolled.

    def _combine(self, other: Any, sign: int, swap: bool = False) -> Index:
        mine = self.affine * -1 if swap else self.affine
        if isinstance(other, (int, np.integer)):
            return Index(mine + int(other) * sign, self.shape)
        if not isinstance(other, Index):
            return NotImplemented  # type: ignore[no-any-return]
        return Index(mine + other.affine * sign, broadcast_shapes(self.shape, other.shape))

    def __add__(self, other: Any) -> Index:
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Index:
        return self._combine(other, -1)

    def __rsub__(self, other: Any) -> Index:
        return self._combine(other, 1, swap=True)

    def __neg__(self) -> Index:
        return Index(self.affine * -1, self.shape)

    def __mul__(self, other: Any) -> Index:
        if isinstance(other, (int, np.integer)):
            return Index(self.affine * int(other), self.shape)
        if isinstance(other, Index):
            if other.affine.is_constant and not other.shape:
                return Index(self.affine * other.affine.constant, self.shape)
            if self.affine.is_constant and not self.shape:
                return Index(other.affine * self.affine.constant, other.shape)
            variables = self.affine.loop_variables or other.affine.loop_variables
            if not variables:
                raise _not_a_number()
            current().demand(variables)
        return NotImplemented  # type: ignore[no-any-return]

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Index:
        if isinstance(other, (int, np.integer)):
            return Index(self.affine // int(other), self.shape)
        return int(self) // other  # type: ignore[no-any-return]

    def __mod__(self, other: Any) -> Index:
        if isinstance(other, (int, np.integer)):
            return Index(self.affine % int(other), self.shape)
        return int(self) % other  # type: ignore[no-any-return]

    def __truediv__(self, other: Any) -> Any:
        return int(self) / other

    def __pow__(self, other: Any) -> Any:
        return int(self) ** other

    # Comparisons make masks.

    def _compare(self, other: Any, *, at_least: bool, strict: bool) -> MaskExpression:
        difference = self - other if at_least else -(self - other)
        if difference is NotImplemented:
            raise _mask_error(f"an index cannot be compared with {type(other).__name__}.")
        affine = difference.affine - (1 if strict else 0)
        return MaskExpression(Mask((affine,)), difference.shape)

    def __lt__(self, other: Any) -> MaskExpression:
        return self._compare(other, at_least=False, strict=True)

    def __le__(self, other: Any) -> MaskExpression:
        return self._compare(other, at_least=False, strict=False)

    def __gt__(self, other: Any) -> MaskExpression:
        return self._compare(other, at_least=True, strict=True)

    def __ge__(self, other: Any) -> MaskExpression:
        return self._compare(other, at_least=True, strict=False)

    def __eq__(self, other: Any) -> Any:
        if other is None or not isinstance(other, (int, np.integer, Index)):
            return False
        equal = (self >= other) & (self <= other)
        return MaskExpression(equal.mask, equal.shape)

    def __ne__(self, other: Any) -> Any:
        if other is None or not isinstance(other, (int, np.integer, Index)):
            return True
        equal = (self >= other) & (self <= other)
        return MaskExpression(equal.mask, equal.shape, negated=True)

    # Python needs a number: known when the loop has one trip, otherwise the loop is unrolled.

    def __index__(self) -> int:
        if self.shape:
            raise _not_a_number()
        low, high = self.affine.bounds
        if low != high:
            current().demand(self.affine.loop_variables)
        return low

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(int(self))

    def __float__(self) -> float:
        return float(int(self))

    def __bool__(self) -> bool:
        return bool(self != 0)


class MaskExpression:
    """A comparison of indices: a mask, or a condition when it only depends on loops."""

    __slots__ = ("combined", "mask", "negated", "shape")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        mask: Mask,
        shape: tuple[int, ...],
        negated: bool = False,
        combined: bool = False,
    ) -> None:
        self.mask = mask
        self.shape = shape
        self.negated = negated
        self.combined = combined
        """True after '&': more than one comparison."""

    def __and__(self, other: Any) -> MaskExpression:
        if isinstance(other, (bool, np.bool_)):
            return self if other else MaskExpression(NOTHING, self.shape)
        if not isinstance(other, MaskExpression):
            raise _mask_error(f"a mask cannot be combined with {type(other).__name__}.")
        if self.negated or other.negated:
            raise _mask_error("a '!=' comparison cannot be part of a mask.")
        shape = broadcast_shapes(self.shape, other.shape)
        return MaskExpression(self.mask & other.mask, shape, combined=True)

    __rand__ = __and__

    def __or__(self, other: Any) -> MaskExpression:
        raise _mask_error("masks can only be combined with '&'.")

    __ror__ = __or__

    def __invert__(self) -> MaskExpression:
        if len(self.mask.constraints) == 1 and not self.negated:
            return MaskExpression(Mask((self.mask.constraints[0] * -1 - 1,)), self.shape)
        raise _mask_error("only a single comparison can be negated.")

    def __bool__(self) -> bool:
        if self.mask.always or self.mask.never:
            return self.mask.always != self.negated
        variables: frozenset[LoopVariable] = frozenset()
        for constraint in self.mask.constraints:
            if constraint.axes:
                raise _at_line(control_flow.condition_on_arange())
            variables |= constraint.loop_variables
        current().note_condition()
        current().demand(variables)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _assignment_error()


def _assignment_error() -> KernelError:
    return _at_line(indexing.assignment_to_index())


def _mask_error(message: str) -> KernelError:
    return _at_line(indexing.unsupported_mask(message))


def _not_a_number() -> KernelError:
    problem = "nl.arange and nl.mgrid have no value in Python; they only index tensors."
    mend = "Use a Python number or a loop index here."
    return _at_line(KernelTypeError("index_is_not_a_number", problem, mend))


def _at_line(error: KernelError) -> KernelError:
    return current().blamed(error)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's rule; KernelSyntaxError when the shapes do not fit."""
    if len(shapes) == 2:
        if not shapes[0] or shapes[0] == shapes[1]:
            return shapes[1]
        if not shapes[1]:
            return shapes[0]
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise _at_line(
            KernelSyntaxError("index_shapes", f"indices of shapes {shapes} do not broadcast.")
        ) from None


def tile_axis(position: int, extent: int) -> Affine:
    """The axis as an expression; an axis of length 1 is always 0 and may broadcast."""
    return variable(Axis(position, extent)) if extent > 1 else Affine()


def arange(*bounds: int) -> Index:
    """nl.arange(stop) or (start, stop): a one-dimensional index."""
    start, stop = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    extent = int(stop - start)
    if extent <= 0:
        raise _at_line(KernelError("empty_arange", f"nl.arange of length {extent}."))
    base = start.affine if isinstance(start, Index) else Affine(int(start))
    return Index(base + tile_axis(-1, extent), (extent,))


class MeshGrid(tuple[Index, ...]):
    """What nl.mgrid[...] returns: one index a dimension, also as .p .x .y .z .w."""

    p = property(lambda self: self[0])
    x = property(lambda self: self[1])
    y = property(lambda self: self[2])
    z = property(lambda self: self[3])
    w = property(lambda self: self[4])


class MeshGridMaker:
    """nl.mgrid: `nl.mgrid[0:128, 0:512]`."""

    def __getitem__(self, key: Any) -> MeshGrid:
        slices = key if isinstance(key, tuple) else (key,)
        shape = tuple(int(item.stop - (item.start or 0)) for item in slices)
        grids = []
        for at, item in enumerate(slices):
            start = item.start or 0
            base = start.affine if isinstance(start, Index) else Affine(int(start))
            grids.append(Index(base + tile_axis(at - len(shape), shape[at]), shape))
        return MeshGrid(grids)
