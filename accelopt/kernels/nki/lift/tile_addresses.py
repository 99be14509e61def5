"""Addresses of a Program's tiles as indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelopt.algorithm.index import Index
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable, Quotient, TileAxis


def index_from(
    expression: Affine, loops: Mapping[LoopVariable, Index], coordinates: Sequence[Index]
) -> Index:
    """An affine expression with indices for its loops' trips and for the axes of its tile."""
    result = Index(expression.constant)
    for term, coefficient in expression.terms:
        if isinstance(term, LoopVariable):
            value = loops[term] * term.step + term.start
        elif isinstance(term, TileAxis):
            value = coordinates[term.position]
        elif isinstance(term, Quotient):
            value = index_from(term.inner, loops, coordinates) // term.divisor
        else:
            value = index_from(term.inner, loops, coordinates) % term.divisor
        result = result + value * coefficient
    return result


def address_of(
    access: Access, loops: Mapping[LoopVariable, Index], coordinates: Sequence[Index]
) -> Index:
    """The row-major number of an element of a tile in its whole tensor."""
    tensor = access.tensor
    size = 1
    for extent in tensor.tile_shape:
        size *= extent
    result = index_from(access.offset, loops, ())
    for extent, index in zip(tensor.block_shape[::-1], access.block[::-1], strict=True):
        result = result + index_from(index, loops, ()) * size
        size *= extent
    for coordinate, stride in zip(coordinates, access.strides, strict=True):
        result = result + coordinate * stride
    return result
