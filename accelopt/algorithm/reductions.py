"""Reductions in the form that all their spellings share.

What does not depend on the reduced axes stands outside; nested reductions are one; a product with
an identity matrix only renames an axis; masked elements shorten the axis.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence

from accelopt.algorithm.common_factors import Factor, Sign, common, sign, sign_of_power, without
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.value_nodes import (
    INFINITE,
    NEUTRAL,
    PLACES,
    RANKED,
    REMAINING,
    UNDEFINED,
    Application,
    Choice,
    Fold,
    Product,
    Sum,
    Undefined,
    Value,
    bound_axes,
)
from accelopt.algorithm.values import Values, fresh_axis

FLIPPED = {"maximum": "minimum", "minimum": "maximum"}
FEW_TERMS = 4
"""That a sum may have without being a reduction (`rerolling`), and one more."""


def fold(values: Values, combiner: str, axes: Sequence[Axis], body: Value) -> Value:
    """`body` combined over `axes`."""
    if isinstance(body, Undefined):
        return body
    single = {axis: Index() for axis in axes if axis.extent == 1}
    if single:
        body = values.substitute(body, single)
    used = values.axes(body)
    repeated = 1
    for axis in axes:
        repeated *= axis.extent if axis not in used else 1
    axes = [axis for axis in axes if axis in used]
    if isinstance(body, Application) and body.function in REMAINING:
        element, least = body.arguments
        own = least.axes if isinstance(least, Fold) else ()
        moved = dict(zip(own, map(index_of, axes), strict=False))
        known = isinstance(least, Fold) and values.substitute(least.body, moved) is element
        if known and len(own) == len(axes) and repeated == 1 and combiner in {*RANKED, "maximum"}:
            rank = REMAINING[body.function] + RANKED.get(combiner, 1)
            return fold(values, f"largest_{rank}", axes, element)
    if combiner in PLACES:
        return values.same(Fold(combiner, tuple(axes), body)) if axes else values.number(0)
    if combiner in RANKED:
        return _ranked(values, RANKED[combiner], axes, body, repeated)
    if not axes:
        return _repeated(values, combiner, body, repeated)
    if repeated != 1:
        return _repeated(values, combiner, fold(values, combiner, axes, body), repeated)
    outside = _without_unused(values, combiner, axes, body)
    return outside if outside is not None else _plain(values, combiner, axes, body)


def _repeated(values: Values, combiner: str, body: Value, times: int) -> Value:
    if combiner == "add":
        return values.product([(body, 1.0)], float(times))
    return values.product([(body, float(times))]) if combiner == "multiply" else body


def _ranked(values: Values, rank: int, axes: Sequence[Axis], body: Value, times: int) -> Value:
    """The `rank`-th largest of elements of which each occurs so many times."""
    place = -(-rank // times)
    if place == 1:
        return fold(values, "maximum", axes, body)
    return values.same(Fold(f"largest_{place}", tuple(axes), body)) if axes else UNDEFINED


def _without_unused(values: Values, combiner: str, axes: list[Axis], body: Value) -> Value | None:
    """The reduction with what does not depend on its axes outside of it, when there is any."""
    bound = set(axes)
    if isinstance(body, Choice):
        return _chosen(values, combiner, axes, body)
    if isinstance(body, Product) and combiner == "add":
        inner = [(f, p) for f, p in body.factors if values.axes(f) & bound]
        outer = [(f, p) for f, p in body.factors if not values.axes(f) & bound]
        if outer or body.coefficient != 1:
            summed = fold(values, combiner, axes, values.product(inner))
            return values.product([*outer, (summed, 1.0)], body.coefficient)
    if isinstance(body, Product) and combiner in FLIPPED and body.coefficient != 1:
        flipped = combiner if body.coefficient > 0 else FLIPPED[combiner]
        found = fold(values, flipped, axes, values.product(body.factors))
        return values.product([(found, 1.0)], body.coefficient)
    if isinstance(body, Product) and combiner in FLIPPED:
        return _factored(values, combiner, axes, [(body, 1.0)])
    if isinstance(body, Sum) and combiner in FLIPPED:
        inner = [(t, c) for t, c in body.terms if values.axes(t) & bound]
        outer = [(t, c) for t, c in body.terms if not values.axes(t) & bound]
        if outer or body.constant:
            found = fold(values, combiner, axes, values.sum(inner))
            return values.sum([*outer, (found, 1.0)], body.constant)
        return _factored(values, combiner, axes, body.terms)
    if isinstance(body, Sum) and combiner == "add":
        outer = [(t, c) for t, c in body.terms if not values.axes(t) & bound]
        folded = [(t, c) for t, c in body.terms if _is_folded(t)]
        if outer or folded or body.constant:
            return _split(values, axes, body)
        return _factored(values, combiner, axes, body.terms)
    return None


def _outer(
    values: Values, combiner: str, axes: Iterable[Axis], bodies: Iterable[Value]
) -> list[Factor]:
    """The factors of several values that stand outside of what combines those: of a sum all that do not depend on
    its axes, of a maximum the positive ones."""
    bound = {*axes}
    if combiner != "add" and combiner not in FLIPPED:
        return []
    return common(
        bodies,
        lambda f: (
            not values.axes(f[0]) & bound
            and (combiner == "add" or sign_of_power(values, f) == Sign.POSITIVE)
        ),
    )


def _factored(
    values: Values, combiner: str, axes: Sequence[Axis], terms: Iterable[tuple[Value, float]]
) -> Value | None:
    """The reduction of a sum with the factors outside of it that its terms share; None where there are none."""
    outer = _outer(values, combiner, axes, [term for term, _ in terms])
    if not outer:
        return None
    body = values.sum([(without(values, term, outer), c) for term, c in terms])
    return values.product([*outer, (fold(values, combiner, axes, body), 1.0)])


def _is_folded(value: Value) -> bool:
    if isinstance(value, Product):
        return any(isinstance(f, Fold) and f.combiner == "add" and p == 1 for f, p in value.factors)
    return isinstance(value, Fold) and value.combiner == "add"


def _split(values: Values, axes: list[Axis], body: Sum) -> Value:
    """The sum over a sum whose terms are sums themselves or constant, term by term."""
    bound = set(axes)
    together = [(t, c) for t, c in body.terms if values.axes(t) & bound and not _is_folded(t)]
    alone = [(t, c) for t, c in body.terms if not values.axes(t) & bound or _is_folded(t)]
    parts = [(fold(values, "add", axes, term), c) for term, c in alone]
    if together:
        parts.append((fold(values, "add", axes, values.sum(together)), 1.0))
    constant = body.constant
    for axis in axes:
        constant *= axis.extent
    return values.sum(parts, constant)


def _chosen(values: Values, combiner: str, axes: list[Axis], body: Choice) -> Value | None:
    """A reduction of elements of which conditions exclude some."""
    if not is_neutral(combiner, body.on_false):
        return _of_unequal(values, combiner, axes, body)
    bound = set(axes)
    outer = [c for c in body.conditions if not c.axes & bound]
    inner = [c for c in body.conditions if c.axes & bound]
    if outer:
        kept = values.where(inner, body.on_true, body.on_false)
        return values.where(outer, fold(values, combiner, axes, kept), body.on_false)
    shared = [
        f for f in _outer(values, combiner, axes, [body.on_true])
        if f[1] > 0 or sign(values, f[0]) == Sign.POSITIVE  # a row without elements may divide by 0
    ]  # fmt: skip
    if shared and not isinstance(bare := without(values, body.on_true, shared), Constant):
        kept = values.where(inner, bare, body.on_false)
        return values.product([*shared, (fold(values, combiner, axes, kept), 1.0)])
    for axis in axes:
        solved = _equality(inner, axis)
        if solved is not None:
            rest = [c for c in inner if c.coefficient(axis) == 0]
            conditions = [c.substitute({axis: solved}) for c in rest]
            conditions += [solved, solved * -1 + (axis.extent - 1)]
            reduced = values.substitute(body.on_true, {axis: solved})
            kept = values.where(conditions, reduced, body.on_false)
            return fold(values, combiner, [a for a in axes if a != axis], kept)
    for axis in axes:
        if band := _band(inner, axis):
            last, count = band
            number = fresh_axis(count, {*values.axes(body), *axes})
            place = last - index_of(number)
            inside = [place, place * -1 + (axis.extent - 1)]
            conditions = [*inside, *(c.substitute({axis: place}) for c in inner)]
            kept = values.where(
                conditions, values.substitute(body.on_true, {axis: place}), body.on_false
            )
            return fold(values, combiner, [number if a == axis else a for a in axes], kept)
    for condition in inner:
        cut = _cut(condition)
        if cut is not None and cut[0] in bound:
            axis, low, high = cut
            names = {*values.axes(body), *axes}
            shorter = fresh_axis(max(high - low, 0), names)
            if not shorter.extent:
                return body.on_false
            moved = values.substitute(body, {axis: index_of(shorter) + low})
            return fold(values, combiner, [shorter if a == axis else a for a in axes], moved)
    if isinstance(body.on_true, Fold) and body.on_true.combiner == combiner:
        of = body.on_true
        kept = values.where(inner, of.body, body.on_false)
        return _joined(values, combiner, axes, Fold(combiner, of.axes, kept))
    return None


def _of_unequal(values: Values, combiner: str, axes: list[Axis], body: Choice) -> Value | None:
    """One reduction where what is combined has one element more for the first elements of an axis than for
    its others: tiles of rows, of which the last one is not full, that are combined partition by partition."""
    kinds = (body.on_true, body.on_false)
    if len(body.conditions) != 1 or len(body.conditions[0].terms) != 1:
        return None
    (((axis, coefficient),), constant) = (body.conditions[0].terms, body.conditions[0].constant)
    if axis not in axes or abs(coefficient) != 1:
        return None
    first = constant + 1 if coefficient < 0 else -constant
    longer, shorter = kinds if coefficient < 0 else kinds[::-1]
    if not (isinstance(longer, Fold) and longer.combiner == combiner):
        return None
    for tiles in longer.axes:
        if _without_last(values, longer, tiles, shorter):
            number = index_of(tiles) * axis.extent + index_of(axis)
            inside = number * -1 + (axis.extent * (tiles.extent - 1) + first - 1)
            kept = values.where([inside], longer.body, Constant(NEUTRAL[combiner]))
            return _joined(values, combiner, axes, Fold(combiner, longer.axes, kept))
    return None


def _without_last(values: Values, longer: Fold, tiles: Axis, shorter: Value) -> bool:
    """Whether a value combines what `longer` does but for the last element of one of its axes."""
    if isinstance(shorter, Fold) and len(shorter.axes) == len(longer.axes):
        pairs = list(zip(longer.axes, shorter.axes, strict=True))
        extents = [long.extent - (long == tiles) for long, _ in pairs]
        if shorter.combiner != longer.combiner or extents != [short.extent for _, short in pairs]:
            return False
        moved = values.substitute(longer.body, {long: index_of(short) for long, short in pairs})
        return moved is shorter.body
    if tiles.extent > FEW_TERMS:
        return False
    others = [axis for axis in longer.axes if axis != tiles]
    terms = [
        fold(values, longer.combiner, others, values.substitute(longer.body, {tiles: Index(n, ())}))
        for n in range(tiles.extent - 1)
    ]
    if longer.combiner in FLIPPED:
        return (
            functools.reduce(lambda a, b: apply(values, longer.combiner, [a, b]), terms) is shorter
        )
    return longer.combiner == "add" and values.sum([(term, 1.0) for term in terms]) is shorter


def is_neutral(combiner: str, value: Value) -> bool:
    """Whether a value is the number that changes nothing when it is combined."""
    if not isinstance(value, Constant) or combiner not in NEUTRAL:
        return False
    if combiner in FLIPPED:
        return value.value * (1 if combiner == "minimum" else -1) >= INFINITE
    return value.value == NEUTRAL[combiner]


def _equality(conditions: Iterable[Index], axis: Axis) -> Index | None:
    """What an axis must be where `x >= 0` and `-x >= 0`, x having it with coefficient 1 or -1."""
    known = set(conditions)
    for condition in known:
        coefficient = condition.coefficient(axis)
        if abs(coefficient) == 1 and condition * -1 in known:
            rest = condition - index_of(axis) * coefficient
            if axis not in rest.axes:
                return rest * -coefficient
    return None


def _band(conditions: Sequence[Index], axis: Axis) -> tuple[Index, int] | None:
    """The last place along an axis that two conditions leave, and how many at most, where those are `FEW_TERMS`
    and no more than half: frames of which each begins a step after the one before, and few meet."""
    for last, first in itertools.product(conditions, conditions):
        step = first.coefficient(axis)
        rest = last + first
        if step > 1 and last.coefficient(axis) == -step and not rest.terms:
            count = rest.constant // step + 1
            if 0 < count <= min(FEW_TERMS, axis.extent // 2) and last.is_affine:
                return (last + index_of(axis) * step) // step, count
    return None


def _cut(condition: Index) -> tuple[Axis, int, int] | None:
    """The axis that a condition on it alone leaves from `low` up to `high`."""
    if len(condition.terms) != 1:
        return None
    axis, coefficient = condition.terms[0]
    if not isinstance(axis, Axis):
        return None
    if coefficient > 0:
        return axis, max(-(condition.constant // coefficient), 0), axis.extent
    return axis, 0, min(condition.constant // -coefficient + 1, axis.extent)


def _plain(values: Values, combiner: str, axes: list[Axis], body: Value) -> Value:
    """The reduction with one that it is made of taken in."""
    if isinstance(body, Fold) and body.combiner == combiner:
        return _joined(values, combiner, axes, body)
    if combiner in FLIPPED and isinstance(body, Application) and body.function == combiner:
        # max over t of max(x, y)
        parts = [fold(values, combiner, axes, part) for part in body.arguments]
        return apply(values, combiner, parts)
    return values.same(Fold(combiner, tuple(axes), body))


def _joined(values: Values, combiner: str, axes: list[Axis], body: Fold) -> Value:
    """One reduction over the axes of both."""
    renamed: dict[Axis, Index] = {}
    inner: list[Axis] = []
    for axis in body.axes:
        if axis.name in {a.name for a in axes}:
            taken = {*axes, *inner, *bound_axes(body), *values.axes(body.body)}
            other = fresh_axis(axis.extent, taken)
            renamed[axis] = index_of(other)
            inner.append(other)
        else:
            inner.append(axis)
    return fold(values, combiner, [*axes, *inner], values.substitute(body.body, renamed))
