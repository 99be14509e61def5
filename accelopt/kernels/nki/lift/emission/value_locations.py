"""Where values lie in a lowered kernel, and the text that names a part of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from accelopt.algorithm.index import Axis, Index
from accelopt.kernels.nki.lift.emission.graph import NotLowered


@dataclass(frozen=True)
class At:
    """A place along an axis: a number plus multiples of loop variables."""

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: At | int) -> At:
        if isinstance(other, int):
            return At(self.constant + other, self.terms)
        return At(self.constant + other.constant, self.terms + other.terms)

    def __mul__(self, factor: int) -> At:
        return At(self.constant * factor, tuple((v, c * factor) for v, c in self.terms))

    def __str__(self) -> str:
        parts = [name if factor == 1 else f"{name} * {factor}" for name, factor in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


START = At()

BANK = 512
"""fp32 elements of a PSUM bank, and the longest row that a matmul moves."""


@dataclass(frozen=True)
class Spot:
    """Where in a block of rows the work is: the tile of rows, the part of the feature axis, counted
    from its beginning (`start`) and from that of the part that was loaded (`offset`)."""

    row: At = START
    start: At = START
    offset: At = START
    width: int = 0
    block: int = 0


def variable(name: str | None) -> At:
    """A loop variable; 0 for a loop that was not needed."""
    return At(0, ((name, 1),)) if name else START


def part(start: At, width: int, whole: int) -> str:
    """A slice of `width` elements of `whole`."""
    if width == whole:
        return ":"
    if not start.terms:
        return f"{start.constant}:{start.constant + width}"
    return f"nl.ds({start}, {width})"


def strided(start: At, width: int, tile: Tile) -> str:
    """A slice of a window: of `width` positions from `start`."""
    begin = start * tile.stride + tile.first
    end = (width - 1) * tile.stride + 1
    if begin.terms and tile.stride > 1:
        raise NotLowered("a part of a row at a stride")
    if begin.terms:
        return f"nl.ds({begin}, {end})"
    step = f":{tile.stride}" if tile.stride > 1 else ""
    return f"{begin.constant}:{begin.constant + end}{step}"


Kind = Literal["number", "kept", "temporary", "sums", "vector", "column"]


@dataclass
class Tile:
    """A tile on the chip. `kept` holds all of a feature axis for a block of rows, `temporary` the
    part that one pass of a loop works on, `sums` is in PSUM, `number` has one element a row;
    `vector` (along the free axis, the same on every partition) and `column` (along partitions) have
    no rows."""

    name: str
    kind: Kind
    prefix: str = ""  # an index between partition and free axis, `[:, j, ...]`
    psum: bool = False
    first: int = 0  # of a part of a window: where it begins,
    stride: int = 0  # and how far apart its elements are


class FreeNames:
    """Names that are not taken yet."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = {"nl", "nisa", "nki", "kernel", *taken}

    def new(self, wanted: str) -> str:
        """The wanted name, with a number when it is taken."""
        name = re.sub(r"\W", "_", wanted)
        number = 2
        unique = name
        while unique in self._taken:
            unique = f"{name}_{number}"
            number += 1
        self._taken.add(unique)
        return unique


@dataclass(frozen=True)
class Span:
    """The part of an axis that one access takes."""

    start: At
    width: int


def subscript(
    indices: tuple[Index, ...],
    shape: tuple[int, ...],
    spans: dict[Axis, Span],
    loops: dict[Axis, At],
) -> str:
    """The subscript of an array in HBM: axes of `spans` are slices, others are loop variables."""
    return ", ".join(subscripts(indices, shape, spans, loops))


def subscripts(
    indices: tuple[Index, ...],
    shape: tuple[int, ...],
    spans: dict[Axis, Span],
    loops: dict[Axis, At],
) -> list[str]:
    """The same, a text for each dimension."""
    pieces: list[str] = []
    for index, extent in zip(indices, shape, strict=True):
        start, width = At(index.constant), 0
        for axis, factor in index.terms:
            if not isinstance(axis, Axis):
                raise NotLowered(f"the index {index} is not affine")
            if axis not in spans:
                start += loops[axis] * factor
                continue
            if width or factor != 1:
                raise NotLowered(f"the index {index} is not a slice")
            start, width = start + spans[axis].start, spans[axis].width
        if width:
            pieces.append(part(start, width, extent))
        else:
            pieces.append(str(start))
    return pieces
