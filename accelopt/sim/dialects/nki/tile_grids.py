"""Tensors navigated in tiles and blocks of tiles: `nl.tiles`, `nl.blocks`, `nl.alloc_tiles`,
`nl.alloc_blocks` (NKI 0.7).

A grid is a view: indexing it emits nothing. `.data` is the tensor that an instruction takes. Source: SDK
2.33, `nki/api/nki/language` (NkiGrid, NkiTileGrid, NkiBlockGrid and the four functions). Assumptions, of
what these pages do not say: on-chip the tiles of a new grid follow one another in the free dimension in
row-major order, each in a slot of a whole tile, and an index of an untiled dimension leaves it out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from accelopt.sim.dialects.neuronxcc.builder import fail
from accelopt.sim.dialects.neuronxcc.index import TileIndex, number_of
from accelopt.sim.dialects.nki.call_conventions import call
from accelopt.sim.dialects.nki.language.creation import new_tensor
from accelopt.sim.dialects.nki.language.memories import is_on_chip
from accelopt.sim.dialects.nki.tensor import NkiTensor
from accelopt.sim.errors import KernelTypeError, KernelValueError, Unsupported


class Extent(NamedTuple):
    """What is selected of a dimension: `size` elements from element `first * unit` on, counted in steps of
    `step` units by an index that is still to come (0: it was given)."""

    first: Any
    size: int
    unit: int
    step: int

    @property
    def start(self) -> Any:
        """The first element."""
        return self.first * self.unit

    @property
    def length(self) -> int:
        """How many coordinates an index has."""
        return math.ceil(self.size / (self.unit * self.step))

    def at(self, index: Any) -> Extent:
        """One coordinate."""
        if not isinstance(index, TileIndex):
            index = int(index) % self.length if -self.length <= int(index) < 0 else int(index)
        if not 0 <= index < self.length:
            said = f"index {index} of a grid of {self.length} along a dimension."
            fail(KernelValueError("grid_index", said))
        width = self.unit * self.step
        partial = self.size % width
        size = partial if partial and index == self.length - 1 else min(width, self.size)
        return Extent(self.first + index * self.step, size, self.unit, 0)

    def part(self, chosen: slice) -> Extent:
        """The coordinates of a slice."""
        if chosen.step not in (None, 1):
            fail(KernelValueError("grid_index", "a grid is sliced with step 1."))
        low, high, _ = chosen.indices(self.length)
        if low >= high:
            said = f"[{low}:{high}] of a grid of {self.length} is empty."
            fail(KernelValueError("grid_index", said))
        width = self.unit * self.step
        size = min(high * width, self.size) - low * width
        return Extent(self.first + low * self.step, size, self.unit, self.step)


class NkiGrid:
    """A tensor, or part of one, in coordinates of tiles or of blocks."""

    def __init__(
        self,
        backing: Any,
        extents: tuple[Extent, ...],
        tile_shape: tuple[int, ...],
        block_shape: tuple[int, ...] = (),
        tiles_across: int = 0,
    ) -> None:
        self._backing = backing
        self._extents = extents
        self.tile_shape = tile_shape
        self._blocks = block_shape
        self._tiles_across = tiles_across  # on-chip, of a grid with storage of its own

    @property
    def dtype(self) -> Any:
        """The format of the elements."""
        return self._backing.dtype

    @property
    def buffer(self) -> Any:
        """The memory of the tensor."""
        return self._backing.buffer

    @property
    def shape(self) -> tuple[int, ...]:
        """How many coordinates there are along every dimension that was not indexed."""
        return tuple(extent.length for extent in self._extents if extent.step)

    @property
    def element_shape(self) -> tuple[int, ...]:
        """The elements that are selected along every dimension of the tensor."""
        return tuple(extent.size for extent in self._kept())

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """How many elements a coordinate moves along every dimension that was not indexed."""
        return tuple(extent.unit * extent.step for extent in self._extents if extent.step)

    @property
    def is_remainder(self) -> bool:
        """True where a dimension has less than whole tiles or blocks."""
        sizes = self.tile_shape if not self._blocks else tuple(
            t * b for t, b in zip(self.tile_shape, self._blocks, strict=True)
        )  # fmt: skip
        tiled = self._extents[len(self._extents) - len(sizes) :]
        return any(extent.size % size for extent, size in zip(tiled, sizes, strict=True))

    @property
    def is_data_representable(self) -> bool:
        """Whether `data` is one operand: on-chip, of a grid with storage of its own, tiles of one row of
        tiles."""
        return not self._tiles_across or self._extents[0].size <= self.tile_shape[0]

    @property
    def data(self) -> NkiTensor:
        """The selected elements as the operand of an instruction."""
        if not self._tiles_across:
            return self._backing[tuple(map(_chosen, self._extents))]  # type: ignore[no-any-return]
        if not self.is_data_representable:
            what = "one operand of several rows of tiles on-chip (NkiGrid.data)"
            raise Unsupported(what, "Index the first dimension, and take the rows one by one.")
        rows, columns = self._extents
        start = (rows.first * self._tiles_across + columns.first) * columns.unit
        return self._backing[0 : rows.size, _span(start, columns.size)]  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> NkiGrid:
        items = list(key) if isinstance(key, tuple) else [key]
        open_ = [n for n, extent in enumerate(self._extents) if extent.step]
        if len(items) > len(open_):
            said = f"{len(items)} indices for a grid of shape {self.shape}."
            fail(KernelValueError("grid_index", said))
        extents = list(self._extents)
        for at, item in zip(open_, items, strict=False):
            extent = extents[at]
            extents[at] = extent.part(item) if isinstance(item, slice) else extent.at(item)
        return type(self)(
            self._backing, tuple(extents), self.tile_shape, self._blocks, self._tiles_across
        )

    def _kept(self) -> list[Extent]:
        """The extents without those of untiled dimensions that were indexed."""
        untiled = len(self._extents) - len(self.tile_shape)
        return [e for n, e in enumerate(self._extents) if n >= untiled or e.step]


class NkiTileGrid(NkiGrid):
    """In coordinates of tiles."""


class NkiBlockGrid(NkiGrid):
    """In coordinates of blocks of tiles."""

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Tiles of a block along every tiled dimension."""
        return self._blocks


