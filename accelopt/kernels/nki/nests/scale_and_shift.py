"""What is made of a result of sums or products by additions and factors that depend on fewer axes: one
factor and one summand, worked out once for all elements along the other axes (a folded batch norm)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
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


def factor_shared(expression: ir.Expression) -> ir.Expression | None:
    """A sum of elements that are all times one number, and of numbers of fewer axes, as that number times the sum of the
    elements and of those numbers by it: a difference is one operation then. None for anything else."""
    terms, own = list(_terms(expression, 1.0)), ir.axes_of(expression)
    wide = [(part, sign) for part, sign in terms if ir.axes_of(part) == own]
    narrow = [(part, sign) for part, sign in terms if ir.axes_of(part) != own]
    factors = {_number_in(part) for part, _ in wide}
    if len(wide) < 2 or not narrow or len(factors) != 1 or factors <= {None, 1.0}:
        return None
    (factor,) = factors
    assert factor is not None
    bare = _sum([(ir.parts_of(part)[0], sign) for part, sign in wide])
    rest = _sum([(ir.times(part, 1 / factor), sign) for part, sign in narrow])
    return ir.times(ir.Apply("add", (bare, rest)), factor)


def _terms(expression: ir.Expression, sign: float) -> Iterator[tuple[ir.Expression, float]]:
    """What an expression is the sum of, with signs."""
    if isinstance(expression, ir.Apply) and expression.function in ("add", "subtract"):
        first, second = expression.arguments
        yield from _terms(first, sign)
        yield from _terms(second, sign if expression.function == "add" else -sign)
    else:
        yield expression, sign


def _number_in(expression: ir.Expression) -> float | None:
    match expression:
        case ir.Apply("multiply", (_, ir.Constant(number))) if number > 0:
            return number
    return None


def _sum(terms: Sequence[tuple[ir.Expression, float]]) -> ir.Expression:
    """The sum of terms with signs, a positive one first where there is one."""
    (total, sign), *others = sorted(terms, key=lambda term: -term[1])
    total = total if sign > 0 else ir.Apply("negative", (total,))
    for part, sign in others:
        total = ir.Apply("add" if sign > 0 else "subtract", (total, part))
    return total


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
