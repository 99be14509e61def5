"""Where definitions read an array, as far as the conditions around their reads say, and fewer conditions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of

Ends = tuple[int, int]
"""The least and the largest value of an index."""


def made_of(algorithm: ir.Algorithm, name: str) -> set[str]:
    """The definitions that one is made of, and those that they are made of."""
    definitions = {d.out: d for d in algorithm.definitions}
    waiting, found = [name], set[str]()
    while waiting:
        new = ir.arrays_read(definitions[waiting.pop()]) & definitions.keys() - found
        found |= new
        waiting += new
    return found


def in_order(
    definitions: Iterable[ir.Definition], early: Callable[[ir.Definition], bool] = lambda _: False
) -> tuple[ir.Definition, ...]:
    """The definitions, each after those that it reads, `early` ones first. Raises ValueError where they form a circle."""
    waiting, order = list(definitions), list[ir.Definition]()
    while waiting:
        missing = {d.out for d in waiting}
        free = [d for d in waiting if not missing & ir.arrays_read(d)]
        if not free:
            raise ValueError(f"{waiting[0].out} is made of itself")
        order.append(next(filter(early, free), free[0]))
        waiting.remove(order[-1])
    return tuple(order)


def reads_of(
    name: str, expression: ir.Expression, known: Mapping[Axis, Ends]
) -> Iterator[list[Ends]]:
    """Where the reads of an array are along each of its dimensions, where conditions leave axes what is `known`."""
    for branch, left in branches_of(expression, known):
        if isinstance(branch, ir.Read) and branch.array == name:
            yield [ends_of(index, left) for index in branch.indices]
        for part in ir.parts_of(branch):
            yield from reads_of(name, part, left)


def branches_of(
    expression: ir.Expression, known: Mapping[Axis, Ends]
) -> Iterator[tuple[ir.Expression, Mapping[Axis, Ends]]]:
    """What a choice by conditions is between, each with what those leave of axes there."""
    if not isinstance(expression, ir.Where):
        yield expression, known
        return
    inside = dict(known)
    for condition in expression.conditions:
        inside |= _left_by(condition, inside)
    yield from branches_of(expression.on_true, inside)
    (first, *rest) = expression.conditions
    outside = {} if rest else _left_by(first * -1 - 1, known)
    yield from branches_of(expression.on_false, {**known, **outside})


def _left_by(condition: Index, known: Mapping[Axis, Ends]) -> dict[Axis, Ends]:
    """What a condition on one axis leaves of it."""
    if len(condition.terms) != 1 or not isinstance(axis := condition.terms[0][0], Axis):
        return {}
    (low, high), step = known.get(axis, axis.bounds), condition.terms[0][1]
    if step > 0:
        return {axis: (max(low, -(condition.constant // step)), high)}
    return {axis: (low, min(high, condition.constant // -step))}


def ends_of(index: Index, known: Mapping[Axis, Ends]) -> Ends:
    """The least and the largest value of an index, where axes lie between the ends that are `known`."""
    ends = [
        sorted(step * end for end in (known.get(term, term.bounds) if isinstance(term, Axis) else term.bounds))
        for term, step in index.terms
    ]  # fmt: skip
    return index.constant + sum(e[0] for e in ends), index.constant + sum(e[1] for e in ends)


MOST_CELLS = 64
"""Parts of a domain that conditions cut out."""


def fewer_conditions(expression: ir.Expression) -> ir.Expression:
    """The same with each choice by conditions on single axes as few cuts through its domain: what is written tile
    by tile is chosen by what differs alone."""
    branches, rest = list[tuple[tuple[Index, ...], ir.Expression]](), expression
    while isinstance(rest, ir.Where):
        branches.append((rest.conditions, fewer_conditions(rest.on_true)))
        rest = rest.on_false
    rest = made = ir.with_parts(rest, map(fewer_conditions, ir.parts_of(rest)))
    for own, branch in reversed(branches):
        made = ir.Where(own, branch, made)
    conditions = [c for own, _ in branches for c in own]
    cuts: dict[Axis, set[int]] = {}
    for condition in conditions if len(branches) > 1 else ():
        (axis, step), *others = condition.terms or [(None, 0)]
        if others or not isinstance(axis, Axis) or abs(step) != 1:
            return made
        start = -condition.constant if step > 0 else condition.constant + 1
        cuts.setdefault(axis, {0}).update({start} & {*range(axis.extent)})
    axes, starts = list(cuts), [sorted(own) for own in cuts.values()]
    if not axes or math.prod(map(len, starts)) > MOST_CELLS:
        return made

    def chosen(cell: tuple[int, ...]) -> ir.Expression:
        at = {axis: Index(starts[n][c]) for n, (axis, c) in enumerate(zip(axes, cell, strict=True))}
        holds = (e for own, e in branches if all(c.substitute(at).constant >= 0 for c in own))
        return next(holds, rest)

    @functools.cache
    def built(box: tuple[tuple[int, int], ...]) -> tuple[int, ir.Expression]:
        cells = {chosen(cell) for cell in itertools.product(*(range(*ends) for ends in box))}
        if len(cells) == 1:
            return 0, cells.pop()
        found = list[tuple[int, ir.Expression]]()
        for n, (low, high) in enumerate(box):
            for cut in range(low + 1, high):
                (a, below), (b, above) = (
                    built((*box[:n], ends, *box[n + 1 :])) for ends in ((low, cut), (cut, high))
                )
                condition = index_of(axes[n]) - starts[n][cut]
                found.append((a + b + 1, ir.Where((condition,), above, below)))
        return min(found, key=lambda pair: pair[0])

    count, shorter = built(tuple((0, len(own)) for own in starts))
    return shorter if count < len(branches) else made
