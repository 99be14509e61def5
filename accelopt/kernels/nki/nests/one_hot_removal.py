"""Sums over an axis of which one element is told apart by its number, as a read of that element.

With `hit = (k == e)`, of which at most one k is hit, `sum_k f(k, hit)` is `sum_k f(k, 0)` and, where
`0 <= e < K`, `f(e, 1) - f(e, 0)`: exact in real numbers.
before: loss[m] = sum_k (k == t[m]) * x[m, k]      after: loss[m] = x[m, t[m]], 0 where t[m] is no k
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of

LEAST_PLACES = 8
"""Elements of which Vector finds the largest (nki.isa.max8)."""
ZERO, ONE = ir.Constant(0.0), ir.Constant(1.0)


class _Hit(NamedTuple):
    """`axis == element`, as it stands in an expression."""

    test: ir.Expression
    axis: Axis
    element: ir.Expression


def without_one_hot(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The Algorithm with such sums as reads, where what is read along the axis is an input."""
    inputs = {array.name for array in algorithm.inputs}
    whole = {array.name for array in algorithm.inputs if "int" in array.dtype}
    made: list[ir.Definition] = []
    for definition in algorithm.definitions:
        made += (
            _read(definition, inputs, whole) if isinstance(definition, ir.Reduce) else [definition]
        )
    return replace(algorithm, definitions=tuple(made))


def places_found(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The Algorithm with the first place of a row's largest element as such, where it is the least of those that equal it."""
    largest = {
        d.out: d
        for d in algorithm.definitions
        if isinstance(d, ir.Reduce) and d.combiner == "maximum" and len(d.reduced) == 1
    }

    def found(reduce: ir.Definition) -> ir.Definition:
        match reduce:
            case ir.Reduce(
                combiner="minimum",
                reduced=(axis,),
                expression=ir.Apply("select", (equal, ir.Position(place), ir.Constant(none))),
            ) if place == index_of(axis) and none >= axis.extent >= LEAST_PLACES:
                match equal:
                    case ir.Apply("equal", (element, ir.Read(name, indices))) if name in largest:
                        whole = largest[name]
                        own = dict(zip(whole.axes, indices, strict=True))
                        own[whole.reduced[0]] = index_of(axis)
                        if ir.substituted(whole.expression, own, {}) == element:
                            return replace(reduce, combiner="place_1", expression=element)
        return reduce

    return replace(algorithm, definitions=tuple(map(found, algorithm.definitions)))


def _read(
    reduce: ir.Reduce, inputs: Collection[str], whole: Collection[str]
) -> list[ir.Definition]:
    hit = next(_hits(reduce, whole), None) if reduce.combiner == "add" else None
    if hit is None:
        return [reduce]
    expression = reduce.expression
    rest = _replaced(expression, hit.test, ZERO)
    more = _sum(_replaced(expression, hit.test, ONE), _negative(rest))
    if not all(_can_be_read(part, hit.axis, inputs) for part in ir.walk(more)):
        return [reduce]
    last = ir.Constant(float(hit.axis.extent - 1))
    at = ir.Apply("maximum", (ir.Apply("minimum", (hit.element, last)), ZERO))
    inside = ir.Apply("equal", (at, hit.element))
    picked = _product(inside, _picked(more, hit.axis, at))
    others = tuple(axis for axis in reduce.reduced if axis != hit.axis)
    found: list[ir.Definition] = []
    total: ir.Expression = ZERO
    if rest != ZERO:
        name = f"{reduce.out}_rest"
        found.append(replace(reduce, out=name, expression=rest))
        total = ir.Read(name, tuple(map(index_of, reduce.axes)))
    if others:
        name = f"{reduce.out}_picked"
        found.append(replace(reduce, out=name, reduced=others, expression=picked))
        picked = ir.Read(name, tuple(map(index_of, reduce.axes)))
    return [*found, ir.Map(reduce.out, reduce.axes, _sum(total, picked))]


def _hits(reduce: ir.Reduce, whole: Collection[str]) -> Iterator[_Hit]:
    """The comparisons of a reduced axis with an integer that does not depend on it."""
    for part in ir.walk(reduce.expression):
        if not isinstance(part, ir.Apply) or part.function != "equal":
            continue
        for place, element in (part.arguments, part.arguments[::-1]):
            if not isinstance(place, ir.Position) or not isinstance(element, ir.Read):
                continue
            terms = place.index.terms
            if len(terms) != 1 or terms[0][1] != 1 or terms[0][0] not in reduce.reduced:
                continue
            axis = terms[0][0]
            assert isinstance(axis, Axis)
            if element.array in whole and axis not in ir.axes_of(element):
                moved: ir.Expression = element
                if place.index.constant:
                    moved = ir.Apply(
                        "subtract", (element, ir.Constant(float(place.index.constant)))
                    )
                yield _Hit(part, axis, moved)


def _can_be_read(part: ir.Expression, axis: Axis, inputs: Collection[str]) -> bool:
    """Whether a part of an expression can be had at a number that is known at run time alone."""
    if isinstance(part, ir.Where):
        return not any(axis in condition.axes for condition in part.conditions)
    if isinstance(part, ir.Indirect):
        return axis not in ir.axes_of(part)
    if isinstance(part, ir.Position):
        return part.index in (index_of(axis),) or axis not in part.index.axes
    if isinstance(part, ir.Read) and axis in ir.axes_of(part):
        return part.array in inputs and all(i.is_affine for i in part.indices)
    return True


def _picked(expression: ir.Expression, axis: Axis, at: ir.Expression) -> ir.Expression:
    """The expression at a number in the place of an axis."""
    if isinstance(expression, ir.Position):
        return at if axis in expression.index.axes else expression
    if isinstance(expression, ir.Read):
        if axis not in ir.axes_of(expression):
            return expression
        named = Axis("@0", axis.extent)
        values: dict[Axis, Index] = {axis: index_of(named)}
        indices = tuple(index.substitute(values) for index in expression.indices)
        return ir.Indirect(named, at, ir.Read(expression.array, indices))
    return ir.with_parts(expression, (_picked(part, axis, at) for part in ir.parts_of(expression)))


def _replaced(expression: ir.Expression, old: ir.Expression, new: ir.Expression) -> ir.Expression:
    """The expression with another in the place of a part, and sums and products with 0 and 1 done."""
    if expression == old:
        return new
    parts = tuple(_replaced(part, old, new) for part in ir.parts_of(expression))
    if isinstance(expression, ir.Apply):
        if expression.function == "multiply":
            return _product(*parts)
        if expression.function == "add":
            return _sum(*parts)
        if expression.function == "subtract" and ZERO in parts:
            return parts[0] if parts[1] == ZERO else _negative(parts[1])
        if expression.function == "negative" and parts == (ZERO,):
            return ZERO
        if expression.function == "divide" and parts[0] == ZERO:
            return ZERO
    return ir.with_parts(expression, parts)


def _sum(left: ir.Expression, right: ir.Expression) -> ir.Expression:
    if ZERO in (left, right):
        return right if left == ZERO else left
    return ir.Apply("add", (left, right))


def _product(left: ir.Expression, right: ir.Expression) -> ir.Expression:
    if ZERO in (left, right):
        return ZERO
    if ONE in (left, right):
        return right if left == ONE else left
    return ir.Apply("multiply", (left, right))


def _negative(expression: ir.Expression) -> ir.Expression:
    return ZERO if expression == ZERO else ir.Apply("multiply", (expression, ir.Constant(-1.0)))
