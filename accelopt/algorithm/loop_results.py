"""What is left to do when all outputs are known: values that loops hand on."""

from __future__ import annotations

from dataclasses import replace

from accelopt.algorithm.bound_names import BoundNames
from accelopt.algorithm.canonical_rewriting import rewritten
from accelopt.algorithm.index import Index
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.recurrences import LoopStates, before, joined_scan, left_by_any
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.value_nodes import (
    Application,
    Carried,
    Choice,
    Fold,
    ScanElement,
    Sum,
    Value,
    children,
)
from accelopt.algorithm.values import Values


def settled(states: LoopStates, value: Value) -> Value:
    """The value without anything carried, where that has a form."""
    return rewritten(states.values, value, lambda part: _settled(states, part))


def _settled(states: LoopStates, value: Value) -> Value:
    if isinstance(value, ScanElement) and isinstance(value.initial, Carried):
        return _continued(states, value, value.initial)
    if isinstance(value, Carried):
        return before(states, value)
    if isinstance(value, Fold) and isinstance(value.body, Choice):
        return fold(states.values, value.combiner, value.axes, value.body)
    if isinstance(value, (Sum, Application)):
        return _next(states.values, value)
    return value


def _next(values: Values, value: Value) -> Value:
    """The next state of a recurrence in the place of the step that makes it of the one before."""
    below = (part for child in children(value) for part in (child, *children(child)))
    for found in below:
        state = found.on_true if isinstance(found, Choice) else None
        if (
            not isinstance(state, ScanElement)
            or found != values.where([state.at], state, state.initial)
            or state.at.bounds[1] + 1 >= state.along.extent
        ):
            continue
        moved = {state.along: state.at + 1}
        factor, term = (values.substitute(part, moved) for part in (state.factor, state.term))
        scaled = apply(values, state.scale, [factor, found])
        if apply(values, state.combine, [scaled, term]) == value:
            return values.same(replace(state, at=state.at + 1))
    return value


def _continued(states: LoopStates, tile: ScanElement, carried: Carried) -> Value:
    """A scan over a tile that goes on where the tile before ended, as one scan over all."""
    values = states.values
    trip, left = left_by_any(states, carried)
    if not isinstance(left, ScanElement) or left.at != Index(left.along.extent - 1):
        return tile
    if not isinstance(left.initial, Carried) or left.initial.loop != carried.loop:
        return tile
    factor, term = (settled(states, part) for part in (left.factor, left.term))
    left = replace(left, factor=factor, term=term)
    now = values.substitute(left, {trip: carried.iteration})
    assert isinstance(now, ScanElement)
    names = BoundNames(values)
    if names.of(replace(now, initial=tile.initial, at=tile.at)) != names.of(tile):
        return tile
    at = carried.iteration * tile.along.extent + tile.at
    return joined_scan(values, left, trip, carried.initial, at)
