"""Subscripts in all three styles (integers, slices, index arrays) as index polynomials."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from accelopt.kernels.nki.moves.reading.polynomial import ONE, ZERO, Polynomial, Symbol, ramp
from accelopt.kernels.nki.moves.reading.values import (
    KnownConstant,
    Number,
    PolynomialMask,
    Ramp,
    ReadValue,
    Sequence,
    TileUse,
)


@dataclass(frozen=True)
class IndexSlice(Sequence):
    """`start:stop:step` or `nl.ds(start, size)`, with Constant(None) for what is left out."""


def is_index(value: ReadValue) -> bool:
    """True for integers, index arrays and tuples of them."""
    if isinstance(value, Sequence):
        return all(is_index(item) for item in value.items)
    if isinstance(value, KnownConstant):
        return isinstance(value.value, (float, bool)) or value.value is None
    return isinstance(value, (Number, Ramp, PolynomialMask))


def view_through(base: TileUse, elements: list[ReadValue], node: cst.Subscript) -> TileUse:
    """The part that `node` names: `base` subscripted by `elements`. Never fails; a part that is not
    understood has no `dims`."""
    advanced = any(isinstance(e, Number) and e.rank > 0 for e in elements)
    style = "advanced" if advanced else "basic"
    view = base.view
    unknown = TileUse(base.tensor, None, None, node, style, view)
    if any(isinstance(e, PolynomialMask) for e in elements):
        return TileUse(base.tensor, None, base.shape, node, style, view)
    expanded = _expanded(elements, None if base.shape is None else len(base.shape))
    if expanded is None or (advanced and any(isinstance(e, IndexSlice) for e in expanded)):
        return unknown
    sizes = base.shape or (None,) * len(expanded)
    indices = _indices(expanded, sizes, on_chip=base.tensor.buffer != "hbm")
    if indices is None:
        return unknown
    if base.shape is None and base.dims is None:
        dims: tuple[Polynomial, ...] | None = tuple(indices)
    else:
        dims = _composed(base, indices)
    return TileUse(base.tensor, dims, _shape(indices, expanded, advanced), node, style, view)


def _expanded(elements: list[ReadValue], rank: int | None) -> list[ReadValue] | None:
    """With `...` and missing trailing slices written out."""
    full = IndexSlice((KnownConstant(None), KnownConstant(None), KnownConstant(None)))
    dots = [i for i, e in enumerate(elements) if isinstance(e, KnownConstant) and e.value == "..."]
    if rank is None:
        return None if dots else elements
    missing = rank - (len(elements) - len(dots))
    if missing < 0:
        return None
    if dots:
        return [*elements[: dots[0]], *[full] * missing, *elements[dots[0] + 1 :]]
    return [*elements, *[full] * missing]


def _indices(
    elements: list[ReadValue], sizes: tuple[Polynomial | None, ...], *, on_chip: bool
) -> list[Polynomial] | None:
    """One polynomial a dimension; slices become ramps along their place in the result."""
    slices = [position for position, e in enumerate(elements) if isinstance(e, IndexSlice)]
    indices: list[Polynomial] = []
    for position, element in enumerate(elements):
        if isinstance(element, Number):
            indices.append(element.polynomial)
            continue
        if not isinstance(element, IndexSlice):
            return None
        bounds = _bounds(element, sizes[position])
        if bounds is None:
            return None
        start, size = bounds
        axis = slices.index(position) - len(slices)
        if len(slices) == 1:  # results never have fewer than two dimensions
            axis = -1 if on_chip and position == len(elements) - 1 and position else -2
        indices.append(start + ramp(size, axis))
    return indices


def _bounds(element: IndexSlice, size: Polynomial | None) -> tuple[Polynomial, Polynomial] | None:
    start, stop, step = element.items
    if not (isinstance(step, KnownConstant) and step.value is None) and step != Number(ONE):
        return None
    first = start.polynomial if isinstance(start, Number) else ZERO
    if isinstance(stop, Number):
        last = stop.polynomial
        if last.constant is not None and last.constant < 0:
            return None
    elif isinstance(stop, KnownConstant) and size is not None:
        last = size
    else:
        return None
    extent = last - first
    return None if extent.loops else (first, extent)


def _composed(base: TileUse, indices: list[Polynomial]) -> tuple[Polynomial, ...] | None:
    """`base.dims` with each of its ramps replaced by the index along that axis."""
    if base.dims is None or base.shape is None:
        return None
    rank = len(base.shape)
    values: dict[Symbol, Polynomial] = {}
    for dim in base.dims:
        for symbol in dim.ramps:
            values[symbol] = indices[rank + symbol.axis]
    return tuple(dim.substitute(values) for dim in base.dims)


def _shape(
    indices: list[Polynomial], elements: list[ReadValue], advanced: bool
) -> tuple[Polynomial, ...]:
    rank = 2
    if advanced:
        rank = max(e.rank for e in elements if isinstance(e, Number))
    else:
        rank = max(2, sum(isinstance(e, IndexSlice) for e in elements))
    sizes = {symbol.axis: symbol.size for index in indices for symbol in index.ramps}
    return tuple(sizes.get(axis - rank) or ONE for axis in range(rank))
