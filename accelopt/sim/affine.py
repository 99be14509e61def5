"""Affine expressions of loop indices and tile axes: the numbers that kernels compute addresses with.

An expression is kept as a constant and factors of its variables, so that questions (how large can it
get? which loops does it depend on?) are answered without running anything. Division and remainder
that do not come out even stay as variables of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


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
class Quotient:
    """`inner // divisor`, as a variable of its own."""

    inner: Affine
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low, high = self.inner.bounds
        return (low // self.divisor, high // self.divisor)


@dataclass(frozen=True, slots=True)
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


Term = LoopVariable | TileAxis | Quotient | Remainder
NO_VARIABLES: frozenset[LoopVariable] = frozenset()


def _merge(pairs: Iterable[tuple[Term, int]]) -> tuple[tuple[Term, int], ...]:
    merged: dict[Term, int] = {}
    for term, coefficient in pairs:
        merged[term] = merged.get(term, 0) + coefficient
    return tuple((term, coefficient) for term, coefficient in merged.items() if coefficient)


@dataclass(frozen=True, slots=True)
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

    def __rsub__(self, other: int) -> Affine:
        return self * -1 + other

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
        if not self.terms:
            return low, high
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
        if not self.terms:
            return NO_VARIABLES
        found: set[LoopVariable] = set()
        for term, _ in self.terms:
            if isinstance(term, LoopVariable):
                found.add(term)
            elif isinstance(term, (Quotient, Remainder)):
                found |= term.inner.loop_variables
        return frozenset(found)

    @property
    def axes(self) -> frozenset[TileAxis]:
        """Every tile axis the value depends on, also inside quotients and remainders."""
        found: set[TileAxis] = set()
        for term, _ in self.terms:
            if isinstance(term, TileAxis):
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
            if isinstance(term, TileAxis):
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
    def variables(self) -> tuple[LoopVariable | TileAxis, ...]:
        """Loop variables and axes, each once, also those inside quotients and remainders."""
        found: dict[LoopVariable | TileAxis, None] = {}
        for term, _ in self.terms:
            if isinstance(term, (Quotient, Remainder)):
                found.update(dict.fromkeys(term.inner.variables))
            else:
                found[term] = None
        return tuple(found)

    def evaluate_many(self, values: Mapping[Any, np.ndarray]) -> np.ndarray:
        """As `evaluate`, for arrays of loop values, and of axes where it holds some, that broadcast
        against each other (int64)."""
        total: np.ndarray = np.asarray(self.constant, dtype=np.int64)
        for term, coefficient in self.terms:
            if isinstance(term, Quotient):
                total = total + coefficient * (term.inner.evaluate_many(values) // term.divisor)
            elif isinstance(term, Remainder):
                total = total + coefficient * (term.inner.evaluate_many(values) % term.divisor)
            else:
                total = total + coefficient * values[term]
        return total


ZERO = Affine()


def variable(term: Term) -> Affine:
    """The expression that is one term."""
    return Affine(0, ((term, 1),))
