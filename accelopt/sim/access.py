"""Address arithmetic: affine index expressions, masks, and access patterns of tiles.

Every address in a Program is affine in the variables of the loops around it and in the axes of the
tile it describes, so one instruction stands for all its iterations: evaluating it costs a few
multiplications, and questions (is it in bounds? which loop does it depend on? how long are its
contiguous runs?) are answered without running anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from accelopt.sim.program import Tensor


MAX_ENUMERATION = 1 << 21
"""Masks over more combinations of values than this are judged by their bounds alone."""


@dataclass(frozen=True)
class LoopVariable:
    """The index of one loop: takes start, start+step, ... `trips` times."""

    id: int
    start: int
    step: int
    trips: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value; a loop without trips counts as one."""
        last = self.start + self.step * max(self.trips - 1, 0)
        return (self.start, last) if self.step >= 0 else (last, self.start)

    @property
    def values(self) -> range:
        """The values in the order the loop takes them."""
        return range(self.start, self.start + self.step * self.trips, self.step)

    @property
    def size(self) -> int:
        """How many values it takes."""
        return self.trips


@dataclass(frozen=True)
class Axis:
    """One axis of a tile, counted from the last (-1), as a variable running over 0..extent-1."""

    position: int
    extent: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        return (0, self.extent - 1)

    @property
    def values(self) -> range:
        """All its values."""
        return range(self.extent)

    @property
    def size(self) -> int:
        """How many values it takes."""
        return self.extent


