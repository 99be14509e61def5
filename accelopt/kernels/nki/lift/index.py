"""Quasi-affine indices over whole axes, in a form where equal functions look equal.

An index is `constant + sum(coefficient * term)`; a term is an axis or the floor of an index by a
number. A remainder is written with a floor (`e % d = e - d * (e // d)`), so an axis that a kernel
cut into tiles and blocks joins again by cancelling: `128 * (m // 128) + m % 128` is `m`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """A whole axis of a problem: it takes 0..extent-1."""

    name: str
    extent: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        return 0, max(self.extent - 1, 0)


@dataclass(frozen=True, slots=True)
class Floor:
    """`inner // divisor`, where that does not come out as a sum of simpler terms."""

    inner: Index
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low, high = self.inner.bounds
        return low // self.divisor, high // self.divisor


Term = Axis | Floor


@dataclass(frozen=True, slots=True)
class Index:
    """`constant + sum(coefficient * term)`, terms in one order, none with coefficient 0."""

    constant: int = 0
    terms: tuple[tuple[Term, int], ...] = ()

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.constant + other, self.terms)
        if not other.terms or not self.terms:
            return Index(self.constant + other.constant, self.terms or other.terms)
        return _collected(self.constant + other.constant, (*self.terms, *other.terms))

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        if not factor:
            return ZERO
        return Index(self.constant * factor, tuple((t, c * factor) for t, c in self.terms))

    def __floordiv__(self, divisor: int) -> Index:
        whole, rest = self._divided(divisor)
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return whole + low // divisor
        for step in sorted({math.gcd(c, divisor) for _, c in rest.terms}, reverse=True):
            # With coarse = step * x and fine in 0..step-1, (coarse + fine) // divisor is
            # x // (divisor / step).
            coarse, fine = rest._divided(step)
            low, high = fine.bounds
            if step > 1 and low // step == high // step:
                return whole + (coarse + low // step) // (divisor // step)
        if len(rest.terms) == 1 and isinstance(rest.terms[0][0], Floor) and rest.terms[0][1] == 1:
            inner = rest.terms[0][0]
            rest = inner.inner + rest.constant * inner.divisor
            return whole + rest // (divisor * inner.divisor)
        return whole + Index(0, ((Floor(rest, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        return self - (self // divisor) * divisor

    def _divided(self, divisor: int) -> tuple[Index, Index]:
        """`(whole, rest)` with `self = whole * divisor + rest`, the terms of the rest being those
        whose coefficients do not divide."""
        constant, left = divmod(self.constant, divisor)
        whole = tuple((t, c // divisor) for t, c in self.terms if c % divisor == 0)
        rest = tuple((t, c) for t, c in self.terms if c % divisor)
        return Index(constant, whole), Index(left, rest)

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value when the axes vary independently. Digits of one number
        (`e // d - r * (e // (r * d))` lies in 0..r-1) are counted as such."""
        low = high = self.constant
        rest = self
        for term, coefficient in self.terms:
            digit = _digit(rest, term, coefficient) if isinstance(term, Floor) else None
            if digit is not None:
                rest, most = digit
                low, high = low + min(most, 0), high + max(most, 0)
        for term, coefficient in rest.terms:
            ends = [coefficient * end for end in term.bounds]
            low, high = low + min(ends), high + max(ends)
        return low + rest.constant - self.constant, high + rest.constant - self.constant

    @property
    def axes(self) -> frozenset[Axis]:
        """Every axis that the value depends on, also inside floors."""
        found: set[Axis] = set()
        for term, _ in self.terms:
            found |= {term} if isinstance(term, Axis) else term.inner.axes
        return frozenset(found)

    @property
    def is_affine(self) -> bool:
        """True without floors."""
        return all(isinstance(term, Axis) for term, _ in self.terms)

    def coefficient(self, term: Term) -> int:
        """The factor of a term, 0 when absent."""
        return next((c for t, c in self.terms if t == term), 0)

    def substitute(self, values: Mapping[Axis, Index]) -> Index:
        """Replaces axes by indices."""
        if not any(axis in values for axis in self.axes):
            return self
        result = Index(self.constant)
        for term, coefficient in self.terms:
            if isinstance(term, Floor):
                value = term.inner.substitute(values) // term.divisor
            else:
                value = values.get(term, Index(0, ((term, 1),)))
            result = result + value * coefficient
        return result

    def evaluate(self, values: Mapping[Axis, np.ndarray]) -> np.ndarray:
        """The numbers for given values of the axes, which broadcast against each other (int64)."""
        total: np.ndarray = np.asarray(self.constant, dtype=np.int64)
        for term, coefficient in self.terms:
            if isinstance(term, Floor):
                total = total + coefficient * (term.inner.evaluate(values) // term.divisor)
            else:
                total = total + coefficient * values[term]
        return total

    def __str__(self) -> str:
        return _text(self)


ZERO = Index()


def index_of(term: Term) -> Index:
    """The index that is one term."""
    return Index(0, ((term, 1),))


def _collected(constant: int, pairs: Iterable[tuple[Term, int]]) -> Index:
    merged: dict[Term, int] = {}
    for term, coefficient in pairs:
        merged[term] = merged.get(term, 0) + coefficient
    kept = [(term, coefficient) for term, coefficient in merged.items() if coefficient]
    return Index(constant, tuple(sorted(kept, key=_order)))


def _order(pair: tuple[Term, int]) -> tuple[object, ...]:
    term, coefficient = pair
    if isinstance(term, Axis):
        return (0, term.name, term.extent, coefficient)
    return (1, str(term.inner), term.divisor, coefficient)


def _digit(index: Index, term: Floor, coefficient: int) -> tuple[Index, int] | None:
    """The index without a multiple of one digit that ends at `term`, and the digit's largest
    value times that multiple; None where it holds no such digit."""
    if index.coefficient(term) != coefficient:
        return None
    starts = [
        (t, t.divisor)
        for t, _ in index.terms
        if isinstance(t, Floor) and t.inner == term.inner and t.divisor < term.divisor
    ]
    starts.sort(key=lambda start: -start[1])
    for start, divisor in (*starts, (None, 1)):
        ratio, odd = divmod(term.divisor, divisor)
        if odd or coefficient % ratio:
            continue
        factor = -coefficient // ratio
        begin = term.inner if start is None else index_of(start)
        if all(_within(factor * c, index.coefficient(t)) for t, c in begin.terms):
            return index - (begin * factor + index_of(term) * coefficient), factor * (ratio - 1)
    return None


def _within(part: int, whole: int) -> bool:
    """True when `part` can be taken from `whole` without changing its sign."""
    return 0 < part <= whole or whole <= part < 0


def _text(index: Index) -> str:
    pieces: list[tuple[int, str]] = []
    rest = index
    for term, coefficient in index.terms:
        if isinstance(term, Floor) and rest.coefficient(term) == coefficient:
            # e - d * (e // d) reads as e % d.
            factor, odd = divmod(-coefficient, term.divisor)
            inner = term.inner
            if (
                not odd
                and factor
                and all(_within(factor * c, rest.coefficient(t)) for t, c in inner.terms)
            ):
                rest = rest - inner * factor - index_of(term) * coefficient
                pieces.append((factor, f"{_bracketed(inner)} % {term.divisor}"))
    plain = [
        (c, t.name if isinstance(t, Axis) else f"{_bracketed(t.inner)} // {t.divisor}")
        for t, c in rest.terms
    ]
    pieces = plain + pieces
    if rest.constant or not pieces:
        pieces.append((rest.constant, ""))
    text = ""
    for number, (coefficient, name) in enumerate(pieces):
        size = abs(coefficient)
        bare = size == 1 and (number or coefficient > 0)  # % and // bind as * does
        wrapped = name if bare or " " not in name else f"({name})"
        body = str(size) if not name else wrapped if size == 1 else f"{size}*{wrapped}"
        sign = (
            ("-" if coefficient < 0 else "")
            if not number
            else (" - " if coefficient < 0 else " + ")
        )
        text += sign + body
    return text


def _bracketed(index: Index) -> str:
    text = _text(index)
    return f"({text})" if " " in text or "*" in text else text
