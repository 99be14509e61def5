"""Makes values in a form where equal functions of real numbers look equal.

Sums and products are flat and sorted, with their constants collected; every value is made once, so
that equal ones are the same object.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from accelopt.algorithm.common_factors import Sign, complemented
from accelopt.algorithm.index import Axis, Floor, Index, index_of
from accelopt.algorithm.ir import Constant, Position
from accelopt.algorithm.normal_forms import common_factor, named_factors
from accelopt.algorithm.value_nodes import (
    UNDEFINED,
    Application,
    Carried,
    Choice,
    Element,
    Fold,
    Lookup,
    Product,
    ScanElement,
    Sum,
    Undefined,
    Value,
    bound_axes,
    children,
    details,
    own_indices,
)

V = TypeVar("V")


MOST_PLACES = 65_536
"""Of axes together, that conditions are tried at."""
MOST_COVERED = 1 << 22
"""Of axes together, at which it is tried whether all that is read was written."""
MOST_NUMBERS = 4
"""Of a floor, that are tried for what conditions leave it."""
LONGEST_KEY = 20_000
"""Characters of a text by which values are ordered."""
DROWNS = 2e-5 * 2.0**24
"""A constant that is larger leaves what is added to it wrong by more than the published bound: such a
sum, as `(mask - 1) * 1e9` is, stays one by itself, for its own terms may cancel it."""


def follows(condition: Index, facts: Iterable[Index]) -> bool:
    """True when a condition (>= 0) holds wherever all of the facts do, as far as bounds and sums of facts tell."""
    facts = tuple(facts)
    if condition.bounds[0] >= 0 or any((condition - f).bounds[0] >= 0 for f in facts):
        return True
    if not condition.is_affine and len(condition.axes) == 1:
        return never((*(f for f in facts if f.axes <= condition.axes), condition * -1 - 1))
    if not condition.is_affine:
        return False
    return least_where(condition, ranges_where(frozenset(facts))) >= 0 or _adds_up(condition, facts)


@functools.lru_cache(maxsize=4096)
def _adds_up(condition: Index, facts: tuple[Index, ...]) -> bool:
    """Whether a condition is multiples of some facts and what is never negative, the largest factors first."""
    if condition.bounds[0] >= 0:
        return True
    if not condition.terms:
        return False
    term, factor = max(condition.terms, key=lambda pair: abs(pair[1]))
    for n, fact in enumerate(facts):
        times, odd = divmod(factor, fact.coefficient(term) or -factor)
        rest = facts[:n] + facts[n + 1 :]
        if times > 0 and not odd and _adds_up(condition - fact * times, rest):
            return True
    return False


def needed(conditions: Sequence[Index]) -> tuple[Index, ...]:
    """Conditions (each >= 0) without those on several axes that follow from the others."""
    kept = tuple(conditions)
    for condition in sorted(conditions, key=lambda c: -len(c.axes)):
        others = tuple(c for c in kept if c != condition)
        kept = others if len(condition.axes) > 1 and follows(condition, others) else kept
    return kept


@functools.lru_cache(maxsize=4096)
def everywhere(facts: tuple[Index, ...], covers: tuple[tuple[Index, ...], ...]) -> bool:
    """Whether, wherever all facts hold, all conditions of one of the covers do, tried at all places of their axes
    where those are few."""
    conditions = [c for cover in covers for c in cover]
    axes = sorted(frozenset[Axis]().union(*(c.axes for c in conditions)))
    if math.prod(axis.extent for axis in axes) > MOST_COVERED:
        return False
    shape = [axis.extent for axis in axes]
    places = dict(zip(axes, np.ix_(*map(np.arange, shape)), strict=True))
    left = np.ones(shape, bool)
    for fact in (f for f in facts if f.axes <= {*axes}):
        left &= fact.evaluate(places) >= 0
    for cover in covers:
        held = np.ones(shape, bool)
        for condition in cover:
            held &= condition.evaluate(places) >= 0
        left &= ~held
    return not left.any()


@functools.lru_cache(maxsize=4096)
def never(conditions: tuple[Index, ...]) -> bool:
    """Whether conditions (each >= 0) surely hold nowhere together: by the bounds of one, or tried at all
    places of their axes where those are few."""
    if any(condition.bounds[1] < 0 for condition in conditions):
        return True
    axes = sorted(frozenset[Axis]().union(*(condition.axes for condition in conditions)))
    if math.prod(axis.extent for axis in axes) > MOST_PLACES:
        return False
    places = dict(zip(axes, np.ix_(*(np.arange(axis.extent) for axis in axes)), strict=True))
    held = np.ones([axis.extent for axis in axes], bool)
    for condition in conditions:
        held &= condition.evaluate(places) >= 0
    return not held.any()


def at_least_zero(condition: Index) -> Index:
    """The same condition (>= 0) by the least whole numbers, and without the floor where it has one alone:
    `(128 * i + n) // 128 >= j` is `128 * i + n >= 128 * j`."""
    while condition.terms:
        step = math.gcd(*(c for _, c in condition.terms))
        condition = Index(
            condition.constant // step, tuple((t, c // step) for t, c in condition.terms)
        )
        floors = [(t, c) for t, c in condition.terms if isinstance(t, Floor)]
        if len(floors) != 1 or abs(floors[0][1]) != 1:
            break
        ((floor, sign),) = floors
        rest = (condition - index_of(floor) * sign) * floor.divisor
        condition = rest + floor.inner * sign + (floor.divisor - 1 if sign < 0 else 0)
    return condition


@functools.lru_cache(maxsize=4096)
def decided(conditions: tuple[Index, ...]) -> tuple[Index, ...]:
    """Conditions (each >= 0) with the number that they leave a floor alone in its place, and with what that
    asks: of `f = (n + 8) // 16` with n below 16, `2 * f > 1` is `n >= 8`."""
    for floor in {f: None for condition in conditions for f in floors_of(condition)}:
        left = []
        for number in _numbers(floor):
            within = floor.inner - number * floor.divisor
            ends = (within, within * -1 + (floor.divisor - 1))
            made = (*(settled(c, {floor: number}) for c in conditions), *ends)
            left += [made] if possible(made) else []
        if len(left) < 2:
            made = left[0] if left else (Index(-1),)
            return decided(
                tuple(c for c in dict.fromkeys(map(at_least_zero, made)) if c.bounds[0] < 0)
            )
    return conditions


def floors_of(index: Index) -> list[Floor]:
    """The floors in an index that are one of a few numbers, those inside of others first."""
    floors = [term for term, _ in index.terms if isinstance(term, Floor)]
    return [f for floor in floors for f in (*floors_of(floor.inner), floor) if _numbers(f)]


def _numbers(floor: Floor) -> range:
    low, high = floor.bounds
    return range(low, high + 1) if high - low < MOST_NUMBERS else range(0)


def settled(index: Index, numbers: Mapping[Floor, int]) -> Index:
    """An index with numbers in the place of floors."""
    made = Index(index.constant)
    for term, factor in index.terms:
        value = index_of(term)
        if isinstance(term, Floor):
            known = term in numbers
            value = Index(numbers[term]) if known else settled(term.inner, numbers) // term.divisor
        made = made + value * factor
    return made


def possible(conditions: tuple[Index, ...]) -> bool:
    """False where conditions (each >= 0) exclude each other, as far as bounds tell."""
    if any(condition.bounds[1] < 0 for condition in conditions):
        return False
    ranges = ranges_where(frozenset(conditions))
    return all(low <= high for low, high in ranges.values()) and all(
        -least_where(c * -1, ranges) >= 0 for c in conditions if c.is_affine
    )


@functools.lru_cache(maxsize=4096)
def without_floors(condition: Index) -> tuple[Index, ...]:
    """A condition (>= 0) on one axis as the ends of the run of its elements for which it holds, where they
    are a run: `3 * ((n + 1) // 3) > n` of three is `n >= 2`; of several axes as `at_least_zero`."""
    condition = at_least_zero(condition)
    if condition.is_affine or len(condition.axes) != 1:
        return (condition,)
    (axis,) = condition.axes
    if axis.extent > MOST_PLACES:
        return (condition,)
    (held,) = np.nonzero(condition.evaluate({axis: np.arange(axis.extent)}) >= 0)
    if not len(held):
        return (Index(-1),)
    first, last = int(held[0]), int(held[-1])
    if last - first + 1 != len(held):
        return (condition,)
    return index_of(axis) - first, index_of(axis) * -1 + last


def least_where(index: Index, ranges: Mapping[Axis, tuple[int, int]]) -> int:
    """The least value of a sum of axes that are in ranges."""
    ends = (f * ranges.get(a, a.bounds)[f < 0] for a, f in index.terms if isinstance(a, Axis))
    return index.constant + sum(ends)


@functools.lru_cache(maxsize=4096)
def ranges_where(facts: frozenset[Index]) -> Mapping[Axis, tuple[int, int]]:
    """Where axes are when all of some conditions (>= 0) hold, as each says of one by the others' ranges."""
    found: dict[Axis, tuple[int, int]] = {}
    affine = [fact for fact in facts if fact.is_affine]
    for _ in affine:  # each may narrow what the others say
        before = dict(found)
        for fact in affine:
            most = -least_where(fact * -1, found)
            for axis, factor in fact.terms:
                assert isinstance(axis, Axis)
                low, high = found.get(axis, axis.bounds)
                rest = most - factor * (high if factor > 0 else low)
                if factor > 0:
                    low = max(low, -(rest // factor))
                else:
                    high = min(high, rest // -factor)
                found[axis] = low, high
        if found == before:
            break
    return found


def fresh_axis(extent: int, taken: Iterable[Axis]) -> Axis:
    """The first axis r0, r1, ... whose name is not taken. Alike reductions get alike names."""
    names = {axis.name for axis in taken}
    number = 0
    while f"r{number}" in names:
        number += 1
    return Axis(f"r{number}", extent)


class Values:
    """Makes values, each one once, simplified by rules that hold for real numbers."""

    def __init__(self, strict: bool = False, end: float = math.inf) -> None:
        """With `strict` what nothing has written stays a value; without, elements that may be chosen
        from it are taken to be those that were written. Substituting raises TimeoutError after the moment
        `end` (of `time.monotonic`)."""
        self.strict = strict
        self._end = end
        self._known: dict[Value, Value] = {}
        self._axes: dict[Value, frozenset[Axis]] = {}
        self._keys: dict[Value, tuple[str, str]] = {}
        self._carried: dict[Value, frozenset[Carried]] = {}
        self._choices: dict[Value, bool] = {}
        self._floors: dict[Value, frozenset[Axis]] = {}
        self._moved: dict[tuple[Value, frozenset[tuple[Axis, Index]]], Value] = {}
        """What binds axes, with indices in the place of others: what is nested is met again and again."""

        self.shapes: dict[str, tuple[int, ...]] = {}
        """Dimensions of arrays that no axis runs through several of."""
        self._orders: dict[Value, tuple[Axis, ...]] = {}
        self._forms: dict[Value, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self.signs: dict[Value, Sign] = {}

    # Questions.

    def form(self, value: Value) -> int:
        """A number that values share which differ in the constants of indices alone."""
        if value not in self._forms:
            terms = tuple(index.terms for index in own_indices(value))
            below = tuple(map(self.form, children(value)))
            own = (type(value), details(value), terms, below)
            self._forms[value] = self._numbers.setdefault(own, len(self._numbers))
        return self._forms[value]

    def axes(self, value: Value) -> frozenset[Axis]:
        """The axes that a value depends on."""
        if value not in self._axes:
            found: frozenset[Axis] = frozenset()
            for part in children(value):
                found |= self.axes(part)
            if isinstance(value, ScanElement):
                found = (self.axes(value.factor) | self.axes(value.term)) - {value.along}
                found |= self.axes(value.initial)
            found -= set(bound_axes(value))
            for index in own_indices(value):
                found |= index.axes
            self._axes[value] = found
        return self._axes[value]

    def order_of_axes(self, value: Value) -> tuple[Axis, ...]:
        """The free axes of a value in the order in which one meets them, largest strides first, and of what
        may stand in any order the least constants."""
        if value not in self._orders:
            found = dict.fromkeys(a for index in own_indices(value) for a in _by_stride(index))
            below: Iterable[Value] = children(value)
            if isinstance(value, (Sum, Product)):
                below = sorted(below, key=lambda part: self.key(part)[1])
            for child in below:
                found.update(dict.fromkeys(self.order_of_axes(child)))
            bound = bound_axes(value)
            self._orders[value] = tuple(axis for axis in found if axis not in bound)
        return self._orders[value]

    def carried(self, value: Value) -> frozenset[Carried]:
        """What loops carry that a value is made of."""
        if value not in self._carried:
            found = frozenset().union(*map(self.carried, children(value)))
            self._carried[value] = found | ({value} if isinstance(value, Carried) else frozenset())
        return self._carried[value]

    def key(self, value: Value) -> tuple[str, str]:
        """Texts to order the parts of sums and products by, nearly independent of axes' names: without the
        constants of indices, that pieces of one array are in one order, and with them."""
        if value not in self._keys:
            below = [*map(self.key, children(value))]
            self._keys[value] = (
                _key(value, [bare for bare, _ in below], False),
                _key(value, [whole for _, whole in below], True),
            )
        return self._keys[value]

    def _floored(self, value: Value) -> frozenset[Axis]:
        """The axes that stand in floors in a value."""
        if value not in self._floors:
            found = frozenset().union(*map(self._floored, children(value)))
            for index in own_indices(value):
                inner = (t.inner.axes for t, _ in index.terms if isinstance(t, Floor))
                found = found.union(*inner)
            self._floors[value] = found
        return self._floors[value]

    def _within(self, value: Value, to: Mapping[Axis, Index], back: Mapping[Axis, Index]) -> Value:
        """The value where an axis is in a part of it alone: floors are what they are there."""
        return self.substitute(self.substitute(value, to), back)

    def _has_choice(self, value: Value) -> bool:
        if value not in self._choices:
            below = any(map(self._has_choice, children(value)))
            self._choices[value] = below or isinstance(value, Choice)
        return self._choices[value]

    # Makers.

    def same(self, value: V) -> V:
        """The one object for a value."""
        return self._known.setdefault(value, value)  # type: ignore[arg-type, return-value]

    def number(self, value: float) -> Value:
        """A constant."""
        return self.same(Constant(float(value)))

    def where(self, conditions: Iterable[Index], on_true: Value, on_false: Value) -> Value:
        """A choice, where it is one."""
        kept: list[Index] = []
        for condition in map(
            coarsest, itertools.chain.from_iterable(map(without_floors, conditions))
        ):
            low, high = condition.bounds
            if high < 0:
                return on_false
            if low < 0 and condition not in kept:
                kept.append(condition)
        if not all(condition.is_affine for condition in kept):
            found = decided(tuple(kept))
            if found != tuple(kept):
                return self.where(found, on_true, on_false)
        kept = [*needed(kept)] if len(kept) > 1 else kept
        if not kept or on_true == on_false:
            return on_true
        on_true = self._floors_decided(on_true, tuple(kept))
        if (added := self._added(kept, on_true, on_false)) is not None:
            return self.sum([(on_false, 1.0), (self.where(kept, added, self.number(0)), 1.0)])
        for condition in kept:
            narrow = narrowed(condition)
            if narrow and self._floored(on_true) & narrow[0].keys():
                on_true = self._within(on_true, *narrow)
            rest = [c if c is condition else c.substitute(narrow[0]).substitute(narrow[1])
                    for c in kept] if narrow else kept  # fmt: skip
            if rest != kept:
                return self.where(rest, on_true, on_false)
        if len(kept) == 1:
            narrow = narrowed(kept[0] * -1 - 1)
            if narrow and self._floored(on_false) & narrow[0].keys():
                on_false = self._within(on_false, *narrow)
        held = [_pinned(condition) for condition in kept]
        for pins in held:
            rest = [c if p == pins else c.substitute(pins) for c, p in zip(kept, held, strict=True)]
            true = self.substitute(on_true, pins) if pins else on_true
            if rest != kept or true != on_true:
                return self.where(rest, true, on_false)
        if len(kept) == 1 and (pins := _pinned(kept[0] * -1 - 1)):
            on_false = self.substitute(on_false, pins)
        if not self.strict and isinstance(on_false, Undefined):
            return on_true
        if not self.strict and isinstance(on_true, Undefined):
            return on_false
        if isinstance(on_true, Choice) and on_true.on_false == on_false:
            return self.where((*kept, *on_true.conditions), on_true.on_true, on_false)
        return self.same(Choice(tuple(kept), on_true, on_false))

    def _floors_decided(self, value: Value, facts: tuple[Index, ...]) -> Value:
        """The value where some conditions (each >= 0) hold, with the numbers that floors of several axes have there
        for certain."""
        bound = {fact.axes for fact in facts if len(fact.axes) > 1}
        if not bound:
            return value
        done: dict[Value, Value] = {}

        def visit(part: Value) -> Value:
            if part not in done:
                axes = self._floored(part).difference(bound_axes(part))
                done[part] = part
                if any(one & axes for one in bound):
                    done[part] = self._made_of(part, visit, number)
            return done[part]

        known: dict[Index, Index] = {}

        def number(index: Index) -> Index:
            if index not in known:
                numbers = {f: n for f in floors_of(index) for n in _numbers(f) if _is(f, n, facts)}
                known[index] = settled(index, numbers) if numbers else index
            return known[index]

        return visit(value)

    def _made_of(
        self, value: Value, change: Callable[[Value], Value], index: Callable[[Index], Index]
    ) -> Value:
        """The value with its parts and its own indices changed."""
        parts, own = (
            [change(part) for part in children(value)],
            [index(i) for i in own_indices(value)],
        )
        same = all(a is b for a, b in zip(parts, children(value), strict=True))
        return (
            value if same and own == [*own_indices(value)] else self.with_parts(value, parts, own)
        )

    def _added(self, facts: Sequence[Index], total: Value, before: Value) -> Value | None:
        """What a sum adds, where some conditions (each >= 0) hold, to a value that is what it is elsewhere;
        None where it does not add to that."""
        if not isinstance(total, Sum) or before == Constant(0.0) or self.carried(before):
            return None
        held = self.under(before, tuple(facts))
        for pins in map(_pinned, facts):
            held, total = self.substitute(held, pins), self.substitute(total, pins)
        terms = held.terms if isinstance(held, Sum) else ((held, 1.0),)
        if not isinstance(total, Sum) or held == Constant(0.0) or not {*terms} <= {*total.terms}:
            return None
        return self.sum([(total, 1.0), (held, -1.0)])

    def position(self, index: Index) -> Value:
        """An index as a number."""
        return self.same(Position(index)) if index.terms else self.number(index.constant)

    def sum(self, parts: Iterable[tuple[Value, float]], constant: float = 0.0) -> Value:
        """`constant + sum(coefficient * part)`."""
        terms: dict[Value, float] = {}
        waiting = [(part, coefficient) for part, coefficient in parts][::-1]
        alone = len(waiting) == 1 and not constant
        while waiting:
            part, coefficient = waiting.pop()
            if isinstance(part, Constant):
                constant += coefficient * part.value
            elif isinstance(part, Sum) and abs(coefficient * part.constant) > DROWNS and not alone:
                whole = self.scaled(part, coefficient)
                terms[whole] = terms.get(whole, 0.0) + 1.0
            elif isinstance(part, Sum):
                constant += coefficient * part.constant
                waiting += [(term, c * coefficient) for term, c in part.terms[::-1]]
            elif isinstance(part, Product) and part.coefficient != 1:
                bare = self.product(part.factors)
                waiting.append((bare, coefficient * part.coefficient))
            elif isinstance(part, Undefined):
                return UNDEFINED
            elif coefficient:
                terms[part] = terms.get(part, 0.0) + coefficient
        terms, constant = complemented(self, terms, constant)
        kept = [(term, c) for term, c in terms.items() if c]
        if not kept:
            return self.number(constant)
        if len(kept) == 1 and not constant:
            return self.product([(kept[0][0], 1.0)], kept[0][1])
        kept.sort(key=lambda pair: self.key(pair[0]))
        return self.same(Sum(constant, tuple(kept)))

    def product(self, parts: Iterable[tuple[Value, float]], coefficient: float = 1.0) -> Value:
        """`coefficient * product(part ** power)`."""
        factors: dict[Value, float] = {}
        for part, power in parts:
            if isinstance(part, Constant):
                coefficient *= _power(part.value, power)
            elif isinstance(part, Undefined):
                return UNDEFINED
            elif isinstance(part, Product) and _distributes(part, power):
                coefficient *= _power(part.coefficient, power)
                for factor, own in part.factors:
                    factors[factor] = factors.get(factor, 0.0) + own * power
            elif isinstance(part, Sum) and power == int(power):
                lead = common_factor(part)
                coefficient *= _power(lead, power)
                part = self.scaled(part, 1 / lead)
                factors[part] = factors.get(part, 0.0) + power
            else:
                factors[part] = factors.get(part, 0.0) + power
        coefficient *= named_factors(self, factors)
        kept = [(factor, power) for factor, power in factors.items() if power]
        if not kept or not coefficient:
            return self.number(coefficient if coefficient else 0.0)
        for number, (factor, power) in enumerate(kept):
            if isinstance(factor, Choice) and power == 1 and factor.on_false == Constant(0.0):
                rest: list[tuple[Value, float]] = [*kept[:number], *kept[number + 1 :]]
                rest.append((factor.on_true, 1.0))
                return self.where(
                    factor.conditions, self.product(rest, coefficient), self.number(0)
                )
        if len(kept) == 1 and kept[0][1] == 1:
            alone = kept[0][0]
            if coefficient == 1:
                return alone
            if isinstance(alone, Sum):
                return self.scaled(alone, coefficient)
        kept.sort(key=lambda pair: self.key(pair[0]))
        return self.same(Product(coefficient, tuple(kept)))

    def scaled(self, value: Sum, factor: float) -> Sum:
        """A sum times a number, term by term."""
        terms = tuple((term, c * factor) for term, c in value.terms)
        return self.same(Sum(value.constant * factor, terms)) if factor != 1 else value

    def lookup(self, element: Value, numbers: Mapping[Axis, Value]) -> Value:
        """An element where axes of its address are numbers; those that are known are put in."""
        known = {a: n.index for a, n in numbers.items() if isinstance(n, Position)}
        known |= {a: Index(int(n.value)) for a, n in numbers.items() if isinstance(n, Constant)}
        element = self.substitute(element, known)
        left = [a for a in sorted(self.axes(element)) if a in numbers and a not in known]
        names = {a: Axis(f"@{n}", a.extent) for n, a in enumerate(left)}
        if not left:
            return element
        element = self.substitute(element, {a: index_of(b) for a, b in names.items()})
        return self.same(Lookup(element, tuple(names.values()), tuple(numbers[a] for a in left)))

    def under(self, value: Value, facts: tuple[Index, ...]) -> Value:
        """The value where some conditions (each >= 0) are known to hold: what follows from them, or
        from those around a choice in it, is no choice."""
        return self._under(value, facts, {})

    def _under(
        self,
        value: Value,
        facts: tuple[Index, ...],
        done: dict[Hashable, Value],
        chosen: tuple[tuple[Index, ...], ...] = (),
    ) -> Value:
        """`under`, where what holds under the conditions of one of those `chosen` stands elsewhere."""
        facts = tuple(f for f in facts if not f.axes.isdisjoint(self.axes(value)))
        chosen = chosen if isinstance(value, Choice) else ()
        key = (value, facts, chosen)
        if key in done:
            return done[key]
        if not self._has_choice(value):
            return value
        hidden = {axis.name for axis in bound_axes(value)}
        facts = tuple(f for f in facts if hidden.isdisjoint(axis.name for axis in f.axes))
        if isinstance(value, Choice):
            left = tuple(c for c in value.conditions if not follows(c, facts))
            yes = self._under(value.on_true, (*facts, *left), done)
            otherwise = (left[0] * -1 - 1,) if len(left) == 1 else ()
            excluded = any(follows(c * -1 - 1, facts) for c in left)
            chosen = (*chosen, left)
            if isinstance(value.on_false, Undefined) and left and everywhere(facts, chosen):
                return done.setdefault(key, yes)
            no = self._under(value.on_false, (*facts, *otherwise), done, chosen)
            found = no if excluded else self.where(left, yes, no)
        else:
            parts = [self._under(part, facts, done) for part in children(value)]
            same = all(a is b for a, b in zip(parts, children(value), strict=True))
            found = value if same else self.with_parts(value, parts)
        done[key] = found
        return found

    # Substitution.

    def substitute(self, value: Value, axes: Mapping[Axis, Index]) -> Value:
        """The value with indices in the place of axes."""
        return self._substituted(value, {a: i for a, i in axes.items() if i != index_of(a)}, {})

    def _substituted(
        self, value: Value, axes: Mapping[Axis, Index], done: dict[Value, Value]
    ) -> Value:
        if not axes or self.axes(value).isdisjoint(axes):
            return value
        if value not in done:
            bound = bound_axes(value)
            inner, renamed = axes, bound
            below = done
            if bound:
                if time.monotonic() > self._end:
                    raise TimeoutError
                live = {a: i for a, i in axes.items() if a in self.axes(value)}
                key = (value, frozenset(live.items()))
                if key in self._moved:
                    return self._moved[key]
                inside = {axis for index in live.values() for axis in index.axes}
                if {a.name for a in inside} & {a.name for a in bound}:
                    taken = set(inside) | self.axes(value)
                    names: list[Axis] = []
                    for axis in bound:
                        names.append(fresh_axis(axis.extent, {*taken, *bound, *names}))
                    renamed = tuple(names)
                    live.update({a: index_of(b) for a, b in zip(bound, renamed, strict=True)})
                inner, below = live, {}
            parts = [self._substituted(part, inner, below) for part in children(value)]
            if isinstance(
                value, ScanElement
            ):  # `along` is not bound in what stands before element 0
                parts[-1] = self._substituted(value.initial, axes, done)
            own = [index.substitute(axes) for index in own_indices(value)]
            done[value] = self.with_parts(value, parts, own, renamed)
            if bound:
                self._moved[key] = done[value]
        return done[value]

    def with_parts(
        self,
        value: Value,
        parts: Sequence[Value],
        own: Sequence[Index] | None = None,
        bound: tuple[Axis, ...] | None = None,
    ) -> Value:
        """A value with other parts in the places of its own, and with other indices (`own`) and bound
        axes where those are given."""
        own = own_indices(value) if own is None else own
        bound = bound_axes(value) if bound is None else bound
        if isinstance(value, Element):
            return self.same(Element(value.array, value.number, value.dtype, own[0]))
        if isinstance(value, Position):
            return self.position(own[0])
        if isinstance(value, Fold):
            return self.same(Fold(value.combiner, bound, parts[0]))
        if isinstance(value, ScanElement):
            factor, term, initial = parts
            return self.same(
                ScanElement(value.scale, factor, value.combine, term, initial, bound[0], own[0])
            )
        if isinstance(value, Carried):
            address, iteration, *around = own
            return self.same(
                Carried(value.tensor, address, value.loop, tuple(around), iteration, parts[0])
            )
        if isinstance(value, Sum):
            pairs = zip(parts, (c for _, c in value.terms), strict=True)
            return self.sum(pairs, value.constant)
        if isinstance(value, Product):
            pairs = zip(parts, (p for _, p in value.factors), strict=True)
            return self.product(pairs, value.coefficient)
        if isinstance(value, Choice):
            return self.where(own, parts[0], parts[1])
        if isinstance(value, Lookup):
            return self.lookup(parts[0], dict(zip(bound, parts[1:], strict=True)))
        if isinstance(value, Application):
            return self.same(Application(value.function, tuple(parts)))
        return value

    def replace(self, value: Value, old: Value, new: Value) -> Value:
        """The value with one of its parts replaced by another of the same axes."""
        return self._replaced(value, old, new, {})

    def _replaced(self, value: Value, old: Value, new: Value, done: dict[Value, Value]) -> Value:
        if value == old:
            return new
        if value not in done:
            parts = [self._replaced(part, old, new, done) for part in children(value)]
            same = all(a is b for a, b in zip(parts, children(value), strict=True))
            done[value] = value if same else self.with_parts(value, parts)
        return done[value]


def _by_stride(index: Index) -> list[Axis]:
    result: list[Axis] = []
    for term, _ in sorted(index.terms, key=lambda pair: -abs(pair[1])):
        result += _by_stride(term.inner) if isinstance(term, Floor) else [term]
    return result


def _key(value: Value, parts: Sequence[str], constants: bool) -> str:
    below = ",".join(parts)
    own = [i if constants else i - i.constant for i in own_indices(value)]
    if isinstance(value, Element):
        sizes = sorted(f"{c}x{t.extent if isinstance(t, Axis) else t.divisor}"
                       for t, c in value.address.terms)  # fmt: skip
        below = f"{value.number:03}+{own[0].constant}{sizes}"
    rank = "0" if isinstance(value, Element) else "1"
    if isinstance(value, Application):
        below = f"{value.function}({below})"
    if isinstance(value, Position):
        below = str(own[0])
    if isinstance(value, Constant):
        below = repr(value.value)
    key = f"{rank}{type(value).__name__}{below}|{''.join(map(str, own))}"
    if len(key) > LONGEST_KEY:  # parts that are shared would be written out again and again
        return f"{rank}{type(value).__name__}#{hashlib.sha256(key.encode()).hexdigest()}"
    return key


def _power(value: float, power: float) -> float:
    if value == 0 and power < 0:
        return math.inf
    try:
        return float(value**power)
    except (OverflowError, TypeError):
        return math.inf


def _distributes(part: Product, power: float) -> bool:
    """True where (a * b) ** power may be taken apart: whole powers of anything."""
    return power == int(power) and (part.coefficient != 0)


def _is(floor: Floor, number: int, facts: tuple[Index, ...]) -> bool:
    """Whether a floor is a number wherever facts (each >= 0) hold."""
    within = floor.inner - number * floor.divisor
    return follows(within, facts) and follows(within * -1 + (floor.divisor - 1), facts)


def coarsest(condition: Index) -> Index:
    """A condition (>= 0) on several axes, without those that count within its steps where they do not matter: of
    `k + 3 * l + 3 * m >= 6` with k below 3, `l + m >= 2`."""
    steps = {abs(c) for _, c in condition.terms} - {1} if len(condition.terms) > 1 else set()
    for step in sorted(steps, reverse=True):
        coarse = condition // step
        if coarse.is_affine and len(coarse.terms) < len(condition.terms):
            return coarse
    return condition


def _pinned(condition: Index) -> dict[Axis, Index]:
    """The axes that have one value alone where a condition is met: it is met at its largest value."""
    if condition.bounds[1] or not condition.is_affine:
        return {}
    ends = ((axis, axis.bounds[factor > 0]) for axis, factor in condition.terms)
    return {axis: Index(end) for axis, end in ends if isinstance(axis, Axis)}


def narrowed(condition: Index) -> tuple[dict[Axis, Index], dict[Axis, Index]] | None:
    """The axis of a condition by one that runs over the part where it is met alone, and that by the
    axis; None for a condition on several axes or on none."""
    if len(condition.terms) != 1 or not isinstance(condition.terms[0][0], Axis):
        return None
    axis, factor = condition.terms[0]
    assert isinstance(axis, Axis)
    low = -(condition.constant // factor) if factor > 0 else 0
    high = axis.extent - 1 if factor > 0 else condition.constant // -factor
    part = Axis(f"{axis.name}'", high - max(low, 0) + 1)
    if part.extent < 1 or part.extent >= axis.extent:
        return None
    return {axis: index_of(part) + low}, {part: index_of(axis) - low}
