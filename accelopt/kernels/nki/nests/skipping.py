"""Blocks that a mask by position empties: which they are, and whether what they give counts for nothing."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.functions import FUNCTIONS
from accelopt.algorithm.index import ZERO, Axis, Index, index_of
from accelopt.kernels.nki.nests.nest import NotNested

USUAL = 30.0
"""What is computed from inputs is tried in this range; exp of it is a number of fp32."""
LEAST = -1e3
"""What a mask writes to be less than all that is computed is no more than this (an assumption, which trials
of the kernel look into)."""
SAMPLES = 32


def masks_of(definitions: Sequence[ir.Definition], axis: Axis) -> set[Index]:
    """The conditions on two axes or more that change along `axis`."""
    return {
        condition
        for definition in definitions
        for part in ir.parts_in(definition)
        if isinstance(part, ir.Where)
        for condition in part.conditions
        if len(condition.axes) > 1 and condition.is_affine and condition.coefficient(axis)
    }


def masks_that_empty(
    definitions: Sequence[ir.Definition], axis: Axis, stored: Sequence[str]
) -> tuple[Index, ...]:
    """The conditions by which elements at the ends of an axis count for nothing in a stage of these
    definitions, of which some are `stored` in HBM: one for each end, or for one of them. Raises
    NotNested where there is none."""
    masks = sorted(masks_of(definitions, axis), key=lambda mask: mask.coefficient(axis))
    ends = [mask.coefficient(axis) > 0 for mask in masks]
    if not masks or len(set(ends)) < len(ends):
        raise NotNested(
            f"{definitions[-1].out} has no single mask that empties an end of {axis.name}"
        )
    summed = [{*d.reduced} for d in definitions if isinstance(d, ir.Reduce) and axis in d.reduced]
    along = {axis}.union(*summed[:1]).intersection(*summed)
    for mask, end in zip(masks, ends, strict=True):
        kept = {a: Index(a.extent - 1) if end else ZERO for a in along}
        if mask.substitute(kept).bounds[0] < 0:
            raise NotNested(f"{mask} >= 0 leaves nothing of some rows along {axis.name}")
        _check_nothing(definitions, axis, stored, mask)
    if len(masks) > 1 and (masks[0] + masks[1]).bounds[0] < 0:
        raise NotNested(f"nothing may be left of some rows between the ends of {axis.name}")
    return tuple(masks)


def _check_nothing(
    definitions: Sequence[ir.Definition], axis: Axis, stored: Sequence[str], mask: Index
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
                raise NotNested(f"{definition.out} depends on what {mask} >= 0 excludes")
        elif definition.out in stored or isinstance(definition, ir.Scan):
            raise NotNested(f"{definition.out} has elements where {mask} >= 0 does not hold")
        elif isinstance(definition, ir.Map):
            empty[ir.Read(definition.out, tuple(map(index_of, definition.axes)))] = values


def _where_empty(
    expression: ir.Expression, mask: Index, known: Mapping[ir.Expression, np.ndarray]
) -> np.ndarray:  # fmt: skip
    """Samples of what an expression is where a mask fails: of other numbers that are read, any."""
    if isinstance(expression, ir.Constant):
        return np.full(SAMPLES, expression.value)
    if expression in known:
        return known[expression]
    if isinstance(expression, ir.Where) and mask in expression.conditions:
        return _where_empty(expression.on_false, mask, known)
    values = [_where_empty(part, mask, known) for part in ir.parts_of(expression)]
    if isinstance(expression, ir.Apply) and expression.function in FUNCTIONS:
        with np.errstate(all="ignore"):
            return np.asarray(FUNCTIONS[expression.function](*values))
    return np.random.default_rng(zlib.crc32(repr(expression).encode())).uniform(
        -USUAL, USUAL, SAMPLES
    )
