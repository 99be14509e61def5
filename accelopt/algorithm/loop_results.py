"""What is left to do when all outputs are known: values that loops hand on."""

from __future__ import annotations

from accelopt.algorithm.algorithm import Constant
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.recurrences import (
    LoopStates,
    extreme_and_rest,
    factor_and_term,
    joined_scan,
)
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.value_nodes import (
    Carried,
    Choice,
    Fold,
    ScanElement,
    Value,
)
from accelopt.algorithm.values import fresh_axis
from accelopt.algorithm.whole_forms import rewritten


def settled(states: LoopStates, value: Value) -> Value:
    """The value without anything carried, where that has a form."""
    return rewritten(states.values, value, lambda part: _settled(states, part))


def _settled(states: LoopStates, value: Value) -> Value:
    if isinstance(value, ScanElement) and isinstance(value.initial, Carried):
        return _continued(states, value, value.initial)
    if isinstance(value, Carried):
        return _before(states, value)
    if isinstance(value, Fold) and isinstance(value.body, Choice):
        return fold(states.values, value.combiner, value.axes, value.body)
    return value


def _left(states: LoopStates, carried: Carried) -> tuple[Axis, Value]:
    """What any iteration leaves where the carried value is, and the axis that counts them."""
    taken = {a for i in (carried.address, carried.iteration, *carried.around) for a in i.axes}
    trip = fresh_axis(states.trips_of(carried.loop), taken)
    trips = (*carried.around, index_of(trip))
    return trip, states.left_in(carried.tensor, carried.address, carried.loop, trips)


def _before(states: LoopStates, carried: Carried) -> Value:
    """What the iteration before left, when that does not build on still earlier ones; a sum over
    all earlier ones, when each adds to it; a recurrence, when each scales it before."""
    values = states.values
    trip, left = _left(states, carried)
    previous = carried.iteration - 1
    before = values.substitute(left, {trip: previous})
    if all(part.loop != carried.loop for part in values.carried(before)):
        if values.substitute(left, {trip: Index(-1)}) == carried.initial:
            return before
        return values.where([previous], before, carried.initial)
    own = next((p for p in values.carried(left) if p.loop == carried.loop
                and p.tensor == carried.tensor and p.address == carried.address), None)  # fmt: skip
    if own is not None and (extreme := extreme_and_rest(values, left, own)):
        combine, rest = extreme
        if all(p.loop != carried.loop for p in values.carried(rest)):
            one = values.number(1)
            scan = ScanElement("multiply", one, combine, rest, carried.initial, trip, previous)
            return values.where([previous], values.same(scan), carried.initial)
    parts = factor_and_term(values, left, own) if own is not None else None
    if parts is None or any(p.loop == carried.loop for v in parts for p in values.carried(v)):
        return carried
    factor, term = parts
    if factor == Constant(1.0):
        earlier = values.where([previous - index_of(trip)], term, values.number(0))
        added = fold(values, "add", [trip], earlier)
        return values.sum([(carried.initial, 1.0), (added, 1.0)])
    scan = ScanElement("multiply", factor, "add", term, carried.initial, trip, previous)
    return values.where([previous], values.same(scan), carried.initial)


def _continued(states: LoopStates, tile: ScanElement, carried: Carried) -> Value:
    """A scan over a tile that goes on where the tile before ended, as one scan over all."""
    values = states.values
    trip, left = _left(states, carried)
    if not isinstance(left, ScanElement) or left.at != Index(left.along.extent - 1):
        return tile
    if not isinstance(left.initial, Carried) or left.initial.loop != carried.loop:
        return tile
    now = values.substitute(left, {trip: carried.iteration})
    assert isinstance(now, ScanElement)
    alike = (now.scale, now.combine, now.along.extent) == (
        tile.scale, tile.combine, tile.along.extent)  # fmt: skip
    moved = {now.along: index_of(tile.along)}
    if not alike or values.substitute(now.term, moved) != tile.term:
        return tile
    if values.substitute(now.factor, moved) != tile.factor:
        return tile
    at = carried.iteration * tile.along.extent + tile.at
    return joined_scan(values, left, trip, carried.initial, at)
