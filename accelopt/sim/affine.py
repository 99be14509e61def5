"""Affine expressions of loop indices and tile axes: the numbers that kernels compute addresses with.

An expression is kept as a constant and factors of its variables, so that questions (how large can it
get? which loops does it depend on?) are answered without running anything. Division and remainder
that do not come out even stay as variables of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelopt.algorithm.linear import Division, LinearSum


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class TileAxis:
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


@dataclass(frozen=True, slots=True)
class Quotient(Division):
    """`inner // divisor`, as a variable of its own."""

    inner: Affine
    divisor: int


@dataclass(frozen=True, slots=True)
class Remainder(Division):
    """`inner % divisor`, as a variable of its own."""

    inner: Affine
    divisor: int

    def of(self, value: Any) -> Any:
        """As `Division.of`."""
        return value % self.divisor

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low, high = self.inner.bounds
        if low // self.divisor == high // self.divisor:
            return (low % self.divisor, high % self.divisor)
        return (0, self.divisor - 1)


Term = LoopVariable | TileAxis | Quotient | Remainder
NO_VARIABLES: frozenset[LoopVariable] = frozenset()


@dataclass(frozen=True, slots=True)
class Affine(LinearSum[Term]):
    """`constant + sum(coefficient * term)` over integers, the terms as they came."""

    constant: int = 0
    terms: tuple[tuple[Term, int], ...] = ()

    def __floordiv__(self, divisor: int) -> Affine:
        """Exact when every coefficient divides; otherwise a Quotient term."""
        divisible = Affine(0, tuple((t, c // divisor) for t, c in self.terms if c % divisor == 0))
        rest = Affine(self.constant, tuple((t, c) for t, c in self.terms if c % divisor))
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return divisible + low // divisor
        return divisible + variable(Quotient(rest, divisor))

    def __mod__(self, divisor: int) -> Affine:
        """Terms that are multiples of the divisor fall away; otherwise a Remainder term."""
        rest = Affine(self.constant, tuple((t, c) for t, c in self.terms if c % divisor))
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return rest - (low // divisor) * divisor
        return variable(Remainder(rest, divisor))

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
    def loop_variables(self) -> frozenset[LoopVariable]:
        """Every loop variable the value depends on, also inside quotients and remainders."""
        if not self.terms:
            return NO_VARIABLES
        return frozenset(one for one in self.variables if isinstance(one, LoopVariable))

    @property
    def axes(self) -> frozenset[TileAxis]:
        """Every tile axis the value depends on, also inside quotients and remainders."""
        return frozenset(one for one in self.variables if isinstance(one, TileAxis))

    def split(self) -> tuple[Affine, dict[int, int]]:
        """The part without axes, and the coefficient of each axis by its (negative) position."""
        strides: dict[int, int] = {}
        rest: list[tuple[Term, int]] = []
        for term, coefficient in self.terms:
            if isinstance(term, TileAxis):
                strides[term.position] = strides.get(term.position, 0) + coefficient
            else:
                rest.append((term, coefficient))
        return Affine(self.constant, tuple(rest)), strides


ZERO = Affine()


def variable(term: Term) -> Affine:
    """The expression that is one term."""
    return Affine(0, ((term, 1),))
