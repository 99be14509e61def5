"""Masks at run time: the rectangle of a tile that takes part, and patterns that are no rectangle.

A constraint over one axis bounds a rectangle, so a tile shrinks to a slice of itself. A constraint
over several axes (a causal mask) is a boolean pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accelopt.sim.affine import Affine, LoopVariable, TileAxis
from accelopt.sim.compute.analysis.regions import NumberRange
from accelopt.sim.compute.tiles.addressing import Address, compile_affine
from accelopt.sim.mask import Mask


@dataclass(eq=False)
class _Bound:
    """What constrains one axis: `first >= -(rest // factor)`, `last <= rest // factor + 1`."""

    size: int
    firsts: list[tuple[Address, int]]
    lasts: list[tuple[Address, int]]


CompileAddress = Callable[[Affine], Address]


def compiler(slots: Mapping[LoopVariable, int], registers: list[int]) -> CompileAddress:
    """Compiles expressions for one set of registers."""
    return lambda expression: compile_affine(expression, slots, registers)


class Window:
    """The rectangle where the one-axis constraints of some masks hold, in the current iteration.

    Axes have keys; `extents` holds an Extent for each constrained one after `refresh`.
    """

    def __init__(self, compile_expression: CompileAddress) -> None:
        self._compile = compile_expression
        self._bounds: dict[Hashable, _Bound] = {}
        self._conditions: list[Address] = []
        self.extents: dict[Hashable, NumberRange] = {}
        self.state: tuple[int, ...] = ()

    def add(self, mask: Mask, keys: Mapping[int, Hashable]) -> list[Affine]:
        """Takes the constraints of a mask that fit; axis positions (-1 is the last) become keys.
        Returns the constraints over several axes."""
        left: list[Affine] = []
        for constraint in mask.simplified().constraints:
            axes = sorted(constraint.axes, key=lambda axis: axis.position)
            rest, factors = constraint.split()
            if not axes:
                self._conditions.append(self._compile(constraint))
            elif len(axes) == 1 and not rest.axes:
                self._constrain(axes[0], factors[axes[0].position], rest, keys)
            else:
                left.append(constraint)
        return left

    def _constrain(
        self, axis: TileAxis, factor: int, rest: Affine, keys: Mapping[int, Hashable]
    ) -> None:
        key = keys[axis.position]
        bound = self._bounds.setdefault(key, _Bound(axis.extent, [], []))
        side = bound.firsts if factor > 0 else bound.lasts
        side.append((self._compile(rest), abs(factor)))

    @property
    def trivial(self) -> bool:
        """True when nothing is constrained."""
        return not self._bounds and not self._conditions

    @property
    def keys(self) -> frozenset[Hashable]:
        """The constrained axes."""
        return frozenset(self._bounds)

    def refresh(self) -> bool:
        """Evaluates the constraints for the current loop values; False when nothing is left."""
        for condition in self._conditions:
            if condition() < 0:
                return False
        state: list[int] = []
        for bound in self._bounds.values():
            first, last = 0, bound.size
            for rest, factor in bound.firsts:
                first = max(first, -(rest() // factor))
            for rest, factor in bound.lasts:
                last = min(last, rest() // factor + 1)
            if first >= last:
                return False
            state += (first, last)
        fresh = tuple(state)
        if fresh != self.state:
            self.state = fresh
            self.extents = {
                key: NumberRange(*fresh[2 * n : 2 * n + 2]) for n, key in enumerate(self._bounds)
            }
        return True

    def slices(self, keys: Sequence[Hashable], shape: Sequence[int]) -> tuple[slice, ...]:
        """The window of a tile whose axes have these keys; axes of another length (such as the
        ones that broadcast) are taken whole."""
        return tuple(
            slice(*self.extents[key])
            if key in self.extents and size == self._bounds[key].size
            else slice(None)
            for key, size in zip(keys, shape, strict=True)
        )


class Pattern:
    """The constraints of a mask over several axes, as a boolean array over a tile."""

    def __init__(
        self, constraints: list[Affine], shape: tuple[int, ...], compile_expression: CompileAddress
    ) -> None:
        self.shape = shape
        self._parts: list[tuple[Address, np.ndarray]] = []
        for constraint in constraints:
            rest, factors = constraint.split()
            if rest.axes:
                raise ValueError(f"mask {constraint} divides a tile axis")
            grid: np.ndarray = np.zeros((1,) * len(shape), dtype=np.int64)
            for position, factor in factors.items():
                axis = np.arange(shape[position]) * factor
                grid = grid + axis.reshape(axis.shape + (1,) * (-position - 1))
            self._parts.append((compile_expression(rest), grid))
        self._memory: dict[tuple[int, ...], np.ndarray] = {}

    def __call__(self) -> np.ndarray:
        """True where the constraints hold in the current iteration; the tile's full shape."""
        values = tuple(rest() for rest, _ in self._parts)
        found = self._memory.get(values)
        if found is None:
            found = np.ones(self.shape, dtype=bool)
            for value, (_, grid) in zip(values, self._parts, strict=True):
                found &= grid >= -value
            if len(self._memory) > 64:
                self._memory.clear()
            self._memory[values] = found
        return found
