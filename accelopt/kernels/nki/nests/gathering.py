"""Gathers and scatters, elements at numbers that are read or computed at run time: one DMA for the rows
of all partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from accelopt.algorithm.index import ZERO, Axis, Index, index_of
from accelopt.algorithm.ir import Array, Map, place_of
from accelopt.kernels.nki.nests.axis_positions import At
from accelopt.kernels.nki.nests.nest import NotNested
from accelopt.kernels.nki.nests.places import stride_of
from accelopt.kernels.nki.nests.statements import Form
from accelopt.kernels.nki.nests.text import MOST_FREE, merged
from accelopt.kernels.nki.nests.values import Value
from accelopt.sim.dtypes import parse

if TYPE_CHECKING:
    from accelopt.kernels.nki.nests.places import Round, View, Where
    from accelopt.kernels.nki.nests.value_instructions import Calculation

EXACT = 2**24
"""Whole numbers below are exact in fp32, in which the engines compute."""
DIRECT = ("int32", "uint32")
"""Formats that a DMA takes row numbers in."""


class Rows(NamedTuple):
    """What a gather reads as rows of `size` elements side by side: the number of the row is `known`
    (a sum of axes) and numbers times factors; the elements in it lie at `inside`."""

    size: int
    known: Index
    factors: Mapping[Axis, int]
    inside: Index


def gather(emitter: Calculation, value: Value, where: Where, into: View | None = None) -> View:
    """The tile of what is gathered, in `into` where that is given: for each number of the free axes
    that row numbers depend on, a DMA that takes a row for each partition. Raises NotNested where what
    is read beside each other is no part of a row."""
    array = emitter.arrays[value.array]
    view = into or emitter.new_tile(
        f"{value.array}_rows", where, where.free(value.axes), array.dtype
    )
    address = sum(
        (index * stride_of(array.shape, n) for n, index in enumerate(value.indices)), ZERO
    )
    numbers = dict(zip(value.reduced, value.arguments, strict=True))
    _move(emitter, array, address, numbers, where.free(value.axes), where, view, store=False)
    return view


def scatter(
    emitter: Calculation, array: Array, definition: Map, number: Value, where: Where, view: View
) -> None:  # fmt: skip
    """Brings the tile of a result to the rows of an input that it is put at. Raises NotNested."""
    whole = emitter.arrays.get(array.updates) or replace(array, shape=array.given)
    row = Axis("@0", math.prod(whole.shape) // array.row)
    address = place_of(array, definition) + index_of(row) * array.row
    axes = where.free({*definition.axes} | number.axes)
    _move(emitter, whole, address, {row: number}, axes, where, view, store=True)


def _move(
    emitter: Calculation, array: Array, address: Index, numbers: Mapping[Axis, Value],
    axes: Sequence[Axis], where: Where, view: View, *, store: bool,
) -> None:  # fmt: skip
    """DMAs between a tile and elements of an array, in whose address some axes are numbers."""
    rows = _rows(array, address, numbers, where)
    apart = [(axis, 1) for axis in axes if axis not in rows.inside.axes]
    builder = emitter.reading.builder
    number = emitter.reading.index(rows.known)
    for axis, argument in numbers.items():
        scaled = builder.apply("multiply", argument, builder.constant(rows.factors[axis]))
        number = builder.apply("add", number, scaled)

    def one(round_: Round) -> None:
        spot = round_.where
        lying = replace(spot, order=())
        column = emitter.view(number, lying)
        if column.tile.dtype not in DIRECT:
            column = emitter.converted(column, lying, (), "int32")
        own = view.moved(spot, where)
        offset, steps = emitter.affine(rows.inside, spot)
        moving = [axis for axis in axes if axis in rows.inside.axes]
        counts = [spot.span(axis).width for axis in moving]
        given = [[steps.get(a, 0) for a in moving], [own.strides[a] for a in moving]]
        sizes, strides = merged(counts, given)
        _transfer(
            emitter, array, rows.size, (own, column), spot.rows, offset, sizes, strides, store
        )

    emitter.each(where, apart, one)


def _rows(array: Array, address: Index, numbers: Mapping[Axis, Value], where: Where) -> Rows:
    """An address in rows and elements of them."""
    if not address.is_affine:
        raise NotNested(f"the place {address} of an element of {array.name} is no sum of axes")
    numbered = {*numbers, *where.part}.union(*(argument.axes for argument in numbers.values()))
    size = math.prod(array.shape)
    for axis in numbered & address.axes:
        size = math.gcd(size, address.coefficient(axis))
    known, inside = ZERO, Index(address.constant % size)
    for one, factor in address.terms:
        term = Index(0, ((one, factor),))
        if one in numbered or factor % size == 0:
            known = known + term
        else:
            inside = inside + term
    low, high = inside.bounds
    if low < 0 or high >= size:
        raise NotNested(f"what lies in {array.name} beside a number reaches beyond its row")
    if math.prod(array.shape) // size > EXACT:
        raise NotNested(f"{array.name} has more rows than fp32 has whole numbers")
    whole = known + (address.constant - address.constant % size)
    factors = {axis: whole.coefficient(axis) // size for axis in numbers}
    rest = tuple((axis, c // size) for axis, c in whole.terms if axis not in factors)
    return Rows(size, Index(whole.constant // size, rest), factors, inside)


def _transfer(
    emitter: Calculation, array: Array, row: int, views: tuple[View, View], partitions: int, offset: At,
    sizes: list[int], strides: list[list[int]], store: bool,
) -> None:  # fmt: skip
    """One DMA between a tile and rows whose numbers the other has; a loop of it where there are more
    axes than a pattern has."""
    tile, column = views
    if len(sizes) > MOST_FREE:
        with emitter.loop("i_part", sizes[0]) as at:
            moved = replace(tile, offset=tile.offset + at * strides[1][0], strides={})
            rest = [s[1:] for s in strides]
            _transfer(emitter, array, row, (moved, column), partitions,
                      offset + at * strides[0][0], sizes[1:], rest, store)  # fmt: skip
        return
    text = emitter.text
    name = emitter.outside[array.name] if store else emitter.read_outside(array.name)
    rows = text.rows(name, array.shape, row, column.tile, column.offset,
                     partitions, offset, sizes, strides[0])  # fmt: skip
    on_chip = text.inside(tile.tile, partitions, tile.offset, sizes, strides[1])
    moved_bytes = partitions * math.prod(sizes) * parse(array.dtype).itemsize
    ns = emitter.memory.dma_ns(moved_bytes, sizes, strides, array.dtype)
    dst, src = (rows, on_chip) if store else (on_chip, rows)
    emitter.put("", Form(f"nisa.dma_copy(dst={dst}, src={src})", "dma", ns), moved=moved_bytes)
