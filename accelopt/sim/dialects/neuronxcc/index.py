"""Index objects of NKI: loop indices, nl.arange, nl.mgrid, and the masks made by comparing them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from accelopt.sim.affine import Affine, LoopVariable, Term, TileAxis, variable
from accelopt.sim.call_sites import running_frame, running_line
from accelopt.sim.conditions import escapes, is_tested
from accelopt.sim.errors import KernelError, KernelSyntaxError, KernelTypeError, SourceLine
from accelopt.sim.mask import EVERYTHING, NOTHING, Mask
from accelopt.sim.rules import indexing, kernels
from accelopt.sim.tracer import current

NO_LOOPS: frozenset[int] = frozenset()


class LoopIndex(int):
    """The index of a loop that the kernel itself unrolls (nl.static_range): a number, which still
    knows its loop."""

    loop: int

    def __new__(cls, value: int, loop: int) -> LoopIndex:
        self = super().__new__(cls, value)
        self.loop = loop
        return self


class TileIndex:
    """An affine expression of loop indices and, with a shape, of tile axes.

    `shape` is () for a loop index and broadcasts like a NumPy array for nl.arange(n)[:, None].
    `loops` are the numbers of the loops that we unrolled and the real tracer does not: there the
    expression is a constant, and still no number to Python.
    """

    __slots__ = ("affine", "loops", "shape")
    __array_ufunc__ = None

    def __init__(
        self, affine: Affine, shape: tuple[int, ...] = (), loops: frozenset[int] = NO_LOOPS
    ) -> None:
        self.affine = affine
        self.shape = shape
        self.loops = loops

    @property
    def ndim(self) -> int:
        """Number of tile axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"TileIndex(shape={self.shape})"

    def _like(
        self, affine: Affine, shape: tuple[int, ...], loops: frozenset[int] = NO_LOOPS
    ) -> TileIndex:
        """An index of the same kind."""
        return type(self)(affine, shape, self.loops | loops)

    # Shaping: only new axes may be added, as in nl.arange(128)[:, None].

    def __getitem__(self, key: Any) -> TileIndex:
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
            axis: variable(TileAxis(position[axis.position + self.ndim] - len(shape), axis.extent))
            for axis in self.affine.axes
        }
        return self._like(self.affine.substitute(moved), tuple(shape))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _assignment_error()

    def expand_dims(self, axis: int) -> TileIndex:
        """A new axis of length 1."""
        at = axis % (self.ndim + 1)
        return self[(slice(None),) * at + (None,) + (slice(None),) * (self.ndim - at)]

    # Arithmetic keeps the expression affine, or asks for the loop to be unrolled.

    def _combine(self, other: Any, sign: int, swap: bool = False) -> TileIndex:
        mine = self.affine * -1 if swap else self.affine
        if isinstance(other, (int, np.integer)):
            return self._like(mine + int(other) * sign, self.shape)
        if not isinstance(other, TileIndex):
            return NotImplemented  # type: ignore[no-any-return]
        shape = broadcast_shapes(self.shape, other.shape)
        return self._like(mine + other.affine * sign, shape, other.loops)

    def __add__(self, other: Any) -> TileIndex:
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> TileIndex:
        return self._combine(other, -1)

    def __rsub__(self, other: Any) -> TileIndex:
        return self._combine(other, 1, swap=True)

    def __neg__(self) -> TileIndex:
        return self._like(self.affine * -1, self.shape)

    def __mul__(self, other: Any) -> TileIndex:
        if isinstance(other, (int, np.integer)):
            return self._like(self.affine * int(other), self.shape)
        if isinstance(other, TileIndex):
            if other.affine.is_constant and not other.shape:
                return self._like(self.affine * other.affine.constant, self.shape, other.loops)
            if self.affine.is_constant and not self.shape:
                return self._like(other.affine * self.affine.constant, other.shape, other.loops)
            variables = self.affine.loop_variables or other.affine.loop_variables
            if not variables:
                raise _not_a_number()
            current().demand(variables)
        return NotImplemented  # type: ignore[no-any-return]

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> TileIndex:
        if isinstance(other, (int, np.integer)):
            return self._like(self.affine // int(other), self.shape)
        return number_of(self) // other  # type: ignore[no-any-return]

    def __mod__(self, other: Any) -> TileIndex:
        if isinstance(other, (int, np.integer)):
            return self._like(self.affine % int(other), self.shape)
        return number_of(self) % other  # type: ignore[no-any-return]

    # Comparisons make masks.

    def _compare(self, other: Any, *, at_least: bool, strict: bool) -> MaskExpression:
        if not isinstance(other, (int, np.integer, TileIndex)):
            if hasattr(other, "least"):  # min() or max() knows how it compares
                return NotImplemented  # type: ignore[no-any-return]
            raise _mask_error(f"an index cannot be compared with {type(other).__name__}.")
        difference = self - other if at_least else -(self - other)
        affine = difference.affine - (1 if strict else 0)
        mask = Mask((affine,))
        if affine.is_constant:
            mask = EVERYTHING if affine.constant >= 0 else NOTHING
        return MaskExpression(mask, difference.shape, loops=difference.loops)

    def __lt__(self, other: Any) -> MaskExpression:
        return self._compare(other, at_least=False, strict=True)

    def __le__(self, other: Any) -> MaskExpression:
        return self._compare(other, at_least=False, strict=False)

    def __gt__(self, other: Any) -> MaskExpression:
        return self._compare(other, at_least=True, strict=True)

    def __ge__(self, other: Any) -> MaskExpression:
        return self._compare(other, at_least=True, strict=False)

    def __eq__(self, other: Any) -> Any:
        if other is None or not isinstance(other, (int, np.integer, TileIndex)):
            return False
        both = (self >= other) & (self <= other)
        return MaskExpression(both.mask, both.shape, loops=both.loops)  # one comparison

    def __ne__(self, other: Any) -> Any:
        if other is None or not isinstance(other, (int, np.integer, TileIndex)):
            return True
        equal = self == other
        return MaskExpression(equal.mask, equal.shape, negated=True, loops=equal.loops)

    # To Python an index is an object: the real tracer runs a loop's body once, for all iterations.

    def _used_as_number(self, *_: Any) -> NoReturn:
        if self.shape or not (self.loops or self.affine.loop_variables):
            raise _not_a_number()
        raise _at_line(kernels.index_as_number())

    __index__ = __int__ = __float__ = __truediv__ = __rtruediv__ = __pow__ = _used_as_number
    __rpow__ = __rfloordiv__ = __rmod__ = __hash__ = _used_as_number  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self != 0)


