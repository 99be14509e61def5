"""How much an Algorithm computes element by element, as its definitions stand."""

from __future__ import annotations

import math
from collections.abc import Iterable

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import contraction
from accelopt.algorithm.index import Axis


def element_work(algorithm: ir.Algorithm) -> int:
    """How many functions are applied to elements, but for factors that are numbers, which come with others, and for
    what a product of matrices does by itself."""
    return sum(map(_of, algorithm.definitions))


def _of(definition: ir.Definition) -> int:
    if not isinstance(definition, ir.Reduce):
        return sum(map(_functions, ir.expressions_of(definition))) * _size(definition.axes)
    product = contraction(definition)
    if product is None:
        return (_functions(definition.expression) + 1) * _size(ir.own_axes(definition))
    sides = (product.left, product.right, product.scale)
    return sum(_functions(side) * _size(ir.axes_of(side)) for side in sides)


def _size(axes: Iterable[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)


def _functions(expression: ir.Expression) -> int:
    return sum(
        isinstance(part, ir.Apply) and not isinstance(part.arguments[-1], ir.Constant)
        for part in ir.walk(expression)
    )
