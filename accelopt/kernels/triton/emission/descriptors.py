"""Tiles that a GPU's copy engine moves by a tensor descriptor (TMA), where addresses allow it.

An array of which a kernel moves tiles of two axes, one along memory, is a matrix with that axis as its
columns; what else is in the address says where in it a tile begins. Elements outside are read as 0 and not
written. Address and row are multiples of 16 bytes and no side of a tile has more than 256 elements (CUDA
driver API, `cuTensorMapEncodeTiled`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from accelopt.algorithm.index import ZERO, Axis, Index, element_number, index_of
from accelopt.algorithm.ir import Array, Expression, Read, axes_of, walk
from accelopt.kernels.triton.emission.groups import flat
from accelopt.kernels.triton.emission.tiles import Tiles

LEAST_CAPABILITY = 90
ROW_BYTES, MOST_OF_SIDE = 16, 256
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class Block(NamedTuple):
    """A tile of a matrix of `shape`: its axes, rows first, and where it begins apart from them."""

    shape: tuple[int, int]
    axes: tuple[Axis, Axis]
    row: Index
    column: Index


def blocks_of(tiles: Tiles, arrays: Mapping[str, Array], stored: Iterable[str]) -> dict[str, Block]:
    """The arrays that a kernel moves by descriptors: those of which it moves one kind of tile."""
    places: dict[str, set[Index]] = {}
    for member in tiles.group.members:
        for read in member.reads:
            if tiles.group.member(read.array) is None:
                places.setdefault(read.array, set()).add(flat(read, arrays))
        if member.out in stored:
            places.setdefault(member.out, set()).add(
                element_number(member.place, arrays[member.out].shape)
            )
    found: dict[str, Block] = {}
    for name, indices in places.items():
        blocks = {_block(index, arrays[name], tiles) for index in indices}
        first = next(iter(blocks))
        if len({one and (one.shape, one.axes) for one in blocks}) == 1 and first is not None:
            found[name] = first
    return found


def block_at(index: Index, array: Array, tiles: Tiles) -> Block:
    """The tile at an address, of an array that `blocks_of` has."""
    block = _block(index, array, tiles)
    assert block is not None
    return block


def _block(index: Index, array: Array, tiles: Tiles) -> Block | None:
    item = ITEM_BYTES.get(array.dtype)
    wide = [axis for axis in index.axes if tiles.sizes.get(axis, 2) > 1]
    steps = {term: factor for term, factor in index.terms if isinstance(term, Axis)}
    known = {*wide} <= tiles.sizes.keys()  # and no number that is found at run time
    if item is None or len(wide) != 2 or not (known and {*wide} <= steps.keys()):
        return None
    across, along = sorted(wide, key=lambda axis: -steps[axis])
    stride, elements = steps[across], math.prod(array.shape)
    if steps[along] != 1 or stride < 2 or elements % stride:
        return None
    row, column = ZERO, Index(index.constant % stride, ())
    row = row + index.constant // stride
    for term, factor in index.terms:
        if term not in (across, along):
            if not isinstance(term, Axis) and {*wide} & term.inner.axes:
                return None
            part = Index(0, ((term, 1),))
            if factor % stride:
                column = column + part * factor
            else:
                row = row + part * (factor // stride)
    shape = (elements // stride, stride)
    for start, axis, extent in zip((row, column), (across, along), shape, strict=True):
        size, (low, high) = tiles.sizes[axis], (start + index_of(axis)).bounds
        over = axis.extent % size and (start != ZERO or axis.extent != extent)
        if low < 0 or high >= extent or over or size > MOST_OF_SIDE:
            return None
    if stride * item % ROW_BYTES or tiles.sizes[along] * item < ROW_BYTES:
        return None
    return Block(shape, (across, along), row, column)


def feeds_products(tiles: Tiles, arrays: Mapping[str, Array]) -> bool:
    """Whether descriptors bring all that the products of a walk read in each of its rounds."""
    blocks = blocks_of(tiles, arrays, ())
    products = (p for p in map(tiles.product, tiles.group.members) if p is not None)
    operands: list[Expression] = [side for p in products for side in (p.left, p.right)]
    read = {
        part.array
        for side in operands
        for part in walk(side)
        if isinstance(part, Read)
        and tiles.walked in axes_of(part)
        and tiles.group.member(part.array) is None
    }
    return bool(read) and read <= blocks.keys()
