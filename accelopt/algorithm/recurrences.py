"""What a loop leaves where each iteration builds on the one before.

The value that an iteration leaves is a function of what it found (`Carried`). Sums, products and
extremes of what was found are reductions over the loop; a first-order recurrence is a scan; a sum
that is rescaled whenever a running maximum grows (online softmax) is the sum with the last maximum.
"""

from __future__ import annotations

import functools
from typing import Protocol

from accelopt.algorithm.functions import ROUNDINGS
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.rerolling import arguments_of
from accelopt.algorithm.value_nodes import (
    NEUTRAL,
    Application,
    Carried,
    Choice,
    Fold,
    Product,
    ScanElement,
    Sum,
    Undefined,
    Value,
    children,
)
from accelopt.algorithm.values import Values, follows, fresh_axis

_NO_FORM = (
    "what this loop carries from one iteration to the next is neither a sum, a product, an extreme, "
    "an online softmax nor a first-order recurrence"
)


LoopPath = tuple[int, ...]
"""What a loop is known by."""


class LoopStates(Protocol):
    """What the loops of one kernel carry in tensors, which are known by numbers."""

    values: Values

    def trips_of(self, loop: LoopPath) -> int:
        """How often a loop runs."""

    def left_in(
        self, tensor: int, address: Index, loop: LoopPath, trips: tuple[Index, ...]
    ) -> Value:
        """What an element holds at the end of an iteration of a loop and of those around it."""

    def refusal(self, loop: LoopPath, reason: str) -> Exception:
        """What to raise where a loop has no closed form."""


def closed(
    states: LoopStates, tensor: int, address: Index, loop: LoopPath, around: tuple[Index, ...]
) -> Value:
    """What an element holds after a loop, whose iterations all write it, in the iterations `around` of
    the loops outside. Raises what `states` refuses with."""
    taken = [axis for index in (address, *around) for axis in index.axes]
    trip = fresh_axis(states.trips_of(loop), taken)
    closing = _Closing(states, loop, around, trip)
    return closing.after(tensor, address, closing.left(tensor, address))


def before(states: LoopStates, carried: Carried) -> Value:
    """What the iteration before left, when that does not build on still earlier ones; a sum over
    all earlier ones, when each adds to it; a recurrence, when each scales it before."""
    values = states.values
    trip, left = left_by_any(states, carried)
    previous = carried.iteration - 1
    found = values.substitute(left, {trip: previous})
    if all(part.loop != carried.loop for part in values.carried(found)):
        if values.substitute(left, {trip: Index(-1)}) == carried.initial:
            return found
        return values.where([previous], found, carried.initial)
    own = next((p for p in values.carried(left) if p.loop == carried.loop
                and p.tensor == carried.tensor and p.address == carried.address), None)  # fmt: skip
    if own is None:
        return carried
    parts = factor_and_term(values, left, own)
    if parts is not None and parts[0] == Constant(1.0) and not _of_loop(values, parts[1], own):
        earlier = values.where([previous - index_of(trip)], parts[1], values.number(0))
        added = fold(values, "add", [trip], earlier)
        return values.sum([(carried.initial, 1.0), (added, 1.0)])
    scan = of_one_before(values, left, own, trip, previous)
    return carried if scan is None else values.where([previous], scan, carried.initial)


def left_by_any(states: LoopStates, carried: Carried) -> tuple[Axis, Value]:
    """What any iteration leaves where the carried value is, and the axis that counts them."""
    taken = {a for i in (carried.address, carried.iteration, *carried.around) for a in i.axes}
    trip = fresh_axis(states.trips_of(carried.loop), taken)
    trips = (*carried.around, index_of(trip))
    return trip, states.left_in(carried.tensor, carried.address, carried.loop, trips)


