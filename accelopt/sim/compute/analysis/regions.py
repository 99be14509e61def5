"""The elements that an access reaches over the iterations of some loops: rectangles, told without
running anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from accelopt.sim.affine import Affine, LoopVariable, Term, TileAxis, variable
from accelopt.sim.compute.analysis.uses import Use, mask_is_aligned
from accelopt.sim.instruction_set import mask_shape
from accelopt.sim.program import Tensor


def normal(expression: Affine) -> Affine:
    """The expression with its terms in a fixed order, so that equal ones compare equal."""
    if len(expression.terms) < 2:
        return expression
    return Affine(expression.constant, tuple(sorted(expression.terms, key=repr)))


class NumberRange(NamedTuple):
    """The numbers first..last-1."""

    first: int
    last: int


def _span(constant: int, steps: list[tuple[int, int]]) -> NumberRange | None:
    """The interval that `constant + sum(coefficient * x)`, 0 <= x < extent, fills without a gap;
    None when it has gaps. Repeated values are fine."""
    reach = 0
    for coefficient, extent in sorted((abs(c), n) for c, n in steps if c and n > 1):
        if coefficient > reach + 1:
            return None
        reach += coefficient * (extent - 1)
    low = constant + sum(c * (n - 1) for c, n in steps if c < 0)
    return NumberRange(low, low + reach + 1)


class ReachedElements(NamedTuple):
    """The elements an access reaches while some loops (`fixed`) stand still: per block dimension
    either an interval or the index expression, and a rectangle of the tile, rows by columns, both
    counted from `origin` (an expression of fixed variables). `conditions` restrict it further."""

    blocks: tuple[NumberRange | Affine, ...]
    origin: Affine
    rows: NumberRange
    columns: NumberRange
    dtype: np.dtype
    conditions: frozenset[Affine]


ROW, COLUMN = TileAxis(-2, 0), TileAxis(-1, 0)  # the coordinates of a tile, in conditions


def _split(
    expression: Affine, fixed: frozenset[LoopVariable]
) -> tuple[Affine, dict[LoopVariable, int]] | None:
    """The part over fixed variables, and the coefficients of the other loop variables."""
    rest: list[tuple[Term, int]] = []
    moving: dict[LoopVariable, int] = {}
    for term, coefficient in expression.terms:
        if isinstance(term, LoopVariable) and term not in fixed:
            moving[term] = coefficient
        elif variable(term).loop_variables <= fixed:
            rest.append((term, coefficient))
        else:
            return None
    return Affine(expression.constant, tuple(rest)), moving


def _reach(constant: int, moving: Mapping[LoopVariable, int]) -> NumberRange | None:
    """The interval that `constant` plus the moving variables fills without a gap."""
    start = constant + sum(c * v.start for v, c in moving.items())
    return _span(start, [(c * v.step, v.trips) for v, c in moving.items()])


def region(use: Use, fixed: frozenset[LoopVariable], row: int) -> ReachedElements | None:
    """What a use reaches over all iterations of the loops that are not fixed; None when that is
    not a dense rectangle per block. `row` is the number of elements of a tile's row."""
    access = use.access
    if access.indirect or access.dtype != access.tensor.dtype:
        return None
    if any(loop.variable.trips < 1 for loop in use.loops):
        return None
    if use.writes and any(a.mask.constraints for a in use.instruction.inputs.values()):
        return None
    claimed: set[LoopVariable] = set()
    blocks: list[NumberRange | Affine] = []
    for index in access.block:
        parts = _split(index, fixed)
        if parts is None or claimed & parts[1].keys():
            return None
        rest, moving = parts
        claimed |= moving.keys()
        span = _reach(rest.constant, moving) if moving else None
        if moving and (span is None or not rest.is_constant):
            return None
        blocks.append(rest if span is None else span)
    parts = _split(access.offset, fixed)
    if parts is None or claimed & parts[1].keys():
        return None
    rest, moving = parts
    axes = list(zip(access.strides, access.shape, strict=True))
    start = rest.constant + sum(c * v.start for v, c in moving.items())
    steps = [*((c * v.step, v.trips) for v, c in moving.items()), *axes]
    rows = _span(start // row, [(c // row, n) for c, n in steps if c % row == 0])
    columns = _span(start % row, [(c, n) for c, n in steps if c % row])
    if rows is None or columns is None or columns.last > row:
        return None
    conditions = _conditions(use, row)
    if conditions is None:
        return None
    result = ReachedElements(
        tuple(blocks), rest - rest.constant, rows, columns, access.dtype, frozenset()
    )
    return _restrict(result, conditions, fixed, use.writes)


def _conditions(use: Use, row: int) -> list[Affine] | None:
    """The instruction's mask in tile coordinates. For a read, constraints that cannot be told in
    them are dropped; for a write there is then no answer."""
    access = use.access
    long = [
        (stride, place)
        for place, (stride, size) in enumerate(zip(access.strides, access.shape, strict=True))
        if size > 1
    ]
    along_rows = [place for stride, place in long if stride % row == 0]
    along_columns = [place for stride, place in long if stride % row]
    one_row = along_rows if len(along_rows) == 1 and (row, along_rows[0]) in long else []
    one_column = along_columns if len(along_columns) == 1 and (1, along_columns[0]) in long else []
    offset_rows = Affine(
        access.offset.constant // row,
        tuple((t, c // row) for t, c in access.offset.terms if c % row == 0),
    )
    offset_columns = Affine(
        access.offset.constant % row, tuple((t, c) for t, c in access.offset.terms if c % row)
    )
    aligned = mask_is_aligned(use) and len(access.shape) == len(mask_shape(use.instruction))
    found: list[Affine] = []
    for constraint in use.instruction.mask.simplified().constraints:
        replacement: dict[Term, Affine] = {}
        for axis in constraint.axes:
            place = len(access.shape) + axis.position
            fits = place >= 0 and access.shape[place] == axis.extent
            if fits and place in one_row:
                replacement[axis] = variable(ROW) - offset_rows
            elif fits and place in one_column:
                replacement[axis] = variable(COLUMN) - offset_columns
        if aligned and len(replacement) == len(constraint.axes):
            found.append(constraint.substitute(replacement))
        elif use.writes:
            return None
    return found


def _restrict(
    found: ReachedElements, conditions: list[Affine], fixed: frozenset[LoopVariable], write: bool
) -> ReachedElements | None:
    """Cuts the rectangle where a condition bounds one coordinate; keeps the others."""
    rows, columns = found.rows, found.columns
    kept: set[Affine] = set()
    for condition in conditions:
        if not condition.loop_variables <= fixed:
            if write:
                return None
        elif found.origin.is_constant and condition == Affine(condition.constant, ((ROW, -1),)):
            rows = NumberRange(rows.first, min(rows.last, condition.constant + 1))
        elif found.origin.is_constant and condition == Affine(condition.constant, ((COLUMN, -1),)):
            columns = NumberRange(columns.first, min(columns.last, condition.constant + 1))
        else:
            kept.add(normal(condition))
    return found._replace(rows=rows, columns=columns, conditions=frozenset(kept))


def row_length(tensor: Tensor) -> int:
    """Elements of one row: of a partition on-chip, of the last dimension in HBM."""
    shape = tensor.tile_shape
    if tensor.buffer.on_chip:
        return max(math.prod(shape[1:]), 1)
    return max(shape[-1], 1) if shape else 1


Rectangle = tuple[NumberRange, NumberRange]


def uncovered(
    left: list[Rectangle], read: ReachedElements, write: ReachedElements
) -> list[Rectangle]:
    """What a write leaves of the rectangles of a read."""
    if not _comparable(read, write):
        return left
    written = (write.rows, write.columns)
    return [piece for rectangle in left for piece in _subtract(rectangle, written)]


def _comparable(read: ReachedElements, write: ReachedElements) -> bool:
    if read.dtype != write.dtype or normal(read.origin) != normal(write.origin):
        return False
    if not write.conditions <= read.conditions:
        return False
    for mine, theirs in zip(read.blocks, write.blocks, strict=True):
        if isinstance(theirs, Affine):
            if not isinstance(mine, Affine) or normal(mine) != normal(theirs):
                return False
        elif isinstance(mine, Affine):
            low, high = mine.bounds
            if low < theirs.first or high >= theirs.last:
                return False
        elif mine.first < theirs.first or mine.last > theirs.last:
            return False
    return True


def _subtract(rectangle: Rectangle, written: Rectangle) -> list[Rectangle]:
    rows, columns = rectangle
    top, bottom = max(rows.first, written[0].first), min(rows.last, written[0].last)
    left, right = max(columns.first, written[1].first), min(columns.last, written[1].last)
    if top >= bottom or left >= right:
        return [rectangle]
    pieces = [
        (NumberRange(rows.first, top), columns),
        (NumberRange(bottom, rows.last), columns),
        (NumberRange(top, bottom), NumberRange(columns.first, left)),
        (NumberRange(top, bottom), NumberRange(right, columns.last)),
    ]
    return [p for p in pieces if p[0].first < p[0].last and p[1].first < p[1].last]
