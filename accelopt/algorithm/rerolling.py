"""What a kernel wrote out term by term, or piece by piece, as one.

Python loops leave terms and pieces that differ by the constants of their indices alone. Where those
grow by the same step from one to the next, they are one function of a number: terms of a sum or an
extreme are a reduction over it, and pieces along an axis have it as the axis's leading digit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from accelopt.algorithm.index import Axis, Index, Term, index_of
from accelopt.algorithm.ir import Constant, each_once
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import FLIPPED, fold, is_neutral
from accelopt.algorithm.value_nodes import (
    NEUTRAL,
    Application,
    Choice,
    Fold,
    Product,
    Sum,
    Value,
    bound_axes,
    children,
    every,
    own_indices,
)
from accelopt.algorithm.values import Values, follows, fresh_axis, ranges_where

LEAST_TERMS = 3
"""Plain terms that make a reduction; of reductions, two do."""


def rolled(values: Values, value: Value) -> Value:
    """The value with its alike terms as reductions."""
    if isinstance(value, Sum):
        parts: list[tuple[Value, float]] = []
        for coefficient in dict.fromkeys(c for _, c in value.terms):
            terms = _sums_with_factor(values, [t for t, c in value.terms if c == coefficient])
            parts += [(t, coefficient) for t in _grouped(values, "add", terms)]
        if len(parts) < len(value.terms):
            return values.sum(parts, value.constant)
    if isinstance(value, Application) and value.function in FLIPPED:
        terms = arguments_of(value, value.function)
        found = _grouped(values, value.function, terms)
        if len(found) < len(terms):
            result = found[0]
            for term in found[1:]:
                result = apply(values, value.function, [result, term])
            return result
    return _rolled_pieces(values, value) if isinstance(value, Choice) else value


def _rolled_pieces(values: Values, value: Choice) -> Value:
    """A value that is given piece by piece along an axis, as one function of the piece's number."""
    pieces = _pieces(value)
    if pieces is None:
        return value
    axis, parts = pieces
    made: list[tuple[int, Value]] = []
    while parts:
        low, high, first = parts[0]
        length = high - low
        alike = [p for p in parts if p[1] - p[0] == length and p[0] % length == 0]
        count, found = next(
            ((n, whole) for n in range(len(alike), 1, -1) if alike[:n] == parts[:n]
             and (whole := _rolled_run(values, axis, alike[:n]))), (1, first)
        )  # fmt: skip
        made.append((low, found))
        parts = parts[count:]
    if len(made) == len(pieces[1]):
        return value
    result = made[0][1]
    for low, part in made[1:]:
        result = values.where([index_of(axis) - low], part, result)
    return result


def _rolled_run(
    values: Values, axis: Axis, parts: Sequence[tuple[int, int, Value]]
) -> Value | None:
    """Pieces of one length beside each other along an axis as one function; None where they are none."""
    first, length = parts[0][0], parts[0][1] - parts[0][0]
    within = Axis(f"{axis.name}%", length)
    moved = [values.substitute(part, {axis: index_of(within) + low}) for low, _, part in parts]
    whole = progression(values, moved)
    if whole is None:
        return None
    number, template = whole
    place = index_of(axis) // length - first // length
    return values.substitute(template, {within: index_of(axis) % length, number: place})


