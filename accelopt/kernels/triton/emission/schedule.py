"""How an Algorithm is computed by Triton kernels: a plain record."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class NotEmitted(Exception):
    """A definition or a kernel that is not written as Triton: the text names it and says why."""


class Tile(BaseModel):
    """Elements of an axis that a program, or a round of its loop, has at once: a power of two."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    axis: str
    size: int


class Kernel(BaseModel):
    """One launch. Programs have tiles of the axes that no member reduces, one element of those without a
    tile; the axis `walked` is looped over tile by tile, any other reduced one is held whole. `together`
    counts rows of tiles that programs visit before the next column. `descriptors` move the tiles that they can
    (TMA). Where rows are stored at places that are read, programs are for tiles that may be, or `packed`, for those
    that there are. `registers` are the most that a thread may have, 0 for as many as the compiler takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    members: tuple[str, ...]
    tiles: tuple[Tile, ...] = ()
    walked: str = ""
    warps: int = 4
    stages: int = 2
    together: int = 1
    descriptors: bool = False
    registers: int = 0
    packed: bool = False

    def size(self, axis: str) -> int:
        """The tile of an axis."""
        return next((tile.size for tile in self.tiles if tile.axis == axis), 1)


class Split(BaseModel):
    """A reduction that is made in two: of `parts` of its first axis, and of what they give (split-K)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    definition: str
    parts: int


class Schedule(BaseModel):
    """Kernels in the order of their launches. `segments` is the definition by which rows are computed segment
    by segment, where they are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernels: tuple[Kernel, ...]
    segments: str = ""
    splits: tuple[Split, ...] = ()
