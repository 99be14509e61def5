"""What is made of a result of sums or products by additions and factors that depend on fewer axes: one
factor and one summand, worked out once for all elements along the other axes (a folded batch norm)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from accelopt.algorithm import ir

LEAST_STEPS = 3
"""Operations on all elements from which on one factor and one summand are fewer: an instruction does two."""
LEAST_SHARED = 16
"""Elements that share a factor or a summand: each costs an instruction, however few there are."""
ONE = ir.Constant(1.0)


class Line(NamedTuple):
    """`value * sign * factor`, and a sum of other values times signs and factors, worked out in so many
    `steps` on all elements."""

    value: ir.Expression
    sign: float = 1.0
    factor: ir.Expression = ONE
    summands: tuple[tuple[ir.Expression, float, ir.Expression], ...] = ()
    steps: int = 0

    def times(self, factor: ir.Expression) -> Line:
        """The product of it and a factor."""
        summands = tuple((v, sign, _product(own, factor)) for v, sign, own in self.summands)
        return self._replace(
            factor=_product(self.factor, factor), summands=summands, steps=self.steps + 1
        )

    def plus(self, value: ir.Expression, sign: float = 1.0) -> Line:
        """The sum of it and a value."""
        return self._replace(summands=(*self.summands, (value, sign, ONE)), steps=self.steps + 1)

    def negated(self) -> Line:
        """The line with the other sign."""
        summands = tuple((value, -sign, factor) for value, sign, factor in self.summands)
        return self._replace(sign=-self.sign, summands=summands)


def scaled_and_shifted(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With such factors and summands in Maps. The value must be a sum's result: that is rounded already, and
    what cancels against it was known no better before; of an input nothing is known to be lost."""
    sums = {d.out for d in algorithm.definitions if isinstance(d, ir.Reduce)}
    definitions = tuple(
        replace(d, expression=_changed(d.expression, sums)) if isinstance(d, ir.Map) else d
        for d in algorithm.definitions
    )
    return replace(algorithm, definitions=definitions)


def _changed(expression: ir.Expression, sums: Collection[str]) -> ir.Expression:
    line = _line(expression)
    computed = any(isinstance(p, ir.Read) and p.array in sums for p in ir.walk(line.value))
    if line.steps < LEAST_STEPS or not computed:
        return ir.with_parts(expression, (_changed(p, sums) for p in ir.parts_of(expression)))
    factor = line.factor if line.sign > 0 else _product(line.factor, ir.Constant(-1.0))
    made = _product(_changed(line.value, sums), factor)
    if not line.summands:
        return made
    # A positive one first, from which the others are taken.
    (value, sign, own), *others = sorted(line.summands, key=lambda summand: -summand[1])
    total = _product(value, own if sign > 0 else _product(own, ir.Constant(-1.0)))
    for value, sign, own in others:
        total = ir.Apply("add" if sign > 0 else "subtract", (total, _product(value, own)))
    return ir.Apply("add", (made, total))


def _line(expression: ir.Expression) -> Line:
    """An expression as a line of the part of it that depends on all of its axes."""
    if not isinstance(expression, ir.Apply) or len(expression.arguments) != 2:
        return Line(expression)
    own, function = ir.axes_of(expression), expression.function
    for wide, number in ((0, 1), (1, 0)):
        value, other = expression.arguments[wide], expression.arguments[number]
        missing = own - ir.axes_of(other)
        if ir.axes_of(value) != own or math.prod(a.extent for a in missing) < LEAST_SHARED:
            continue
        if function == "multiply":
            return _line(value).times(other)
        if function == "add":
            return _line(value).plus(other)
        if function == "subtract":
            found = _line(value)
            return found.plus(other, -1.0) if wide == 0 else found.negated().plus(other)
    return Line(expression)


def _product(value: ir.Expression, factor: ir.Expression) -> ir.Expression:
    if factor == ONE or value == ONE:
        return value if factor == ONE else factor
    return ir.Apply("multiply", (value, factor))