@dataclass(frozen=True)
class Quotient:
    """`inner // divisor`, as a variable of its own."""

    inner: Affine
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low, high = self.inner.bounds
        return (low // self.divisor, high // self.divisor)


@dataclass(frozen=True)
class Remainder:
    """`inner % divisor`, as a variable of its own."""

    inner: Affine
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low, high = self.inner.bounds
        if low // self.divisor == high // self.divisor:
            return (low % self.divisor, high % self.divisor)
        return (0, self.divisor - 1)


Term = LoopVariable | Axis | Quotient | Remainder


def _merge(pairs: Iterable[tuple[Term, int]]) -> tuple[tuple[Term, int], ...]:
    merged: dict[Term, int] = {}
    for term, coefficient in pairs:
        merged[term] = merged.get(term, 0) + coefficient
    return tuple((term, coefficient) for term, coefficient in merged.items() if coefficient)


@dataclass(frozen=True)
class Affine:
    """`constant + sum(coefficient * term)` over integers."""

    constant: int = 0
    terms: tuple[tuple[Term, int], ...] = ()

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.constant + other, self.terms)
        if not other.terms:
            return Affine(self.constant + other.constant, self.terms)
        if not self.terms:
            return Affine(self.constant + other.constant, other.terms)
        return Affine(self.constant + other.constant, _merge((*self.terms, *other.terms)))

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if factor == 0:
            return Affine()
        return Affine(self.constant * factor, tuple((t, c * factor) for t, c in self.terms))

    def __floordiv__(self, divisor: int) -> Affine:
        """Exact when every coefficient divides; otherwise a Quotient term."""
        divisible = tuple((t, c // divisor) for t, c in self.terms if c % divisor == 0)
        rest = Affine(self.constant, tuple((t, c) for t, c in self.terms if c % divisor))
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return Affine(low // divisor, divisible)
        return Affine(0, _merge((*divisible, (Quotient(rest, divisor), 1))))

    def __mod__(self, divisor: int) -> Affine:
        """Terms that are multiples of the divisor fall away; otherwise a Remainder term."""
        rest = Affine(self.constant, tuple((t, c) for t, c in self.terms if c % divisor))
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return rest - (low // divisor) * divisor
        return Affine(0, ((Remainder(rest, divisor), 1),))

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value when the terms vary independently."""
        low = high = self.constant
        for term, coefficient in self.terms:
            first, last = term.bounds
            if coefficient > 0:
                low, high = low + coefficient * first, high + coefficient * last
            else:
                low, high = low + coefficient * last, high + coefficient * first
        return low, high

    @property
    def is_constant(self) -> bool:
        """True when no term is left."""
        return not self.terms

    @property
    def is_linear(self) -> bool:
        """True without quotients and remainders."""
        return not any(isinstance(term, (Quotient, Remainder)) for term, _ in self.terms)

    @property
    def loop_variables(self) -> frozenset[LoopVariable]:
        """Every loop variable the value depends on, also inside quotients and remainders."""
        found: set[LoopVariable] = set()
        for term, _ in self.terms:
            if isinstance(term, LoopVariable):
                found.add(term)
            elif isinstance(term, (Quotient, Remainder)):
                found |= term.inner.loop_variables
        return frozenset(found)

    @property
    def axes(self) -> frozenset[Axis]:
        """Every tile axis the value depends on, also inside quotients and remainders."""
        found: set[Axis] = set()
        for term, _ in self.terms:
            if isinstance(term, Axis):
                found.add(term)
            elif isinstance(term, (Quotient, Remainder)):
                found |= term.inner.axes
        return frozenset(found)

    def coefficient(self, term: Term) -> int:
        """The factor of a term, 0 when absent."""
        return next((c for t, c in self.terms if t == term), 0)

    def split(self) -> tuple[Affine, dict[int, int]]:
        """The part without axes, and the coefficient of each axis by its (negative) position."""
        strides: dict[int, int] = {}
        rest: list[tuple[Term, int]] = []
        for term, coefficient in self.terms:
            if isinstance(term, Axis):
                strides[term.position] = strides.get(term.position, 0) + coefficient
            else:
                rest.append((term, coefficient))
        return Affine(self.constant, tuple(rest)), strides

    def substitute(self, values: Mapping[Term, Affine]) -> Affine:
        """Replaces terms by expressions."""
        result = Affine(self.constant)
        for term, coefficient in self.terms:
            if term in values:
                replacement = values[term]
            elif isinstance(term, Quotient):
                replacement = term.inner.substitute(values) // term.divisor
            elif isinstance(term, Remainder):
                replacement = term.inner.substitute(values) % term.divisor
            else:
                replacement = Affine(0, ((term, 1),))
            result = result + replacement * coefficient
        return result

    def evaluate(self, values: Mapping[LoopVariable, int]) -> int:
        """The number for given loop variables; the expression must hold no axes."""
        total = self.constant
        for term, coefficient in self.terms:
            if isinstance(term, LoopVariable):
                total += coefficient * values[term]
            elif isinstance(term, Quotient):
                total += coefficient * (term.inner.evaluate(values) // term.divisor)
            elif isinstance(term, Remainder):
                total += coefficient * (term.inner.evaluate(values) % term.divisor)
            else:
                raise ValueError(f"{self} still depends on a tile axis")
        return total

    @property
    def variables(self) -> tuple[LoopVariable | Axis, ...]:
        """Loop variables and axes, each once, also those inside quotients and remainders."""
        found: dict[LoopVariable | Axis, None] = {}
        for term, _ in self.terms:
            if isinstance(term, (Quotient, Remainder)):
                found.update(dict.fromkeys(term.inner.variables))
            else:
                found[term] = None
        return tuple(found)

    def evaluate_all(self, values: Mapping[LoopVariable | Axis, np.ndarray]) -> np.ndarray:
        """As `evaluate_many`, with axes as variables too."""
        total: np.ndarray = np.asarray(self.constant, dtype=np.int64)
        for term, coefficient in self.terms:
            if isinstance(term, Quotient):
                total = total + coefficient * (term.inner.evaluate_all(values) // term.divisor)
            elif isinstance(term, Remainder):
                total = total + coefficient * (term.inner.evaluate_all(values) % term.divisor)
            else:
                total = total + coefficient * values[term]
        return total

    def evaluate_many(self, values: Mapping[LoopVariable, np.ndarray]) -> np.ndarray:
        """As `evaluate`, for arrays of loop values that broadcast against each other (int64)."""
        total: np.ndarray = np.asarray(self.constant, dtype=np.int64)
        for term, coefficient in self.terms:
            if isinstance(term, LoopVariable):
                total = total + coefficient * values[term]
            elif isinstance(term, Quotient):
                total = total + coefficient * (term.inner.evaluate_many(values) // term.divisor)
            elif isinstance(term, Remainder):
                total = total + coefficient * (term.inner.evaluate_many(values) % term.divisor)
            else:
                raise ValueError(f"{self} still depends on a tile axis")
        return total


def variable(term: Term) -> Affine:
    """The expression that is one term."""
    return Affine(0, ((term, 1),))


@dataclass(frozen=True)
class Mask:
    """A conjunction of `expression >= 0` over the axes of a tile and the loops around it."""

    constraints: tuple[Affine, ...] = ()

    def __and__(self, other: Mask) -> Mask:
        return Mask(
            (*self.constraints, *(c for c in other.constraints if c not in self.constraints))
        )

    @property
    def always(self) -> bool:
        """True when every constraint holds for all values of its terms."""
        return all(c.bounds[0] >= 0 for c in self.constraints)

    @property
    def never(self) -> bool:
        """True when some constraint holds for no value."""
        return any(c.bounds[1] < 0 for c in self.constraints)

    def simplified(self) -> Mask:
        """Without the constraints that always hold."""
        return Mask(tuple(c for c in self.constraints if c.bounds[0] < 0))

    def keeps(self, expression: Affine, low: int, high: int) -> bool:
        """True when the expression lies in low..high wherever the mask holds. Decided by bounds,
        and by trying every value of the terms when bounds do not tell and there are few."""
        least, most = expression.bounds
        if least >= low and most <= high:
            return True
        if -self.upper_bound(expression * -1) >= low and self.upper_bound(expression) <= high:
            return True
        return self._keeps_exactly(expression, low, high)

    def _keeps_exactly(self, expression: Affine, low: int, high: int) -> bool:
        involved = Mask(tuple(c for c in self.constraints if c.bounds[0] < 0))
        variables: dict[LoopVariable | Axis, None] = dict.fromkeys(expression.variables)
        for constraint in involved.constraints:
            variables.update(dict.fromkeys(constraint.variables))
        sizes = [term.size for term in variables]
        if not involved.constraints or math.prod(sizes) > MAX_ENUMERATION:
            return False
        grids = np.ix_(*(np.asarray(term.values, dtype=np.int64) for term in variables))
        values = dict(zip(variables, grids, strict=True))
        holds = np.ones((1,) * len(sizes), dtype=bool)
        for constraint in involved.constraints:
            holds = holds & (constraint.evaluate_all(values) >= 0)
        reached = expression.evaluate_all(values)
        return not bool((holds & ((reached < low) | (reached > high))).any())

    def upper_bound(self, expression: Affine) -> int:
        """The largest value of an expression where the mask holds, as far as one or two of its
        constraints can tell (never too small)."""
        best = expression.bounds[1]
        for first in self.constraints:
            candidate = _bounded_by(expression, first)
            best = min(best, candidate.bounds[1])
            for second in self.constraints:
                if second is not first:
                    best = min(best, _bounded_by(candidate, second).bounds[1])
        return best


def _bounded_by(expression: Affine, constraint: Affine) -> Affine:
    """`expression + k * constraint` (>= expression where the mask holds) with k >= 0 chosen to
    cancel a shared term."""
    for term, coefficient in constraint.terms:
        mine = expression.coefficient(term)
        if mine and (mine > 0) != (coefficient > 0) and mine % coefficient == 0:
            return expression + constraint * (-mine // coefficient)
    return expression


@dataclass(frozen=True)
class Indirect:
    """A run-time index: element `index[p, ...]` times `stride` is added to the address.

    `index` broadcasts against the access it belongs to; values lie in 0..size-1.
    """

    index: Access
    stride: int
    size: int


@dataclass(frozen=True)
class Access:
    """A tile of a tensor: which elements, in which order.

    Element (a0, a1, ...) of the tile lies at `offset + sum(a_k * strides[k])`, in elements of
    `dtype`, from the start of the block that `block` selects. On-chip, axis 0 is the partition axis
    and a step along it is the row length of the block; in HBM there is one block.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    block: tuple[Affine, ...]
    offset: Affine
    strides: tuple[int, ...]
    dtype: np.dtype
    indirect: tuple[Indirect, ...] = field(default=())
    mask: Mask = field(
        default_factory=Mask
    )  # operand masking, `tile[mask]`, over this shape's axes

    @property
    def loop_variables(self) -> frozenset[LoopVariable]:
        """The loops whose iterations touch different elements."""
        found = self.offset.loop_variables
        for index in self.block:
            found |= index.loop_variables
        for item in self.indirect:
            found |= item.index.loop_variables
        return found

    @property
    def elements(self) -> int:
        """How many elements the tile has."""
        return math.prod(self.shape)

    @property
    def partitions(self) -> int:
        """The length of the partition axis."""
        return self.shape[0] if self.shape else 1

    @property
    def free_elements(self) -> int:
        """Elements per partition."""
        return self.elements // max(self.partitions, 1)

    @property
    def bytes(self) -> int:
        """Size of the tile in bytes."""
        return self.elements * self.dtype.itemsize

    def broadcast_to(self, shape: tuple[int, ...]) -> Access:
        """The tile repeated along axes of length 1 (stride 0); ValueError when it does not fit."""
        lead = len(shape) - len(self.shape)
        if lead < 0:
            raise ValueError(f"cannot broadcast {self.shape} to {shape}")
        own = (1,) * lead + self.shape
        strides = (0,) * lead + self.strides
        out: list[int] = []
        for size, wanted, stride in zip(own, shape, strides, strict=True):
            if size == wanted:
                out.append(stride)
            elif size == 1:
                out.append(0)
            else:
                raise ValueError(f"cannot broadcast {self.shape} to {shape}")
        return replace(self, shape=shape, strides=tuple(out))

    def same_elements(self, other: Access) -> bool:
        """True when both describe the same elements in the same order in every iteration."""
        return (
            self.tensor is other.tensor
            and self.shape == other.shape
            and self.block == other.block
            and self.offset == other.offset
            and self.dtype == other.dtype
            and self.indirect == other.indirect
            and all(
                a == b or size == 1
                for a, b, size in zip(self.strides, other.strides, self.shape, strict=True)
            )
        )