def _chosen(extent: Extent) -> Any:
    if extent.unit == 1 and not extent.step:
        return extent.first  # of an untiled dimension
    return _span(extent.start, extent.size)


def _span(start: Any, size: int) -> slice:
    return slice(start, start + size)


def _whole(value: Any, name: str, least: int = 2) -> tuple[int, ...]:
    if not isinstance(value, tuple) or not all(isinstance(n, (int, TileIndex)) for n in value):
        fail(KernelTypeError("grid_shape", f"{name}={value!r} is no tuple of whole numbers."))
    sizes = tuple(map(number_of, value))
    if len(sizes) < least or any(size <= 0 for size in sizes):
        said = f"{name}={sizes} needs {least} dimensions at least, none without elements."
        fail(KernelValueError("grid_shape", said))
    return sizes


def _extents(
    element_shape: tuple[Any, ...], tile_shape: tuple[int, ...], blocks: tuple[int, ...] = ()
) -> tuple[Extent, ...]:
    untiled = len(element_shape) - len(tile_shape)
    if untiled < 0:
        said = f"tile_shape {tile_shape} has more dimensions than {element_shape}."
        fail(KernelValueError("grid_shape", said))
    steps = blocks or (1,) * len(tile_shape)
    if len(steps) != len(tile_shape):
        said = f"block_shape {blocks} and tile_shape {tile_shape} differ in rank."
        fail(KernelValueError("grid_shape", said))
    units = (*(1,) * untiled, *tile_shape)
    return tuple(
        Extent(0, size, unit, step)
        for size, unit, step in zip(element_shape, units, (*(1,) * untiled, *steps), strict=True)
    )


