"""Where definitions read an array, as far as the conditions around their reads say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accelopt.algorithm.algorithm import Expression, Read, Where, parts_of
from accelopt.algorithm.index import Axis, Index

Ends = tuple[int, int]
"""The least and the largest value of an index."""


def reads_of(
    name: str, expression: Expression, known: Mapping[Axis, Ends]
) -> Iterator[list[Ends]]:
    """Where the reads of an array are along each of its dimensions, where conditions leave axes what is `known`."""
    if isinstance(expression, Where):
        inside = dict(known)
        for condition in expression.conditions:
            inside |= _left_by(condition, inside)
        yield from reads_of(name, expression.on_true, inside)
        (first, *rest) = expression.conditions
        outside = {} if rest else _left_by(first * -1 - 1, known)
        yield from reads_of(name, expression.on_false, {**known, **outside})
        return
    if isinstance(expression, Read) and expression.array == name:
        yield [ends_of(index, known) for index in expression.indices]
    for part in parts_of(expression):
        yield from reads_of(name, part, known)


def _left_by(condition: Index, known: Mapping[Axis, Ends]) -> dict[Axis, Ends]:
    """What a condition on one axis leaves of it."""
    if len(condition.terms) != 1 or not isinstance(axis := condition.terms[0][0], Axis):
        return {}
    (low, high), step = known.get(axis, axis.bounds), condition.terms[0][1]
    if step > 0:
        return {axis: (max(low, -(condition.constant // step)), high)}
    return {axis: (low, min(high, condition.constant // -step))}


def ends_of(index: Index, known: Mapping[Axis, Ends]) -> Ends:
    ends = [
        sorted(step * end for end in (known.get(term, term.bounds) if isinstance(term, Axis) else term.bounds))
        for term, step in index.terms
    ]  # fmt: skip
    return index.constant + sum(e[0] for e in ends), index.constant + sum(e[1] for e in ends)
