"""Sums of a few scaled operands as products with diagonals: the Tensor engine multiplies, and adds in PSUM.

before: y[h, m] = sum_k w[h, k] * x[h, k + m]
after:  y[h, m] = sum_g,k x[g, k + m] * (w[g, k] if g = h else 0)

before: y[h, m] = w[h] * a[h, m] + b[h, m] - c[h, m] + v[h]
after:  y[h, m] = y_0[h, m] + y_1[h, m] - y_2[h, m] + v[h] of three such products, which `accumulate` adds up

An operand is an input, which is finite. Of an axis that is longer than there are partitions, `g` counts within a block of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import ZERO, contraction, masked_factors, product_of
from accelopt.algorithm.functions import ROUNDINGS
from accelopt.algorithm.index import Axis, index_of
from accelopt.kernels.nki.nests.axis_positions import free_name
from accelopt.kernels.nki.nests.computed_together import NotTogether
from accelopt.kernels.nki.nests.read_ranges import in_order
from accelopt.kernels.nki.nests.shared_expressions import terms_of
from accelopt.kernels.nki.nests.term_sums import LEAST_WIDE, sum_of

LEAST_TERMS = 3
"""Fewer are an instruction of Vector or two."""
MOST_TERMS = 64
"""Each has a diagonal of its own in SBUF."""
LEAST_ROWS, MOST_ROWS = 32, 128
"""Of a diagonal, each on a partition."""


def with_diagonals(algorithm: ir.Algorithm, name: str, axis: str) -> ir.Algorithm:
    """With a sum of scaled operands as products with diagonals along an axis. Raises NotTogether."""
    inputs = {array.name for array in algorithm.inputs}
    definition = next((d for d in algorithm.definitions if d.out == name), None)
    rows = next((a for a in definition.axes if a.name == axis), None) if definition else None
    total = _sum_of_scaled(definition, rows, inputs) if definition and rows else None
    if definition is None or rows is None or total is None:
        raise NotTogether(f"{name} adds no {LEAST_TERMS} operands that are scaled along {axis}")
    if isinstance(definition, ir.Reduce):
        made: list[ir.Definition] = [_product(definition, total, rows, inputs)]
    else:
        made, left, taken = [], list[ir.Expression](), {d.out for d in algorithm.definitions}
        taken |= inputs
        for factor, term in terms_of(total):
            if _operand(term, definition, rows, inputs):
                own = ir.Reduce(
                    free_name(f"{name}_{len(made)}", taken), definition.axes, (), "add", ZERO
                )
                made.append(_product(own, term, rows, inputs))
                term = ir.Read(own.out, tuple(map(index_of, own.axes)))
            left.append(ir.times(term, factor))
        (whole,) = ir.expressions_of(definition)
        made.append(ir.with_expressions(definition, [ir.exchanged(whole, total, sum_of(left))]))
    rest = (d for d in algorithm.definitions if d is not definition)
    return replace(algorithm, definitions=in_order((*rest, *made)))


def diagonals(algorithm: ir.Algorithm) -> Iterator[tuple[str, str]]:
    """Sums that could be such products, each with the axis that fills most partitions."""
    inputs = {array.name for array in algorithm.inputs}
    for definition in algorithm.definitions:
        found = [axis for axis in definition.axes if _sum_of_scaled(definition, axis, inputs)]
        if found:
            yield definition.out, max(found, key=_block).name


def _block(axis: Axis) -> int:
    """The most equal parts of an axis that a diagonal has a partition for; 0 where those are few."""
    size = next(n for n in range(min(axis.extent, MOST_ROWS), 0, -1) if axis.extent % n == 0)
    return size if size >= LEAST_ROWS else 0


def _sum_of_scaled(
    definition: ir.Definition, rows: Axis, inputs: Collection[str]
) -> ir.Expression | None:
    """The part of a definition that adds operands scaled along an axis; None where there are too few."""
    whole, *others = ir.expressions_of(definition)
    if others or not _block(rows):
        return None
    if isinstance(definition, ir.Reduce):
        number = math.prod(axis.extent for axis in definition.reduced)
        plain = definition.combiner == "add" and contraction(definition) is None
        fits = plain and LEAST_TERMS <= number <= MOST_TERMS
        return whole if fits and _operand(whole, definition, rows, inputs) else None
    counts = {
        part: sum(
            _operand(term, definition, rows, inputs) is not None for _, term in terms_of(part)
        )
        for part in ir.walk(whole)
        if isinstance(part, ir.Apply) and part.function in ("add", "subtract")
    }
    most = max(counts, key=counts.__getitem__, default=None)
    return most if most and LEAST_TERMS <= counts[most] <= MOST_TERMS else None


def _operand(
    term: ir.Expression, definition: ir.Definition, rows: Axis, inputs: Collection[str]
) -> ir.Expression | None:
    """Of a term that is a tile times numbers which differ along an axis at most, the tile."""
    summed = {*definition.reduced} if isinstance(definition, ir.Reduce) else set[Axis]()
    tiles = [f for f in masked_factors(term) if not ir.axes_of(f) <= {rows, *summed}]
    others = {axis for axis in definition.axes if axis.extent > 1} - {rows}
    wide = math.prod(axis.extent for axis in others) >= LEAST_WIDE
    if len(tiles) != 1 or not wide or not {rows, *others} <= ir.axes_of(tiles[0]):
        return None
    known = (ir.Read, ir.Where, ir.Constant)
    # What is computed may be infinite in one row, and would be lost in others.
    for part in ir.walk(tiles[0]):
        rounded = isinstance(part, ir.Apply) and part.function in ROUNDINGS
        read = not isinstance(part, ir.Read) or part.array in inputs
        if not read or not (rounded or isinstance(part, known)):
            return None
    places = (index for part in ir.walk(tiles[0]) for index in ir.indices_of(part))
    return None if any(rows in i.axes and i.axes & summed for i in places) else tiles[0]


def _product(
    definition: ir.Reduce, term: ir.Expression, rows: Axis, inputs: Collection[str]
) -> ir.Reduce:
    """The sum of terms, each as a product with a diagonal."""
    tile, block = _operand(term, definition, rows, inputs), _block(rows)
    inner = Axis(f"{rows.name}_of", block)
    place = {rows: index_of(rows) // block * block + index_of(inner)}
    off = index_of(rows) % block - index_of(inner)
    numbers, along = [f for f in masked_factors(term) if f != tile], {*definition.reduced} or {rows}
    inside = product_of([f for f in numbers if ir.axes_of(f) & along])
    diagonal = ir.Where((off, off * -1), ir.substituted(inside, place, {}), ZERO)
    assert tile is not None
    rest = [f for f in numbers if not ir.axes_of(f) & along]
    whole = product_of([ir.substituted(tile, place, {}), diagonal, *rest])
    return replace(definition, reduced=(inner, *definition.reduced), expression=whole)
