"""Results whose elements are stored where numbers say that are read: sums of at most one element each.

Lifting writes the store of a ragged row as a sum over all rows, `out[r] = sum over s, i of (value[s, i] if
start[s] + i == r else 0)`. Where `i` ends before the start of the next `s`, no two rows have one place: each
`value[s, i]` is computed once and stored at `start[s] + i`. What has no row is 0, or that which changes no
maximum where it is one of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from accelopt.algorithm import ir
from accelopt.algorithm.index import ZERO, Axis, Index, index_of
from accelopt.algorithm.value_nodes import NEUTRAL
from accelopt.kernels.triton.emission.runtime_bounds import bound_by, terms_of
from accelopt.kernels.triton.emission.simplifying import branch, tests_of

FILLED = ("add", "maximum")


@dataclass(frozen=True)
class Scatter:
    """Where a member's elements lie: `axis` in its place is `number + offset`. It is stored where the `tests`
    hold; elsewhere the result is `nothing`."""

    axis: Axis
    number: ir.Expression
    offset: Index
    tests: tuple[ir.Expression, ...]
    nothing: float = 0.0


def scattered(definition: ir.Definition) -> tuple[ir.Map, Scatter, Axis] | None:
    """The elements that a sum is made of, where each of its own is one of them or 0, and the axis of the sum
    that the place of an element is."""
    if not isinstance(definition, ir.Reduce) or definition.combiner not in FILLED:
        return None
    nothing = ir.Constant(NEUTRAL[definition.combiner])
    body, conditions = definition.expression, list[Index]()
    tests: list[ir.Expression] = []
    while branch_is(body, nothing):
        if isinstance(body, ir.Where):
            conditions += body.conditions
        elif isinstance(body, ir.Apply):
            tests += tests_of(body.arguments[0])
        body = branch(body)
    for test in tests:
        if not isinstance(test, ir.Apply) or test.function != "equal":
            continue
        for number, place in (test.arguments, test.arguments[::-1]):
            if not isinstance(place, ir.Position) or isinstance(number, (ir.Position, ir.Constant)):
                continue
            for axis in definition.axes:
                found = _placed(
                    definition, axis, number, place.index, test, tests, conditions, body
                )
                if found is not None:
                    return found
    return None


def branch_is(expression: ir.Expression, nothing: ir.Constant) -> bool:
    """Whether an expression is a choice that is `nothing` elsewhere."""
    choice = isinstance(expression, ir.Where) or (
        isinstance(expression, ir.Apply) and expression.function == "select"
    )
    return choice and branch(expression, False) == nothing


def _placed(
    definition: ir.Reduce, axis: Axis, number: ir.Expression, place: Index, own: ir.Expression,
    tests: list[ir.Expression], conditions: list[Index], body: ir.Expression,
) -> tuple[ir.Map, Scatter, Axis] | None:  # fmt: skip
    offset = index_of(axis) - place
    others = [test for test in tests if test != own]
    if axis in offset.axes or axis in ir.axes_of(body) | ir.axes_of(number):
        return None
    if any(axis in ir.axes_of(test) for test in others) or any(c != place for c in conditions):
        return None
    if not {*definition.reduced} <= offset.axes | ir.axes_of(number):
        return None
    if not _apart(number, offset, others):
        return None
    axes = (*definition.reduced, *(a for a in definition.axes if a != axis))
    moved = Axis(f"@{definition.out}", axis.extent)
    return (
        ir.Map(definition.out, axes, body),
        Scatter(moved, number, offset, tuple(others), NEUTRAL[definition.combiner]),
        axis,
    )


def _apart(number: ir.Expression, offset: Index, tests: list[ir.Expression]) -> bool:
    """Whether places lie between an element of an array and its next one: such parts do not overlap. `offset`
    counts the axes that the number does not have."""
    if len(ir.axes_of(number)) != 1 or offset.axes & ir.axes_of(number) or offset.bounds[0] < 0:
        return False
    (axis,) = ir.axes_of(number)
    following = ir.substituted(number, {axis: index_of(axis) + 1}, {})
    wanted, rest = terms_of(ir.Apply("subtract", (following, number)))
    return (
        rest == ZERO
        and _counts(offset)
        and any(
            bound is not None
            and bound.terms == wanted
            and bound.strict
            and bound.index == offset * -1
            for bound in map(bound_by, tests)
        )
    )


def _counts(index: Index) -> bool:
    """Whether an index has another value for other axes."""
    below = 1
    for term, factor in sorted(index.terms, key=lambda pair: pair[1]):
        if not isinstance(term, Axis) or factor < below:
            return False
        below = factor * term.extent
    return True


def moved(scatter: Scatter, axes: Mapping[Axis, Index]) -> Scatter:
    """With indices in the place of axes."""
    return replace(
        scatter, number=ir.substituted(scatter.number, axes, {}), offset=scatter.offset.substitute(axes),
        tests=tuple(ir.substituted(test, axes, {}) for test in scatter.tests),
    )  # fmt: skip