class _Closing:
    """One loop, in the iteration that the axis `trip` counts."""

    def __init__(
        self, states: LoopStates, loop: LoopPath, around: tuple[Index, ...], trip: Axis
    ) -> None:
        self.states = states
        self.values: Values = states.values
        self.loop = loop
        self.trips = (*around, index_of(trip))
        self.trip = trip

    def left(self, tensor: int, address: Index) -> Value:
        """What an iteration leaves in an element, with what is only handed on resolved."""
        found = self.states.left_in(tensor, address, self.loop, self.trips)
        for part in self.met(found):
            if part.tensor != tensor or part.address != address:
                found = self._handed_on(found, part)
        return found

    def met(self, value: Value) -> list[Carried]:
        """What a value takes over from the iteration before."""
        found = [
            part
            for part in self.values.carried(value)
            if part.loop == self.loop and part.iteration == index_of(self.trip)
        ]
        return sorted(found, key=self.values.key) if len(found) > 1 else found

    def after(
        self, tensor: int, address: Index, value: Value, facts: tuple[Index, ...] = ()
    ) -> Value:
        """What the last iteration leaves in an element, `value` being what any does where `facts` hold.
        Raises where that is made of what another one held."""
        values = self.values
        if not self.met(value):
            return values.substitute(value, {self.trip: Index(self.trip.extent - 1)})
        if isinstance(value, Choice) and not any(self.trip in c.axes for c in value.conditions):
            otherwise = [c * -1 - 1 for c in value.conditions if len(value.conditions) == 1]
            yes = self.after(tensor, address, value.on_true, (*facts, *value.conditions))
            no = self.after(tensor, address, value.on_false, (*facts, *otherwise))
            return values.where(value.conditions, yes, no)
        alike = [
            part for part in self.met(value)
            if part.tensor == tensor and _is_zero(part.address - address, facts)
        ]  # fmt: skip
        if not alike:
            raise self.refusal()
        for part in alike[1:]:
            value = values.replace(value, part, alike[0])
        return self.last(value, alike[0])

    def refusal(self, reason: str = _NO_FORM) -> Exception:
        """What to raise."""
        return self.states.refusal(self.loop, reason)

    def _handed_on(self, value: Value, part: Carried) -> Value:
        """The value with something that every iteration makes anew for the next in place of what
        is carried."""
        made = self.states.left_in(part.tensor, part.address, self.loop, self.trips)
        if self.met(made):
            return value
        before = self.values.substitute(made, {self.trip: index_of(self.trip) - 1})
        if self.values.substitute(made, {self.trip: Index(-1)}) != part.initial:
            before = self.values.where([index_of(self.trip) - 1], before, part.initial)
        return self.values.replace(value, part, before)

    # Closed forms.

    def last(self, value: Value, own: Carried) -> Value:
        """What the last iteration leaves, `value` being what any leaves where `own` was before."""
        values = self.values
        if value == own:
            return own.initial
        if isinstance(value, Choice):
            return self._chosen(value, own)
        if isinstance(value, ScanElement):
            return self._chained(value, own)
        if isinstance(value, Application) and value.function in ("maximum", "minimum"):
            rest = self._others(value, value.function, own)
            folded = fold(values, value.function, [self.trip], rest)
            return self._with_initial(value.function, own, folded)
        if isinstance(value, Product):
            others = [(f, p) for f, p in value.factors if f != own]
            if (own, 1.0) in value.factors and not _hold(values, others, own):
                each = values.product(others, value.coefficient)
                folded = fold(values, "multiply", [self.trip], each)
                return self._with_initial("multiply", own, folded)
        if isinstance(value, (Sum, Product)):
            return self._linear(value, own)
        raise self.refusal()

    def _with_initial(self, combiner: str, own: Carried, folded: Value) -> Value:
        if isinstance(own.initial, Undefined):
            return own.initial
        return apply(self.values, "add" if combiner == "add" else combiner, [own.initial, folded])

    def _others(self, value: Application, function: str, own: Carried) -> Value:
        """The arguments of an extreme but the one that was before."""
        parts: list[Value] = []
        waiting: list[Value] = list(value.arguments)
        while waiting:
            part = waiting.pop()
            if isinstance(part, Application) and part.function == function:
                waiting.extend(part.arguments)
            elif part != own:
                if self.met(part):
                    raise self.refusal()
                parts.append(part)
        result = parts[0]
        for part in parts[1:]:
            result = apply(self.values, function, [result, part])
        return result

    def _chosen(self, value: Choice, own: Carried) -> Value:
        """Iterations that leave what was there, and such as take part when a condition holds."""
        values = self.values
        on_true, on_false = value.on_true, value.on_false
        if on_false == own and isinstance(on_true, (Sum, Product, Application)):
            combiner = "add" if isinstance(on_true, Sum) else (
                on_true.function if isinstance(on_true, Application) else "multiply")  # fmt: skip
            if combiner in NEUTRAL:
                rest = self._rest(on_true, own, combiner)
                neutral = values.number(NEUTRAL[combiner])
                each = values.where(value.conditions, rest, neutral)
                folded = fold(values, combiner, [self.trip], each)
                return self._with_initial(combiner, own, folded)
        return self._linear(
            value, own, "whether this loop keeps what it has depends on the iteration"
        )

    def _rest(self, value: Value, own: Carried, combiner: str) -> Value:
        if isinstance(value, Application):
            return self._others(value, combiner, own)
        if isinstance(value, Sum):
            rest = [(t, c) for t, c in value.terms if t != own]
            if (own, 1.0) in value.terms and not any(self.met(t) for t, _ in rest):
                return self.values.sum(rest, value.constant)
        raise self.refusal()

    def _linear(self, value: Value, own: Carried, reason: str = _NO_FORM) -> Value:
        """own * factor + term."""
        values = self.values
        parts = factor_and_term(values, value, own)
        if parts is None:
            raise self.refusal(reason)
        factor, term = parts
        if factor == Constant(1.0) and not self.met(term):
            folded = fold(values, "add", [self.trip], term)
            return self._with_initial("add", own, folded)
        if self.met(factor) or self.met(term):
            rescaled = self._rescaled(own, factor, term)
            if rescaled is not None:
                return rescaled
            known = value
            for part in dict.fromkeys((*self.met(factor), *self.met(term))):
                known = values.replace(known, part, before(self.states, part))
            others = [part for part in self.met(known) if part != own]
            if known == value or others:
                raise self.refusal(reason)
            return self._linear(known, own, reason)
        at = Index(self.trip.extent - 1)
        return values.same(ScanElement("multiply", factor, "add", term, own.initial, self.trip, at))

    # Online softmax.

    def _rescaled(self, own: Carried, factor: Value, term: Value) -> Value | None:
        """own * exp(a * (before - now)) + term(now), where `now` is what an iteration leaves of
        another state, and term(now) is a sum of terms with a factor exp(.. - a * now). None where it is no
        such value."""
        values = self.values
        others = {part for v in (factor, term) for part in self.met(v)}
        if len(others) != 1:
            return None
        (state,) = others
        now = self.left(state.tensor, state.address)
        scale = self._exponent(factor, state, now)
        if scale is None or own.initial != Constant(0.0) or not self._decays(term, now, scale):
            return None
        final = values.replace(term, now, self.after(state.tensor, state.address, now))
        if self.met(final):
            return None
        return fold(values, "add", [self.trip], final)

    def _exponent(self, factor: Value, state: Carried, now: Value) -> float | None:
        """a where the factor is exp(a * (state - now))."""
        if not isinstance(factor, Application) or factor.function != "exp":
            return None
        argument: Value = factor.arguments[0]
        terms = argument.terms if isinstance(argument, Sum) else ()
        scale = next((c for t, c in terms if t == state), None)
        if scale is None:
            return None
        wanted = self.values.sum([(state, scale), (now, -scale)])
        return scale if argument == wanted else None

    def _decays(self, term: Value, now: Value, scale: float) -> bool:
        """True when the term is some function that does not hold `now`, times exp(-scale * now)."""
        values = self.values
        if isinstance(term, Fold) and term.combiner == "add":
            return self._decays(term.body, now, scale)
        if isinstance(term, Sum):
            return not term.constant and all(self._decays(t, now, scale) for t, _ in term.terms)
        if isinstance(term, Choice) and term.on_false == Constant(0.0):
            return self._decays(term.on_true, now, scale)
        if isinstance(term, Product):
            holding = [f for f, _ in term.factors if _made_of(f, now)]
            return len(holding) == 1 and (holding[0], 1.0) in term.factors and self._decays(
                holding[0], now, scale)  # fmt: skip
        if isinstance(term, Application) and term.function == "select":
            chosen, on_true, on_false = term.arguments
            apart = not _made_of(chosen, now) and on_false == Constant(0.0)
            return apart and self._decays(on_true, now, scale)
        if isinstance(term, Application) and term.function in ROUNDINGS:
            return self._decays(term.arguments[0], now, scale)
        if isinstance(term, Application) and term.function == "exp":
            argument: Value = term.arguments[0]
            rest = values.sum([(argument, 1.0), (now, scale)])
            return not _made_of(rest, now) and not self.met(rest)
        return False

    # Scans.

    def _chained(self, value: ScanElement, own: Carried) -> Value:
        """A scan over each tile that goes on where the tile before ended is one over all."""
        length = value.along.extent
        last = Index(length - 1)
        if value.at != last or value.initial != own:
            raise self.refusal()
        if self.met(value.factor) or self.met(value.term):
            raise self.refusal()
        return joined_scan(self.values, value, self.trip, own.initial, None)


