"""Sums of whole numbers times terms: the arithmetic that addresses and indices share.

A sum is a constant and factors of its terms. A term is a variable (a loop, an axis), or what is left
of a sum that a number divides where that does not come out even (`Division`). Two kinds of sums say
which terms they have, in which order, and how they are divided: `sim.affine` keeps the address of a
kernel in the form that its author wrote, `algorithm.index` in one where equal functions look equal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np

T = TypeVar("T")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """How many elements further on the next one along each axis lies."""
    return tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))


@functools.lru_cache(maxsize=4096)
def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the same elements in another shape, or None when that needs a copy."""
    pairs = [(n, s) for n, s in zip(shape, strides, strict=True) if n > 1]
    result: list[int] = []
    used = 0
    available, stride = 1, 1
    for size in reversed(wanted):
        if size < 2:
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


class Division:
    """A sum divided by a number, as a term of its own: its floor, if a subclass does not say otherwise."""

    __slots__ = ()
    inner: LinearSum[Any]
    divisor: int

    def of(self, value: Any) -> Any:
        """The same of another sum, of a number or of an array of numbers in the place of `inner`."""
        return value // self.divisor

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low, high = self.inner.bounds
        return low // self.divisor, high // self.divisor


class LinearSum(Generic[T]):
    """`constant + sum(coefficient * term)` over integers; each term stands once, none with 0."""

    __slots__ = ()
    constant: int
    terms: tuple[tuple[T, int], ...]

    def _new(self, constant: int, terms: tuple[tuple[T, int], ...]) -> Self:
        return type(self)(constant, terms)  # type: ignore[call-arg]

    @staticmethod
    def _in_order(terms: dict[T, int]) -> Iterable[tuple[T, int]]:
        """The terms and their coefficients, as this kind of sum orders them: as they came."""
        return terms.items()

    def __add__(self, other: Self | int) -> Self:
        if isinstance(other, int):
            return self._new(self.constant + other, self.terms)
        constant = self.constant + other.constant
        if not other.terms or not self.terms:
            return self._new(constant, self.terms or other.terms)
        merged = dict(self.terms)
        for term, coefficient in other.terms:
            merged[term] = merged.get(term, 0) + coefficient
        return self._new(constant, tuple(pair for pair in self._in_order(merged) if pair[1]))

    def __sub__(self, other: Self | int) -> Self:
        return self + other * -1

    def __rsub__(self, other: int) -> Self:
        return self * -1 + other

    def __mul__(self, factor: int) -> Self:
        if factor == 1:
            return self
        if factor == 0:
            return self._new(0, ())
        return self._new(self.constant * factor, tuple((t, c * factor) for t, c in self.terms))

    def __floordiv__(self, divisor: int) -> Self:
        raise NotImplementedError

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        raise NotImplementedError

    @property
    def is_constant(self) -> bool:
        """True when no term is left."""
        return not self.terms

    @property
    def is_affine(self) -> bool:
        """True without divisions."""
        return not any(isinstance(term, Division) for term, _ in self.terms)

    @property
    def variables(self) -> tuple[Any, ...]:
        """Every term that is no division, each once, also those inside divisions."""
        found: dict[Any, None] = {}
        for term, _ in self.terms:
            inside = term.inner.variables if isinstance(term, Division) else (term,)
            found.update(dict.fromkeys(inside))
        return tuple(found)

    def coefficient(self, term: T) -> int:
        """The factor of a term, 0 when absent."""
        return next((c for t, c in self.terms if t == term), 0)

    def substitute(self, values: Mapping[Any, Self]) -> Self:
        """Replaces variables by sums, also inside divisions, which may come out even then."""
        result = self._new(self.constant, ())
        for term, coefficient in self.terms:
            if term in values:
                value = values[term]
            elif isinstance(term, Division):
                value = term.of(term.inner.substitute(values))
            else:
                value = self._new(0, ((term, 1),))
            result = result + value * coefficient
        return result

    def evaluate(self, values: Mapping[Any, Any]) -> Any:
        """The value where the variables have these: numbers, or arrays that broadcast against each
        other; a constant is a number."""
        total: Any = self.constant
        for term, coefficient in self.terms:
            if isinstance(term, Division):
                total = total + coefficient * term.of(term.inner.evaluate(values))
            else:
                total = total + coefficient * values[term]
        return total

    def evaluate_many(self, values: Mapping[Any, Any]) -> np.ndarray:
        """As `evaluate`, always an array (int64)."""
        return np.asarray(self.evaluate(values), dtype=np.int64)