class MaskExpression:
    """A comparison of indices: a mask, or a condition when it only depends on loops."""

    __slots__ = ("combined", "loops", "mask", "negated", "shape")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        mask: Mask,
        shape: tuple[int, ...],
        negated: bool = False,
        combined: bool = False,
        loops: frozenset[int] = NO_LOOPS,
    ) -> None:
        self.mask = mask
        self.loops = loops
        self.shape = shape
        self.negated = negated
        self.combined = combined
        """True after '&': more than one comparison."""

    def __and__(self, other: Any) -> MaskExpression:
        if isinstance(other, (bool, np.bool_)):
            return self if other else MaskExpression(NOTHING, self.shape, loops=self.loops)
        if not isinstance(other, MaskExpression):
            raise _mask_error(f"a mask cannot be combined with {type(other).__name__}.")
        if self.negated or other.negated:
            raise _mask_error("a '!=' comparison cannot be part of a mask.")
        shape = broadcast_shapes(self.shape, other.shape)
        loops = self.loops | other.loops
        return MaskExpression(self.mask & other.mask, shape, combined=True, loops=loops)

    __rand__ = __and__

    def __or__(self, other: Any) -> MaskExpression:
        raise _mask_error("masks can only be combined with '&'.")

    __ror__ = __or__

    def __invert__(self) -> MaskExpression:
        if self.mask.always and not self.negated:
            return MaskExpression(NOTHING, self.shape, loops=self.loops)
        if len(self.mask.constraints) == 1 and not self.negated:
            turned = Mask((self.mask.constraints[0] * -1 - 1,))
            return MaskExpression(turned, self.shape, loops=self.loops)
        raise _mask_error("only a single comparison can be negated.")

    def __bool__(self) -> bool:
        """In the condition of an `if`, whose branches become predicated: what Python says, by
        unrolling. Anywhere else (`a if mask else b`, `mask and other`, `not mask`) the real tracer
        has an object in hand, and objects are true.

        Measured on trn2 (kda-for-trainium, gqa_full_v7b): `reset if c == 0 else reduce` reset in
        every of eight iterations, and the sum was an eighth of what it should be."""
        if not is_tested(running_line()):
            return True
        variables: frozenset[LoopVariable] = frozenset()
        for constraint in self.mask.constraints:
            variables |= constraint.loop_variables
        if variables or self.loops:
            enter_branch()  # even where bounds decide: the real tracer does not look at them
        if self.mask.always or self.mask.never:
            return self.mask.always != self.negated
        if any(constraint.axes for constraint in self.mask.constraints):
            raise _at_line(kernels.condition_on_arange())
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


