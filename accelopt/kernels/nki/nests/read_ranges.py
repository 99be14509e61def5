"""Where definitions read an array, as far as the conditions around their reads say, and fewer conditions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from accelopt.algorithm import ir
from accelopt.algorithm.choice_cells import Cells, is_single
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


def shared_conditions(expression: ir.Expression) -> ir.Expression:
    """The same with conditions that both sides of a choice have, which are the same number where they fail, around it."""
    expression = ir.with_parts(expression, map(shared_conditions, ir.parts_of(expression)))
    if not isinstance(expression, ir.Where):
        return expression
    sides = [part for part in ir.parts_of(expression) if isinstance(part, ir.Where)]
    numbers = [side.on_false for side in sides if isinstance(side.on_false, ir.Constant)]
    shared = tuple(c for c in sides[0].conditions if c in sides[-1].conditions) if sides else ()
    if len(numbers) < 2 or numbers[0] != numbers[1] or not shared:
        return expression

    def rest(side: ir.Where) -> ir.Expression:
        left = tuple(c for c in side.conditions if c not in shared)
        return ir.Where(left, side.on_true, side.on_false) if left else side.on_true

    return ir.Where(shared, ir.with_parts(expression, map(rest, sides)), numbers[0])


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
    single = all(is_single(c) for own, _ in branches for c in own)
    if len(branches) < 2 or not single or (cut := Cells(branches, rest)).count > MOST_CELLS:
        return made
    axes, starts = list(cut.starts), list(cut.starts.values())

    @functools.cache
    def built(box: tuple[tuple[int, int], ...]) -> tuple[int, ir.Expression]:
        places = itertools.product(*(own[slice(*b)] for own, b in zip(starts, box, strict=True)))
        cells = {cut.chosen(dict(zip(axes, place, strict=True))) for place in places}
        if len(cells) == 1:
            return 0, cells.pop()
        found = list[tuple[int, ir.Expression]]()
        for n, (low, high) in enumerate(box):
            for at in range(low + 1, high):
                (a, below), (b, above) = (
                    built((*box[:n], ends, *box[n + 1 :])) for ends in ((low, at), (at, high))
                )
                condition = index_of(axes[n]) - starts[n][at]
                found.append((a + b + 1, ir.Where((condition,), above, below)))
        return min(found, key=lambda pair: pair[0])

    count, shorter = built(tuple((0, len(own)) for own in starts))
    return shorter if count < len(branches) else made
