"""Blocks that a mask by position empties: which they are, and whether what they give counts for nothing."""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.functions import FUNCTIONS
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.nests.nest import NotNested

USUAL = 30.0
"""What is computed from inputs is tried in this range; exp of it is a number of fp32."""
LEAST = -1e3
"""What a mask writes to be less than all that is computed is no more than this (an assumption, which trials
of the kernel look into)."""
SAMPLES = 32
MOST_ROWS = 1 << 22
"""Of which it is looked at whether a mask leaves something of each."""

Mask = tuple[tuple[Index, ...], ...]
"""What is kept: elements where all conditions of one of these are at least 0."""


@functools.lru_cache(maxsize=4096)
def mask_of(choice: ir.Where) -> tuple[Mask, float] | None:
    """Where a choice by affine conditions, and those within, are of anything but one number, the last, and that; None
    where there is no such number."""
    numbers = [p.value for p in _leaves(choice) if isinstance(p, ir.Constant)]
    if not numbers:
        return None
    kept = tuple(
        conditions for conditions, leaf in _paths(choice, ()) if leaf != ir.Constant(numbers[-1])
    )
    affine = all(c.is_affine for conditions in kept for c in conditions)
    return (kept, numbers[-1]) if affine else None


def _leaves(expression: ir.Expression) -> Iterator[ir.Expression]:
    if isinstance(expression, ir.Where):
        yield from _leaves(expression.on_true)
        yield from _leaves(expression.on_false)
    else:
        yield expression


def _paths(
    expression: ir.Expression, before: tuple[Index, ...]
) -> Iterator[tuple[tuple[Index, ...], ir.Expression]]:
    """What a choice may be, each with the conditions that all hold there."""
    if not isinstance(expression, ir.Where):
        yield before, expression
        return
    own = expression.conditions
    yield from _paths(expression.on_true, (*before, *own))
    for n, condition in enumerate(own):
        yield from _paths(expression.on_false, (*before, *own[:n], condition * -1 - 1))


def masks_of(definitions: Sequence[ir.Definition], axis: Axis) -> tuple[Mask, ...]:
    """What masks keep that change along `axis` and another together."""
    found: dict[Mask, None] = {}
    for definition in definitions:
        for part in ir.parts_in(definition):
            if isinstance(part, ir.Where) and (own := mask_of(part)):
                conditions = itertools.chain(*own[0])
                if any(len(c.axes) > 1 and c.coefficient(axis) for c in conditions):
                    found[own[0]] = None
    return tuple(found)


def masks_that_empty(
    definitions: Sequence[ir.Definition], axis: Axis, stored: Sequence[str]
) -> tuple[Mask, ...]:
    """The masks outside of which elements along an axis count for nothing in a stage of these definitions, of which
    some are `stored` in HBM. Raises NotNested where there is none."""
    summed = [{*d.reduced} for d in definitions if isinstance(d, ir.Reduce) and axis in d.reduced]
    along = {axis}.union(*summed[:1]).intersection(*summed)
    found, refusal = (
        list[Mask](),
        f"{definitions[-1].out} has no mask that changes along {axis.name}",
    )
    for mask in masks_of(definitions, axis):
        try:
            both = [tuple(dict.fromkeys((*a, *b))) for a in both_of(found) for b in mask]
            if not _is_left_of_all(both, axis, along):
                raise NotNested(f"a mask leaves nothing of some rows along {axis.name}")
            _check_nothing(definitions, axis, stored, mask)
            found.append(mask)
        except NotNested as odd:
            refusal = str(odd)
    if not found:
        raise NotNested(refusal)
    return tuple(found)


def both_of(masks: Sequence[Mask]) -> Mask:
    """What all masks keep."""
    return tuple(tuple(itertools.chain(*chosen)) for chosen in itertools.product(*masks))


def _is_left_of_all(mask: Sequence[tuple[Index, ...]], axis: Axis, along: set[Axis]) -> bool:
    """Whether a mask keeps an element of each row, which has the axes `along`."""
    axes = sorted({a for conditions in mask for c in conditions for a in c.axes} - {axis})
    if math.prod(a.extent for a in axes) > MOST_ROWS:
        return False
    grid = dict(zip(axes, np.ix_(*(np.arange(a.extent) for a in axes)), strict=True))
    left = np.zeros([a.extent for a in axes], bool)
    for conditions in mask:
        low, high = np.zeros_like(left, np.int64), np.full_like(left, axis.extent - 1, np.int64)
        for condition in conditions:
            step = condition.coefficient(axis)
            rest = (condition - index_of(axis) * step).evaluate(grid)
            if step > 0:
                low = np.maximum(low, -(rest // step))
            elif step < 0:
                high = np.minimum(high, rest // -step)
            else:
                high = np.where(rest < 0, -1, high)
        left |= low <= high
    return bool(left.any(tuple(n for n, a in enumerate(axes) if a in along)).all())


def _check_nothing(
    definitions: Sequence[ir.Definition], axis: Axis, stored: Sequence[str], mask: Mask
) -> None:
    """Raises NotNested where what a mask excludes counts for something."""
    empty: dict[ir.Expression, np.ndarray] = {}
    for definition in definitions:
        if axis not in ir.own_axes(definition):
            continue
        values = _where_empty(ir.expressions_of(definition)[0], mask, empty)
        if isinstance(definition, ir.Reduce) and axis in definition.reduced:
            nothing = {"add": values == 0, "maximum": values <= LEAST}.get(definition.combiner)
            if nothing is None or not nothing.all():
                raise NotNested(f"{definition.out} depends on what a mask excludes")
        elif definition.out in stored or isinstance(definition, ir.Scan):
            raise NotNested(f"{definition.out} has elements that a mask excludes")
        elif isinstance(definition, ir.Map):
            empty[ir.Read(definition.out, tuple(map(index_of, definition.axes)))] = values


def _where_empty(
    expression: ir.Expression, mask: Mask, known: Mapping[ir.Expression, np.ndarray]
) -> np.ndarray:  # fmt: skip
    """Samples of what an expression is outside of what a mask keeps: of other numbers that are read, any."""
    if isinstance(expression, ir.Constant):
        return np.full(SAMPLES, expression.value)
    if expression in known:
        return known[expression]
    own = mask_of(expression) if isinstance(expression, ir.Where) else None
    if own and all(any({*one} <= {*kept} for one in mask) for kept in own[0]):
        return np.full(SAMPLES, own[1])
    values = [_where_empty(part, mask, known) for part in ir.parts_of(expression)]
    if isinstance(expression, ir.Apply) and expression.function in FUNCTIONS:
        with np.errstate(all="ignore"):
            return np.asarray(FUNCTIONS[expression.function](*values))
    return np.random.default_rng(zlib.crc32(repr(expression).encode())).uniform(
        -USUAL, USUAL, SAMPLES
    )