def number_of(value: Any) -> int:
    """A whole number that the simulated core itself needs (the bounds of a range, a constant of an
    instruction): an index that has one value is it, another one's loops are unrolled."""
    if not isinstance(value, TileIndex):
        return int(value)
    if value.shape:
        raise _not_a_number()
    low, high = value.affine.bounds
    if low != high:
        current().demand(value.affine.loop_variables)
    return low


def _at_line(error: KernelError) -> KernelError:
    return current().blamed(error)


def broadcast_shapes(*shapes: tuple[int, ...], what: str = "indices") -> tuple[int, ...]:
    """NumPy's rule for `what` has these shapes; KernelSyntaxError when the shapes do not fit."""
    if len(shapes) == 2:
        if not shapes[0] or shapes[0] == shapes[1]:
            return shapes[1]
        if not shapes[1]:
            return shapes[0]
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise _at_line(
            KernelSyntaxError(
                "index_shapes" if what == "indices" else "operand_shape",
                f"{what} of shapes {' and '.join(map(str, shapes))} do not broadcast.",
            )
        ) from None


def tile_axis(position: int, extent: int) -> Affine:
    """The axis as an expression; an axis of length 1 is always 0 and may broadcast."""
    return variable(TileAxis(position, extent)) if extent > 1 else Affine()


def arange(*bounds: int) -> TileIndex:
    """nl.arange(stop) or (start, stop): a one-dimensional index."""
    start, stop = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    extent = number_of(stop - start)
    if extent <= 0:
        raise _at_line(KernelError("empty_arange", f"nl.arange of length {extent}."))
    return _counting(start, tile_axis(-1, extent), (extent,))


def _counting(start: Any, axis: Affine, shape: tuple[int, ...]) -> TileIndex:
    """The axis as an index that begins at `start`."""
    if isinstance(start, TileIndex):
        return TileIndex(start.affine + axis, shape, start.loops)
    return TileIndex(axis + int(start), shape)


class MeshGrid(tuple[TileIndex, ...]):
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
        starts = [0 if item.start is None else item.start for item in slices]
        shape = tuple(
            number_of(item.stop - start) for item, start in zip(slices, starts, strict=True)
        )
        return MeshGrid(
            _counting(start, tile_axis(at - len(shape), shape[at]), shape)
            for at, start in enumerate(starts)
        )


def enter_branch() -> None:
    """The running line is a condition that depends on loop indices: its branches become scopes of tensors,
    and what leaves them is refused, for NKI runs all branches, under predicates, so a name that one of
    them binds has no one value afterwards. A tensor updated by `+=` stays the tensor that it is."""
    tracer = current()
    tracer.note_condition()
    frame = running_frame()
    if frame is None:
        return
    found = escapes(frame.f_code.co_filename, frame.f_lineno)
    for escape in found.names:
        if escape.updated and isinstance(
            frame.f_locals.get(escape.name), tracer.conventions.view_type
        ):
            continue
        bound = SourceLine(frame.f_code.co_filename, escape.line)
        tracer.refuse(kernels.bound_in_branch(escape.name, found.line).at(bound))
    if found.skips:
        tracer.refuse(kernels.left_early("continue in a branch on its index"))
