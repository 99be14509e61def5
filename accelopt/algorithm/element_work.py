"""How much an Algorithm computes element by element, as its definitions stand."""

from __future__ import annotations

import math
from collections.abc import Iterable

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import contraction
from accelopt.algorithm.index import Axis

LEAST_COMPUTED_AGAIN = 1.25
"""Times as many functions of elements as by another form are too many."""
LEAST_SHORTER = 1.5
"""Times as many expressions as by another form are too many: they compute elements again."""


def computes_less(one: ir.Algorithm, other: ir.Algorithm) -> bool:
    """Whether an Algorithm computes much less than another, or says it in much fewer expressions."""
    less = element_work(one) * LEAST_COMPUTED_AGAIN < element_work(other)
    return less or expressions(one) * LEAST_SHORTER < expressions(other)


def expressions(algorithm: ir.Algorithm) -> int:
    """How many expressions an Algorithm is made of."""
    return sum(
        sum(1 for _ in ir.walk(expression))
        for definition in algorithm.definitions
        for expression in ir.expressions_of(definition)
    )


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
