"""Blocks that a mask by position empties: which they are, and whether what they give counts for nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accelopt.algorithm.algorithm import (
    Apply,
    Constant,
    Definition,
    Expression,
    Read,
    Reduce,
    Where,
    expressions_of,
    walk,
)
from accelopt.algorithm.functions import ROUNDINGS
from accelopt.algorithm.index import ZERO, Axis, Index, index_of
from accelopt.kernels.nki.nests.nest import NotNested
from accelopt.kernels.nki.nests.preparing import own_axes

LOW = -1e8
"""What a mask writes in the place of a number that is to count for nothing is no more than this: no number
that is computed from inputs is as large (an assumption, which trials of the kernel look into)."""
NO_EXPONENTIAL = -200.0
"""exp of no more is 0 in fp32."""


def masks_of(definitions: Sequence[Definition], axis: Axis) -> set[Index]:
    """The conditions on two axes or more that fail from some place along `axis` on."""
    return {
        condition
        for definition in definitions
        for expression in expressions_of(definition)
        for part in walk(expression)
        if isinstance(part, Where)
        for condition in part.conditions
        if len(condition.axes) > 1 and condition.is_affine and condition.coefficient(axis) < 0
    }


def mask_that_empties(
    definitions: Sequence[Definition], axis: Axis, stored: Sequence[str]
) -> Index:
    """The condition by which the last elements along an axis count for nothing in a stage of these
    definitions, of which some are `stored` in HBM. Raises NotNested where there is none."""
    masks = masks_of(definitions, axis)
    if len(masks) != 1:
        raise NotNested(
            f"{definitions[-1].out} has no single mask that empties the end of {axis.name}"
        )
    (mask,) = masks
    summed = [{*d.reduced} for d in definitions if isinstance(d, Reduce) and axis in d.reduced]
    first = dict.fromkeys({axis}.union(*summed[:1]).intersection(*summed), ZERO)
    if mask.substitute(first).bounds[0] < 0:
        raise NotNested(f"{mask} >= 0 leaves nothing of some rows along {axis.name}")
    empty: dict[str, float | None] = {}
    for definition in definitions:
        if axis not in own_axes(definition):
            continue
        (expression, *more) = expressions_of(definition)
        value = None if more else _where_empty(expression, mask, empty)
        if isinstance(definition, Reduce) and axis in definition.reduced:
            counts = value != 0 if definition.combiner == "add" else value is None or value > LOW
            if counts or definition.combiner not in ("add", "maximum"):
                raise NotNested(f"{definition.out} depends on what {mask} >= 0 excludes")
        elif definition.out in stored:
            raise NotNested(f"{definition.out} has elements where {mask} >= 0 does not hold")
        else:
            empty[definition.out] = (
                value if definition.axes and not isinstance(definition, Reduce) else None
            )
    return mask


def _where_empty(
    expression: Expression, mask: Index, known: dict[str, float | None]
) -> float | None:
    """The number that an expression is where a mask fails; a large negative one stands for itself and any
    number that inputs make added. None where it is not known."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Read):
        plain = all(
            len(index.terms) == 1 and index == index_of(*index.axes) for index in expression.indices
        )
        return known.get(expression.array) if plain else None
    if isinstance(expression, Where):
        yes, no = (
            _where_empty(side, mask, known) for side in (expression.on_true, expression.on_false)
        )
        return no if mask in expression.conditions or yes == no else None
    if not isinstance(expression, Apply):
        return None
    name, values = (
        expression.function,
        [_where_empty(argument, mask, known) for argument in expression.arguments],
    )
    first = values[0]
    if name in ROUNDINGS:
        return first
    if name == "exp" and first is not None:
        return math.exp(min(first, 80.0)) if first > NO_EXPONENTIAL else 0.0
    if (name == "divide" and first == 0) or (name == "multiply" and 0 in values):
        return 0.0
    if len(values) != 2:
        return None
    second = values[1]
    if first is not None and second is not None:
        numbers = {"add": first + second, "subtract": first - second, "multiply": first * second}
        return numbers.get(name)
    if name in ("add", "subtract") and first is not None and first <= LOW:
        return first
    return second if name == "add" and second is not None and second <= LOW else None
