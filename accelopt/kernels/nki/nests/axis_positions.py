"""Places along axes, free names, and numbers, as they stand in the text of a kernel."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class At:
    """A place along an axis: a number plus multiples of loop variables."""

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: At | int) -> At:
        if isinstance(other, int):
            return At(self.constant + other, self.terms)
        if not other.terms:
            return At(self.constant + other.constant, self.terms) if other.constant else self
        return At(self.constant + other.constant, self.terms + other.terms)

    def __mul__(self, factor: int) -> At:
        if factor == 1:
            return self
        return At(self.constant * factor, tuple([(v, c * factor) for v, c in self.terms]))

    def __str__(self) -> str:
        parts = [name if factor == 1 else f"{name} * {factor}" for name, factor in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


START = At()


def variable(name: str | None) -> At:
    """A loop variable; 0 for a loop that was not needed."""
    return At(0, ((name, 1),)) if name else START


def without_number(name: str) -> str:
    """The name that was wanted, of one with a number since it was taken."""
    wanted, _, number = name.rpartition("_")
    return wanted if number.isdigit() else name


def free_name(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken; it is taken then."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


class FreeNames:
    """Names that are not taken yet."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = {"nl", "nisa", "nki", "kernel", *taken}

    def new(self, wanted: str) -> str:
        """The wanted name, with a number when it is taken."""
        return free_name(re.sub(r"\W", "_", wanted), self.taken)


@dataclass(frozen=True)
class Span:
    """The part of an axis that one access takes. On partitions it has `room` for as many elements, if for more.
    Of one with `runs`, which begin and end there, elements between those are left out."""

    start: At
    width: int
    room: int = 0
    runs: tuple[tuple[int, int], ...] = ()

    @property
    def lanes(self) -> int:
        """Elements that it has room for."""
        return max(self.width, self.room)


@functools.lru_cache(maxsize=4096)
def whole(extent: int) -> Span:
    """All of an axis."""
    return Span(At(), extent)


Number = Callable[[float], float]
FORMS: Mapping[str, tuple[Number, Number]] = {
    "{}": (lambda value: value, lambda made: made),
    "-{}": (lambda value: -value, lambda made: -made),
    "1 / {}": (
        lambda value: 1 / value if value else math.nan,
        lambda made: 1 / made if made else math.nan,
    ),
    "-1 / {}": (
        lambda value: -1 / value if value else math.nan,
        lambda made: -1 / made if made else math.nan,
    ),
    "1 - {}": (lambda value: 1 - value, lambda made: 1 - made),
    "{} - 1": (lambda value: value - 1, lambda made: made + 1),
    "1 + {}": (lambda value: 1 + value, lambda made: made - 1),
}
"""What kernels make of a plain argument, as text, and how it comes of what was made."""
LARGEST_PART = 1 << 16
"""Of how many parts of a plain argument one is known: the mean of so many elements."""


def number_text(number: float, plain: Mapping[float, str]) -> str:
    """A number as text: a plain argument or something simple that is made of it, by the argument's name."""
    if not math.isfinite(number):
        return f'float("{number}")'
    for value, name in plain.items():
        for form, (made, back) in FORMS.items():
            # In fp32 the inverse of an inverse may be another number: one way will do.
            ways = ((made(value), number), (back(number), value))
            if any(np.float32(one) == np.float32(other) for one, other in ways):
                return form.format(name)
        parts = round(value / number) if number else 0
        if 1 < abs(parts) <= LARGEST_PART and np.float32(value / parts) == np.float32(number):
            return f"{name} / {parts}"
    return repr(number)