def _of(source: Any, tile_shape: Any, blocks: tuple[int, ...], kind: type[NkiGrid]) -> Any:
    """A grid over a tensor, or over what a grid has selected, in its tiles."""
    if isinstance(source, NkiGrid):
        if tile_shape is not None and tuple(tile_shape) != source.tile_shape:
            what = "tiles of another shape over a grid"
            raise Unsupported(what, "Make the grid of the tensor, or of .data.")
        untiled = len(source._extents) - len(source.tile_shape)
        steps = blocks or (1,) * len(source.tile_shape)
        opened = tuple(
            extent if n < untiled else extent._replace(step=steps[n - untiled])
            for n, extent in enumerate(source._extents)
        )
        return kind(source._backing, opened, source.tile_shape, blocks, source._tiles_across)
    if not isinstance(source, NkiTensor):
        fail(KernelTypeError("grid", f"{type(source).__name__} is no tensor and no grid."))
    if tile_shape is None:
        fail(KernelTypeError("grid", "a grid of a tensor needs its tile_shape."))
    sizes = _whole(tile_shape, "tile_shape")
    return kind(source, _extents(source.shape, sizes, blocks), sizes, blocks)


@call
def tiles(source: Any, *, tile_shape: Any = None) -> NkiTileGrid:
    """A tensor in coordinates of its tiles, or the tiles of what another grid has selected."""
    return _of(source, tile_shape, (), NkiTileGrid)  # type: ignore[no-any-return]


@call
def blocks(source: Any, *, tile_shape: Any = None, block_shape: Any) -> NkiBlockGrid:
    """A tensor in coordinates of blocks; `block_shape` counts the tiles of one."""
    return _of(source, tile_shape, _whole(block_shape, "block_shape"), NkiBlockGrid)  # type: ignore[no-any-return]


@call
def alloc_tiles(
    *, tile_shape: Any, element_shape: Any, buffer: Any, dtype: Any, address: Any = None, name: Any = ""
) -> NkiTileGrid:  # fmt: skip
    """A new tensor of `element_shape` in coordinates of its tiles."""
    backing = _allocated(tile_shape, element_shape, buffer, dtype, address, name)
    return NkiTileGrid(*_grid(backing, tile_shape, (), element_shape))


@call
def alloc_blocks(
    *, tile_shape: Any, block_shape: Any, element_shape: Any, buffer: Any, dtype: Any,
    address: Any = None, name: Any = "",
) -> NkiBlockGrid:  # fmt: skip
    """A new tensor of `element_shape` in coordinates of blocks of tiles."""
    grouped = _whole(block_shape, "block_shape")
    backing = _allocated(tile_shape, element_shape, buffer, dtype, address, name)
    return NkiBlockGrid(*_grid(backing, tile_shape, grouped, element_shape))


def _grid(backing: Any, tile_shape: Any, grouped: tuple[int, ...], element_shape: Any) -> Any:
    """What a grid of a new tensor is made of."""
    across = -(-element_shape[-1] // tile_shape[-1]) if backing.on_chip else 0
    return backing, _extents(element_shape, tile_shape, grouped), tile_shape, grouped, across


def _allocated(tile_shape: Any, element_shape: Any, *given: Any) -> Any:
    """The storage: in HBM the tensor itself, on-chip the slots of its tiles one after another."""
    sizes, elements = _whole(tile_shape, "tile_shape"), _whole(element_shape, "element_shape")
    buffer, dtype, address, name = given
    _extents(elements, sizes)  # whose errors come before those of memory
    if not is_on_chip(buffer):
        return new_tensor(elements, dtype, buffer, name, address)
    if len(elements) != 2:
        raise Unsupported(f"a grid of {len(elements)} dimensions on-chip", "Take two.")
    down, across = (-(-e // t) for e, t in zip(elements, sizes, strict=True))
    slots = (min(sizes[0], elements[0]), down * across * sizes[1])
    return new_tensor(slots, dtype, buffer, name, address)