def of_one_before(
    values: Values, left: Value, own: Carried, state: Axis, at: Index
) -> Value | None:
    """The state `at` of a recurrence, where iteration `state` leaves `left` and found `own`; None where that
    is no recurrence of first order."""
    scale, combine = "multiply", "add"
    if extreme := extreme_and_rest(values, left, own):
        combine, factor, term = extreme[0], values.number(1), extreme[1]
    elif parts := factor_and_term(values, left, own):
        factor, term = parts
    else:
        return None
    if _of_loop(values, factor, own) or _of_loop(values, term, own):
        return None
    along = fresh_axis(state.extent, values.axes(left) | at.axes)
    moved = {state: index_of(along)}
    factor, term = values.substitute(factor, moved), values.substitute(term, moved)
    return values.same(ScanElement(scale, factor, combine, term, own.initial, along, at))


def extreme_and_rest(values: Values, value: Value, own: Carried) -> tuple[str, Value] | None:
    """Of a value that is the larger, or smaller, of what was before and something else, which, and that."""
    if not isinstance(value, Application) or value.function not in ("maximum", "minimum"):
        return None
    parts = arguments_of(value, value.function)
    others = [part for part in parts if part != own]
    if not others or len(others) == len(parts):
        return None
    rest = functools.reduce(lambda a, b: apply(values, value.function, [a, b]), others)
    return None if own in values.carried(rest) else (value.function, rest)