def _pieces(value: Choice) -> tuple[Axis, list[tuple[int, int, Value]]] | None:
    """The axis and the ranges that nested choices cut it in, with the value in each."""
    axes = {axis for condition in value.conditions for axis in condition.axes}
    if len(axes) != 1:
        return None
    (axis,) = axes
    left = (0, axis.extent)
    parts: list[tuple[int, int, Value]] = []
    rest: Value = value
    while isinstance(rest, Choice) and all(
        [t for t, _ in condition.terms] == [axis] for condition in rest.conditions
    ):
        low, high = left
        for condition in rest.conditions:
            factor = condition.terms[0][1]
            if factor > 0:
                low = max(low, -(condition.constant // factor))
            else:
                high = min(high, condition.constant // -factor + 1)
        if low >= high or (low != left[0] and high != left[1]):
            return None
        parts.append((low, high, rest.on_true))
        left = (left[0], low) if low != left[0] else (high, left[1])
        rest = rest.on_false
    if left[0] < left[1]:
        parts.append((*left, rest))
    return axis, sorted(parts, key=lambda part: part[0])


def arguments_of(value: Value, function: str) -> list[Value]:
    """What a function of two values, applied again and again, is applied to."""
    if isinstance(value, Application) and value.function == function:
        return [part for argument in value.arguments for part in arguments_of(argument, function)]
    return [value]


def _sums_with_factor(values: Values, terms: Sequence[Value]) -> list[Value]:
    """Terms of which those that are alike sums times one and the same are one sum times that."""
    groups: dict[Value, list[tuple[Value, Value]]] = {}
    for term in terms:
        if not isinstance(term, Product):
            continue
        for sum_, power in term.factors:
            if isinstance(sum_, Fold) and sum_.combiner == "add" and power == 1:
                others = [(f, p) for f, p in term.factors if f != sum_]
                rest = values.product(others, term.coefficient)
                groups.setdefault(rest, []).append((term, sum_))
    left = dict.fromkeys(terms)
    for rest, found in groups.items():
        own = {term: sum_ for term, sum_ in found if term in left}
        joined = _grouped(values, "add", [*own.values()]) if len(own) > 1 else []
        if 0 < len(joined) < len(own):
            for term in own:
                del left[term]
            total = values.sum([(sum_, 1.0) for sum_ in joined])
            left[values.product([(total, 1.0), (rest, 1.0)])] = None
    return [*left]


def _grouped(values: Values, combiner: str, terms: Sequence[Value]) -> list[Value]:
    """The terms, alike ones as one reduction."""
    groups: dict[int, list[Value]] = {}
    result: list[Value] = []
    for term in terms:
        groups.setdefault(values.form(_unmasked(combiner, term)[1]), []).append(term)
    for group in groups.values():
        if len(group) == 1:
            result += group
            continue
        by_constants = functools.cmp_to_key(_first_difference)
        masked = sorted(
            (_unmasked(combiner, term) for term in group), key=lambda found: by_constants(found[1])
        )
        bodies = [body for _, body in masked]
        least = 2 if isinstance(bodies[0], Fold) else LEAST_TERMS
        whole = progression(values, bodies, LEAST_TERMS) if len(group) >= least else None
        masks = (
            None if whole is None else _whole_masks([own for own, _ in masked], bodies, whole[0])
        )
        if whole is None or masks is None:
            result += group
        else:
            axis, template = whole
            kept = values.where(masks, template, Constant(NEUTRAL[combiner]))
            result.append(fold(values, combiner, [axis], kept))
    return result


def with_ranges_joined(values: Values, value: Value) -> Value:
    """A sum of what is summed in several ranges of an axis, with each term once, in all ranges where it stands: of
    pieces of which each sums one term more, those terms; any other value as it is."""
    if not isinstance(value, Sum):
        return value
    groups: dict[tuple[Value, float], list[_Ranged]] = {}
    for term, coefficient in value.terms:
        for conditions, part, factor in _chosen_terms(term, coefficient):
            bare, inner = part, tuple[Index, ...]()
            if isinstance(part, Fold) and part.combiner == "add":
                inner, body = _unmasked("add", part.body)
                bare = values.same(Fold("add", part.axes, body)) if inner else part
            groups.setdefault((bare, factor), []).append(_Ranged(conditions, inner))
    joint = {key: _joined(found) for key, found in groups.items()}
    many = sum(map(len, joint.values()))
    if many == sum(map(len, groups.values())) or many > len(value.terms):
        return value
    parts = list[tuple[Value, float]]()
    for (bare, factor), found in joint.items():
        for conditions, inner in found:
            term = bare
            if inner and isinstance(bare, Fold):
                kept = values.where(inner, bare.body, Constant(0.0))
                term = fold(values, "add", bare.axes, kept)
            outer = [c for c in conditions if not follows(c, inner)]
            parts.append((values.where(outer, term, Constant(0.0)), factor))
    return values.sum(parts, value.constant)


class _Ranged(NamedTuple):
    """Where a term of a sum counts, and where the elements count that it sums."""

    conditions: tuple[Index, ...]
    inner: tuple[Index, ...]


def _chosen_terms(
    value: Value, coefficient: float, conditions: tuple[Index, ...] = ()
) -> Iterator[tuple[tuple[Index, ...], Value, float]]:
    """The terms of a value that is chosen where conditions hold, and 0 elsewhere, with those and their factors."""
    if isinstance(value, Choice) and is_neutral("add", value.on_false):
        yield from _chosen_terms(value.on_true, coefficient, (*conditions, *value.conditions))
    elif conditions and isinstance(value, Sum) and not value.constant:
        for term, factor in value.terms:
            yield from _chosen_terms(term, coefficient * factor, conditions)
    else:
        yield conditions, value, coefficient


def _joined(found: list[_Ranged]) -> list[_Ranged]:
    """Ranges of one axis with those beside each other as one, as far as the same elements count in both."""
    axes = {term for one in found for c in one.conditions for term, _ in c.terms}
    if len(found) == 1 or len(axes) != 1 or not isinstance(axis := axes.pop(), Axis):
        return found
    place = index_of(axis)
    ranges = [
        (ranges_where(frozenset(one.conditions)).get(axis, axis.bounds), one) for one in found
    ]
    (first, *rest) = sorted(ranges, key=lambda pair: pair[0])
    joint = [first]
    for (low, high), one in rest:
        (start, end), before = joint[-1]
        inner = tuple(dict.fromkeys((*before.inner, *one.inner)))
        if low == end + 1 and all(
            follows(c, (*o.conditions, *o.inner)) for o in (before, one) for c in inner
        ):
            ends = place - start, place * -1 + high
            both = _Ranged(tuple(c for c in ends if c.bounds[0] < 0), inner)
            joint[-1] = (start, high), both
        else:
            joint.append(((low, high), one))
    return [one for _, one in joint]


def _unmasked(combiner: str, term: Value) -> tuple[tuple[Index, ...], Value]:
    """The conditions where a term counts, and what it is there."""
    if isinstance(term, Choice) and is_neutral(combiner, term.on_false):
        return term.conditions, term.on_true
    return (), term


def _whole_masks(
    masks: Sequence[tuple[Index, ...]], bodies: Sequence[Value], axis: Axis
) -> list[Index] | None:
    """Conditions that are those of each term in turn, where `axis` is its number, or hold anyway; None where
    there are none."""
    if any(len({condition.terms for condition in own}) < len(own) for own in masks):
        return None
    count, number = len(masks), index_of(axis)
    rows = [count, *(n for n in range(LEAST_TERMS, count) if count % n == 0)] if any(masks) else []
    found: list[Index] = []
    for terms in dict.fromkeys(condition.terms for own in masks for condition in own):
        points = {n: c.constant for n, own in enumerate(masks) for c in own if c.terms == terms}
        (first, constant), bare = next(iter(points.items())), Index(0, terms)
        fits: list[Index] = []
        for row in rows:
            digits = {divmod(n, row): c for n, c in points.items()}
            beside, below = _steps(digits, terms, bodies[:2]), [0]
            if row < count:
                turned = {(digit, high): c for (high, digit), c in digits.items()}
                below = _steps(turned, terms, (bodies[0], bodies[row]))
            for low, high in itertools.product(beside, below):
                line = (number % row) * low + (number // row) * high
                own = [line.substitute({axis: Index(n)}).constant for n in range(count)]
                shift = constant - own[first]
                if all(
                    points.get(n, at + shift) == at + shift
                    and (n in points or (bare + at + shift).bounds[0] >= 0)
                    for n, at in enumerate(own)
                ):
                    fits.append(bare + line + shift)
        if not fits:
            return None
        found.append(fits[0])
    return found


def _steps(
    points: Mapping[tuple[int, int], int], terms: tuple[tuple[Term, int], ...], beside: Sequence[Value]
) -> list[int]:  # fmt: skip
    """How the constant of a condition on some terms may grow with the second of two numbers: as it does where the
    first is one; where none says, as what is `beside` each other is moved along its axes."""
    for (a, one), (b, other) in itertools.combinations(points.items(), 2):
        if a[0] == b[0]:
            return [(other - one) // (b[1] - a[1])]
    found: list[int] = []
    for before, after in _indices_beside(*beside):
        step, strides = after.constant - before.constant, dict(before.terms)
        moves = [divmod(step * f, strides[t]) for t, f in terms if strides.get(t)]
        found = [*(whole for whole, rest in moves if not rest), *found, step]
    return [sign * step for step in dict.fromkeys(found) for sign in (1, -1)]


def progression(values: Values, group: Sequence[Value], row: int = 2) -> tuple[Axis, Value] | None:
    """One value over a new axis that takes on each of the group's in turn; None where there is none.
    The constants of its indices grow by steps, or as the digits of the axis's number do, each of at
    least `row` values."""
    if len(set(map(values.form, group))) > 1:
        return None
    below = [*every(group[0])]
    taken = {axis for part in below for index in own_indices(part) for axis in index.axes}
    bound = {axis for part in below for axis in bound_axes(part)}
    axis = fresh_axis(len(group), {*taken, *values.axes(group[0]), *bound})
    template = _Progression(values, index_of(axis), row).of(tuple(group))
    if template is None or axis not in values.axes(template):
        return None
    exact = all(
        values.substitute(template, {axis: Index(n)}) == term for n, term in enumerate(group)
    )
    return (axis, template) if exact else None


def _fit(numbers: Sequence[int], count: Index, least: int) -> Index | None:
    """The index that is each of some numbers in turn, as `count` counts them."""
    if len(numbers) == 1:
        return Index(numbers[0])
    step = numbers[1] - numbers[0]
    straight = range(numbers[0], numbers[0] + step * len(numbers), step) if step else None
    row = next(
        (n for n, x in enumerate(numbers) if x != (straight[n] if straight else numbers[0])),
        len(numbers),
    )
    if row == len(numbers):
        return count * step + numbers[0]
    if len(numbers) % row or row < least:
        return None
    starts = numbers[::row]
    if any(x != starts[n // row] + step * (n % row) for n, x in enumerate(numbers)):
        return None
    coarse = _fit(starts, count // row, least)
    return None if coarse is None else coarse + (count % row) * step


class _Progression:
    """Values of one form as one value, in which `count` says which of them it is."""

    def __init__(self, values: Values, count: Index, row: int) -> None:
        self.values = values
        self.count = count
        self.row = row
        self.done: dict[tuple[Value, ...], Value | None] = {}

    def of(self, group: tuple[Value, ...]) -> Value | None:
        """The value that is each of a group in turn; None where there is none."""
        if all(value is group[0] for value in group):
            return group[0]
        if group not in self.done:
            self.done[group] = self._made(group)
        return self.done[group]

    def _made(self, group: tuple[Value, ...]) -> Value | None:
        own: list[Index] = []
        for column in zip(*map(own_indices, group), strict=True):
            fit = _fit([index.constant for index in column], self.count, self.row)
            if fit is None:
                return None
            own.append(column[0] - column[0].constant + fit)
        parts: list[Value] = []
        for beside in zip(*map(children, group), strict=True):
            part = self.of(beside)
            if part is None:
                return None
            parts.append(part)
        return self.values.with_parts(group[0], parts, own)


def _indices_beside(one: Value, other: Value) -> Iterator[tuple[Index, Index]]:
    """The indices of two values of one form, those of parts that both have left out."""
    pairs = each_once((one, other), lambda pair: [*zip(*map(children, pair), strict=True)])
    for a, b in pairs:
        if a is not b:
            yield from zip(own_indices(a), own_indices(b), strict=True)


def _first_difference(one: Value, other: Value) -> int:
    """How the first constants of indices differ in which two values of one form do: of what is chosen, before those of
    the conditions."""
    if one is other:
        return 0
    differences = map(_first_difference, children(one), children(other))
    pairs = zip(own_indices(one), own_indices(other), strict=True)
    own = (a.constant - b.constant for a, b in pairs)
    return next(filter(None, itertools.chain(differences, own)), 0)
