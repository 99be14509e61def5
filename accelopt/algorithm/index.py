"""Quasi-affine indices over whole axes, in a form where equal functions look equal.

An index is `constant + sum(coefficient * term)`; a term is an axis or the floor of an index by a
number. A remainder is written with a floor (`e % d = e - d * (e // d)`), so an axis that a kernel
cut into tiles and blocks joins again by cancelling: `128 * (m // 128) + m % 128` is `m`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from accelopt.algorithm.linear import Division, LinearSum, row_major


class CachedHash:
    """A record whose hash is computed once: indices and values share their parts."""

    __slots__ = ("_hash",)
    __dataclass_fields__: ClassVar[dict[str, object]]
    _hash: int

    def cached_hash(self) -> int:
        """The hash of the fields."""
        try:
            return self._hash
        except AttributeError:
            fields = tuple(getattr(self, name) for name in self.__dataclass_fields__)
            object.__setattr__(self, "_hash", hash((type(self).__name__, fields)))
            return self._hash


class _Remembered(CachedHash):
    """A record that keeps what is asked of it often: of an index its parts and bounds, of a floor
    its place among the terms."""

    __slots__ = ("_atoms", "_bounds", "_place")
    _atoms: tuple[int, tuple[Atom, ...]]
    _bounds: tuple[int, int]
    _place: tuple[object, ...]


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
class Floor(_Remembered, Division):
    """`inner // divisor`, where that does not come out as a sum of simpler terms."""

    inner: Index
    divisor: int

    __hash__ = CachedHash.cached_hash

    @property
    def place(self) -> tuple[object, ...]:
        """What floors are ordered by."""
        try:
            return self._place
        except AttributeError:
            terms = tuple(_order(pair) for pair in self.inner.terms)
            place = (1, self.divisor, self.inner.constant, len(terms), *terms)
            object.__setattr__(self, "_place", place)
            return self._place


Term = Axis | Floor


class Atom(NamedTuple):
    """A part of an index: `coefficient` times something from `low` to `high`."""

    part: Index
    coefficient: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Index(_Remembered, LinearSum[Term]):
    """`constant + sum(coefficient * term)`, terms in one order, none with coefficient 0."""

    constant: int = 0
    terms: tuple[tuple[Term, int], ...] = ()

    __hash__ = CachedHash.cached_hash

    @staticmethod
    def _in_order(terms: dict[Term, int]) -> Iterable[tuple[Term, int]]:
        return sorted(terms.items(), key=_order)

    def __floordiv__(self, divisor: int) -> Index:
        whole, rest = self._divided(divisor)
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return whole + low // divisor
        lowered = Index(0, tuple((t, c // divisor) for t, c in rest.terms if c // divisor))
        low, high = (rest - lowered * divisor).bounds
        if low // divisor == high // divisor:
            return whole + lowered + low // divisor
        # Of one digit of a number the floor is that of the number: `n % 8 // 2` is `n // 2 - 4 * (n // 8)`.
        above = tuple(
            (t, c // divisor) for t, c in rest.terms if isinstance(t, Floor) and not c % divisor
        )
        if above:
            return whole + Index(0, above) + (rest - Index(0, above) * divisor) // divisor
        for step in sorted({math.gcd(a.coefficient, divisor) for a in rest.atoms[1]}, reverse=True):
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
        if len(rest.terms) == 1 and rest.terms[0][0].bounds == (
            0,
            1,
        ):  # of two values: a straight line
            first = rest.constant // divisor
            step = (rest.constant + rest.terms[0][1]) // divisor - first
            return whole + first + Index(0, ((rest.terms[0][0], step),) if step else ())
        return whole + Index(0, ((Floor(rest, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        return self - (self // divisor) * divisor

    def _divided(self, divisor: int) -> tuple[Index, Index]:
        """`(whole, rest)` with `self = whole * divisor + rest`, the rest being made of the atoms
        whose coefficients do not divide, and less than a divisor of the constant."""
        constant, atoms = self.atoms
        whole, rest = Index(constant // divisor), Index(constant % divisor)
        for atom in atoms:
            if atom.coefficient % divisor:
                rest = rest + atom.part * atom.coefficient
            else:
                whole = whole + atom.part * (atom.coefficient // divisor)
        return whole, rest

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value when the axes vary independently. Digits of one number
        (`e // d - r * (e // (r * d))` lies in 0..r-1) are counted as such."""
        try:
            return self._bounds
        except AttributeError:
            low, atoms = self.atoms
            high = low
            for atom in atoms:
                ends = (atom.coefficient * atom.low, atom.coefficient * atom.high)
                low, high = low + min(ends), high + max(ends)
            object.__setattr__(self, "_bounds", (low, high))
            return self._bounds

    @property
    def atoms(self) -> tuple[int, tuple[Atom, ...]]:
        """A constant and the parts that vary independently, which add up to the index: axes, and
        the digits that floors make of an index."""
        try:
            return self._atoms
        except AttributeError:
            object.__setattr__(self, "_atoms", _atoms_of(self))
            return self._atoms

    @property
    def axes(self) -> frozenset[Axis]:
        """Every axis that the value depends on, also inside floors."""
        return frozenset(self.variables)

    def substitute(self, values: Mapping[Any, Index]) -> Index:
        """As `LinearSum.substitute`."""
        if any(axis in values for axis in self.variables):
            return LinearSum.substitute(self, values)
        return self

    def evaluate(self, values: Mapping[Any, Any]) -> np.ndarray:
        """As `LinearSum.evaluate`, always an array (int64)."""
        return np.asarray(LinearSum.evaluate(self, values), dtype=np.int64)

    def __str__(self) -> str:
        return _text(self)