def factor_and_term(values: Values, value: Value, own: Carried) -> tuple[Value, Value] | None:
    """The factor of what was before and what is added to it, of a value that is linear in that."""
    terms = value.terms if isinstance(value, Sum) else ((value, 1.0),)
    factors: list[tuple[Value, float]] = []
    rest: list[tuple[Value, float]] = []
    for term, coefficient in terms:
        if own not in values.carried(term):
            rest.append((term, coefficient))
        elif term == own:
            factors.append((values.number(1), coefficient))
        elif isinstance(term, Product) and (own, 1.0) in term.factors:
            others = [(f, p) for f, p in term.factors if f != own]
            if _hold(values, others, own):
                return None
            factors.append((values.product(others, term.coefficient), coefficient))
        elif isinstance(term, Choice):
            yes, no = (factor_and_term(values, b, own) for b in (term.on_true, term.on_false))
            if yes is None or no is None:
                return None
            (on_true, rest_true), (on_false, rest_false) = yes, no
            factors.append((values.where(term.conditions, on_true, on_false), coefficient))
            rest.append((values.where(term.conditions, rest_true, rest_false), coefficient))
        else:
            return None
    return values.sum(factors), values.sum(rest, value.constant if isinstance(value, Sum) else 0.0)


def _of_loop(values: Values, value: Value, own: Carried) -> bool:
    """Whether a value is made of what the loop of `own` carries."""
    return any(part.loop == own.loop for part in values.carried(value))


def _is_zero(index: Index, facts: tuple[Index, ...]) -> bool:
    return index == Index() or (follows(index, facts) and follows(index * -1, facts))


def _hold(values: Values, parts: list[tuple[Value, float]], own: Carried) -> bool:
    return any(own in values.carried(part) for part, _ in parts)


def joined_scan(
    values: Values, tile: ScanElement, trip: Axis, initial: Value, at: Index | None
) -> Value:
    """The scan over the tiles that `trip` counts and the elements of each; its last element, or
    the one at an index of the whole."""
    length = tile.along.extent
    taken = values.axes(tile.factor) | values.axes(tile.term) | {tile.along, trip}
    whole = fresh_axis(trip.extent * length, taken)
    digits = {trip: index_of(whole) // length, tile.along: index_of(whole) % length}
    factor, term = values.substitute(tile.factor, digits), values.substitute(tile.term, digits)
    end = Index(whole.extent - 1) if at is None else at
    return values.same(ScanElement(tile.scale, factor, tile.combine, term, initial, whole, end))


def _made_of(value: Value, part: Value) -> bool:
    """True when `part` stands in the value."""
    seen: set[Value] = set()
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if found == part:
            return True
        if found not in seen:
            seen.add(found)
            waiting.extend(children(found))
    return False
