"""Rows whose segment is looked up, computed segment by segment.

A kernel that has a program a row asks which sequence its row is of: the last `k` with `start[k] <= row`. Rows of one
sequence read the same keys, so they are computed side by side: row `start[k] + i` of segment `k`, for all `k` and `i`,
each stored where it lies. Starts are taken to rise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.value_nodes import NEUTRAL
from accelopt.kernels.triton.emission.runtime_bounds import bound_by, sum_of, terms_of
from accelopt.kernels.triton.emission.simplifying import simple, tests_of


@dataclass(frozen=True)
class Segments:
    """`name[row]` is the segment of a row: the `number` for which the row is from `start` up to `end`."""

    name: str
    row: Axis
    number: Axis
    start: ir.Expression
    end: ir.Expression


def segments_in(algorithm: ir.Algorithm) -> Iterator[Segments]:
    """The definitions of an Algorithm that say which segment a row is of."""
    for definition in algorithm.definitions:
        if (
            isinstance(definition, ir.Reduce)
            and len(definition.axes) == len(definition.reduced) == 1
        ):
            found = _last_begun(definition)
            if found is not None and by_segments(algorithm, found.name) is not None:
                yield found


def _last_begun(definition: ir.Reduce) -> Segments | None:
    """The last `k` with `x[k] <= row < x[k + 1]`."""
    (row,), (number,), body = definition.axes, definition.reduced, definition.expression
    if (
        definition.combiner != "maximum"
        or not isinstance(body, ir.Apply)
        or body.function != "select"
    ):
        return None
    if body.arguments[1] != ir.Position(index_of(number)):
        return None
    start: ir.Expression | None = None
    end: ir.Expression | None = None
    for test in tests_of(body.arguments[0]):
        bound = bound_by(test)
        if bound is None:
            return None
        if bound.index == index_of(row) and not bound.strict:
            start = sum_of((term, -factor) for term, factor in bound.terms)
        elif bound.index == index_of(row) * -1 and bound.strict:
            end = sum_of(bound.terms)
        elif bound.index.axes:
            return None
    if start is None or end is None or _following(start, number) != end:
        return None
    return Segments(definition.out, row, number, start, end)


def _following(number: ir.Expression, axis: Axis) -> ir.Expression:
    return ir.substituted(number, {axis: index_of(axis) + 1}, {})


def by_segments(algorithm: ir.Algorithm, name: str) -> ir.Algorithm | None:
    """The same with rows computed segment by segment; None where that has no form."""
    (definition,) = (d for d in algorithm.definitions if d.out == name)
    assert isinstance(definition, ir.Reduce)
    found = _last_begun(definition)
    assert found is not None
    made, rows = list[ir.Definition](), _Rows(found)
    results = {array.name for array in algorithm.outputs}
    for own in algorithm.definitions:
        if own.out == name:
            continue
        row = rows.row_of(own)
        if row is None:
            if not ir.arrays_read(own).isdisjoint({name, *rows.moved}):
                return None
            made.append(own)
            continue
        body = None if isinstance(own, ir.Scan) else rows.of_segment(own.expression, row)
        if body is None or isinstance(own, ir.Scan):
            return None
        at = own.axes.index(row)
        moved = replace(own, expression=simple(body, {}))
        axes = (*own.axes[:at], found.number, rows.place, *own.axes[at + 1 :])
        if own.out not in results:
            rows.moved[own.out] = at
            made.append(rows.within(replace(moved, axes=axes)))
        elif isinstance(moved, ir.Map):
            made.append(rows.stored(moved, row))
        else:
            return None
    left = replace(algorithm, definitions=tuple(made))
    while unread := {d.out for d in left.definitions} - results - {
        array for d in left.definitions for array in ir.arrays_read(d)}:  # fmt: skip
        left = replace(left, definitions=tuple(d for d in left.definitions if d.out not in unread))
    return left


class _Rows:
    """Rows as places within segments: `place` in the segment `number`, at `start + place`."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.place = Axis(f"{segments.row.name}_{segments.name}", segments.row.extent)
        self.moved: dict[str, int] = {}
        length = sum_of(terms_of(ir.Apply("subtract", (segments.end, segments.start)))[0])
        self.inside = ir.Apply("less", (ir.Position(index_of(self.place)), length))

    def row_of(self, definition: ir.Definition) -> Axis | None:
        """The axis of a definition that is the row whose segment it asks for."""
        rows = {
            read.indices[self.moved.get(read.array, 0)]
            for read in ir.reads_in(definition)
            if read.array in (self.segments.name, *self.moved)
        }
        asked = [axis for axis in definition.axes if rows == {index_of(axis)}]
        return asked[0] if asked else None

    def of_segment(self, expression: ir.Expression, row: Axis) -> ir.Expression | None:
        """An expression of a row as one of its place; None where conditions on axes ask for the row."""
        number, start = self.segments.number, self.segments.start
        if isinstance(expression, ir.Where) and any(row in c.axes for c in expression.conditions):
            return None
        if isinstance(expression, ir.Position) and row in expression.index.axes:
            factor = expression.index.coefficient(row)
            here = ir.Position(expression.index.substitute({row: index_of(self.place)}))
            placed = ir.Apply("add", (here, ir.times(start, float(factor))))
            return placed if expression.index.is_affine else None
        if isinstance(expression, ir.Read):
            if expression.array == self.segments.name:
                return ir.Position(index_of(number))
            if expression.array in self.moved:
                at = self.moved[expression.array]
                before, after = expression.indices[:at], expression.indices[at + 1 :]
                place = (index_of(number), index_of(self.place))
                return ir.Read(expression.array, (*before, *place, *after))
            if any(row in index.axes for index in expression.indices):
                axis = Axis(f"@{self.segments.name}", row.extent)
                moved = {row: index_of(axis) + index_of(self.place)}
                return ir.Indirect(axis, start, ir.substituted(expression, moved, {}))
            return expression
        parts = [self.of_segment(part, row) for part in ir.parts_of(expression)]
        if any(part is None for part in parts):
            return None
        made = ir.with_parts(expression, [part for part in parts if part is not None])
        if isinstance(made, ir.Indirect) and isinstance(made.at, ir.Position):
            return ir.substituted(made.element, {made.axis: made.at.index}, {})
        return made

    def within(self, definition: ir.Map | ir.Reduce) -> ir.Definition:
        """With nothing in places behind a segment's end, where inputs are read there."""
        reads = [part for part in ir.walk(definition.expression) if isinstance(part, ir.Indirect)]
        if not any(self.place in ir.axes_of(part) for part in reads):
            return definition
        nothing = NEUTRAL[definition.combiner] if isinstance(definition, ir.Reduce) else 0.0
        body = ir.Apply("select", (self.inside, definition.expression, ir.Constant(nothing)))
        return replace(definition, expression=simple(body, {}))

    def stored(self, own: ir.Map, row: Axis) -> ir.Reduce:
        """A result with each row where it lies: of all places of all segments the one that is its own."""
        number, start = self.segments.number, self.segments.start
        here = index_of(row) - index_of(self.place)
        test = ir.Apply("logical_and", (ir.Apply("equal", (start, ir.Position(here))), self.inside))
        body = simple(ir.Apply("select", (test, own.expression, ir.Constant(0.0))), {})
        chosen = ir.Where((here,), body, ir.Constant(0.0))
        return ir.Reduce(own.out, own.axes, (number, self.place), "add", chosen)