ZERO = Index()


def index_of(term: Term) -> Index:
    """The index that is one term."""
    return Index(0, ((term, 1),))


def element_number(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    """The row-major number of an element."""
    number = Index()
    for index, extent in zip(indices, shape, strict=True):
        number = number * extent + index
    return number


def digits(number: Index, shape: Sequence[int]) -> list[Index]:
    """The indices of the element with a row-major number."""
    steps = enumerate(zip(shape, row_major(shape), strict=True))
    return [
        ZERO if extent == 1 else number // step % extent if n else number // step
        for n, (extent, step) in steps
    ]


def _order(pair: tuple[Term, int]) -> tuple[object, ...]:
    term, coefficient = pair
    if isinstance(term, Axis):
        return (0, term.name, term.extent, coefficient)
    return (*term.place, coefficient)


def _atoms_of(index: Index) -> tuple[int, tuple[Atom, ...]]:
    rest, constant = dict(index.terms), index.constant
    families: dict[Index, list[Floor]] = {}
    for term, _ in index.terms:
        if isinstance(term, Floor):
            families.setdefault(term.inner, []).append(term)
    found: list[Atom] = []
    for inner, floors in families.items():
        held = _multiple(rest, inner)
        constant -= held * inner.constant
        for term, coefficient in inner.terms if held else ():
            rest[term] -= held * coefficient
        digit, below = inner, 1
        for floor in sorted(floors, key=lambda floor: floor.divisor):
            ratio, odd = divmod(floor.divisor, below)
            if odd:
                continue
            if held:
                found.append(Atom(digit - index_of(floor) * ratio, held, 0, ratio - 1))
            held = rest.pop(floor, 0) + held * ratio
            digit, below = index_of(floor), floor.divisor
        if held:
            found.append(Atom(digit, held, *digit.terms[0][0].bounds))
    found += [
        Atom(index_of(t), coefficient, *t.bounds) for t, coefficient in rest.items() if coefficient
    ]
    return constant, tuple(found)


def _multiple(terms: Mapping[Term, int], inner: Index) -> int:
    """How many times an index is part of the sum of some terms."""
    term, coefficient = inner.terms[0]
    times, odd = divmod(terms.get(term, 0), coefficient)
    whole = not odd and all(terms.get(t, 0) == times * c for t, c in inner.terms)
    return times if whole else 0


def _text(index: Index) -> str:
    constant, atoms = index.atoms
    pieces = [(atom.coefficient, _atom_text(atom)) for atom in atoms]
    pieces.sort(key=lambda piece: "%" in piece[1])
    if constant or not pieces:
        pieces.append((constant, ""))
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


def _atom_text(atom: Atom) -> str:
    """An axis, `e // d`, `e % d` or `e // c % d`."""
    if len(atom.part.terms) == 1:
        term = atom.part.terms[0][0]
        if isinstance(term, Floor):
            return f"{_bracketed(term.inner)} // {term.divisor}"
        return term.name
    top = max((t for t, _ in atom.part.terms if isinstance(t, Floor)), key=lambda f: f.divisor)
    below = top.divisor // (atom.high + 1)
    inner = _bracketed(top.inner)
    return f"{inner} // {below} % {atom.high + 1}" if below > 1 else f"{inner} % {atom.high + 1}"


def _bracketed(index: Index) -> str:
    text = _text(index)
    return f"({text})" if " " in text or "*" in text else text
