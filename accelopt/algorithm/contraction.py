"""Which sums are matrix products, and of what.

A sum of products is one when its factors fall into two groups that share what is summed and each
keep axes of their own. A factor without an axis of its own (a gain of k) goes with the group of the
factor that has most; what does not depend on the summed axes is a scale of the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accelopt.algorithm.index import Axis
from accelopt.algorithm.ir import Apply, Constant, Expression, Reduce, Where, axes_of

ONE, ZERO = Constant(1.0), Constant(0.0)


@dataclass(frozen=True, slots=True)
class Contraction:
    """`out[batch, rows, columns] = scale * sum over contracted of left * right`: `left` depends on
    `rows` and not on `columns`, `right` the other way round, neither of which is empty; both, or
    neither, depend on an axis of `batch`. `scale` depends on none of `contracted`. Axes stand in the Reduce's order."""

    left: Expression
    right: Expression
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    contracted: tuple[Axis, ...]
    scale: Expression = ONE

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        axes = (*self.batch, *self.rows, *self.columns, *self.contracted)
        return 2 * math.prod(axis.extent for axis in axes)


def contraction(definition: Reduce) -> Contraction | None:
    """The matrix product that a Reduce is; None where it is none. Its rows are the axes that come
    first in the result. A product with a vector is none, nor is a sum of squares."""
    factors = _masked_factors(definition.expression)
    if definition.combiner != "add" or len(factors) < 2:
        return None
    summed = frozenset(definition.reduced)
    inner = [f for f in factors if axes_of(f) & summed]
    scale = [f for f in factors if not axes_of(f) & summed]
    groups = _groups(inner, summed)
    if groups is None:
        return None
    (left, left_axes), (right, right_axes) = groups
    rows = tuple(a for a in definition.axes if a in left_axes and a not in right_axes)
    columns = tuple(a for a in definition.axes if a in right_axes and a not in left_axes)
    batch = tuple(a for a in definition.axes if (a in left_axes) == (a in right_axes))
    if definition.axes.index(columns[0]) < definition.axes.index(rows[0]):
        left, right, rows, columns = right, left, columns, rows
    return Contraction(
        product_of(left), product_of(right), batch, rows, columns, definition.reduced,
        product_of(scale),
    )  # fmt: skip


def _masked_factors(expression: Expression) -> list[Expression]:
    """What an expression is the product of, where a mask of the product is one of the factor with its axes, or a factor
    itself where a single one has not all of them (a sum up to a step)."""
    if not isinstance(expression, Where) or expression.on_false != ZERO:
        return factors_of(expression)
    factors = _masked_factors(expression.on_true)
    asked = frozenset[Axis]().union(*(c.axes for c in expression.conditions))
    own = [axes_of(factor) for factor in factors]
    fit = min(range(len(own)), key=lambda n: (len(asked - own[n]), len(own[n])))
    if sum(map(bool, own)) == 1 and (there := asked & frozenset().union(*own)) and there != asked:
        return [Where(expression.conditions, ONE, ZERO), *factors]
    factors[fit] = Where(expression.conditions, factors[fit], ZERO)
    return factors


def factors_of(expression: Expression) -> list[Expression]:
    """What an expression is the product of."""
    if isinstance(expression, Apply) and expression.function == "multiply":
        return [factor for part in expression.arguments for factor in factors_of(part)]
    if isinstance(expression, Apply) and expression.function == "square":
        return factors_of(expression.arguments[0]) * 2
    if isinstance(expression, Apply) and expression.function == "negative":
        return [*factors_of(expression.arguments[0]), Constant(-1.0)]
    if isinstance(expression, Apply) and expression.function == "divide":
        over, under = expression.arguments
        if len(found := factors_of(over)) > 1:
            return [*found, Apply("reciprocal", (under,))]
    return [expression]


def product_of(factors: list[Expression]) -> Expression:
    """The product of some factors."""
    if not factors:
        return ONE
    result = factors[0]
    for factor in factors[1:]:
        result = Apply("multiply", (result, factor))
    return result


Group = tuple[list[Expression], frozenset[Axis]]


def _groups(factors: list[Expression], summed: frozenset[Axis]) -> tuple[Group, Group] | None:
    """The factors in two groups that both keep axes of their own; None where there are none."""
    kept = [axes_of(factor) - summed for factor in factors]
    if sum(map(bool, kept)) < 2:
        return None
    largest = [axes for axes in kept if axes and not any(axes < other for other in kept)]
    shared = frozenset.intersection(*largest)
    own = [axes - shared for axes in kept]
    seed = max(range(len(factors)), key=lambda n: len(own[n]))
    inside = {seed}
    reached = own[seed]
    while joining := {n for n in range(len(factors)) if own[n] & reached} - inside:
        inside |= joining
        reached = reached.union(*(own[n] for n in joining))
    outside = [n for n in range(len(factors)) if n not in inside and own[n]]
    if not reached or not outside:
        return None
    inside |= {n for n in range(len(factors)) if not own[n]}
    groups = [
        ([factors[n] for n in sorted(group)], frozenset().union(*(kept[n] for n in group)))
        for group in (inside, outside)
    ]
    return groups[0], groups[1]
