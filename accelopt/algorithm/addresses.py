"""Which element of a tile has an address.

A write says where element (a0, a1, ...) of an iteration goes; a reader asks the other way round. The
strides of a tile and of the loops around it are digits of a mixed radix, so the answer is a division
and a remainder a digit; where they are none, iterations overwrite each other's elements.

Inputs get the shape of the problem from their row-major addresses the same way: a kernel may have cut
an argument in tiles (`(32,128,1024)`); its accesses say what its dimensions are, since each of their
strides is the size of what lies below a dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from accelopt.algorithm.index import Axis, Floor, Index, index_of
from accelopt.algorithm.linear import row_major
from accelopt.algorithm.values import follows, least_where, ranges_where


@dataclass(slots=True)
class AxisSolution:
    """Values of unknown axes at which an index takes a value: `axes` has those that it depends on,
    `ranges` the conditions (each >= 0) that they are in range, `conditions` all others. `unique` is
    False when several values might be meant."""

    axes: dict[Axis, Index] = field(default_factory=dict)
    ranges: list[Index] = field(default_factory=list)
    conditions: list[Index] = field(default_factory=list)
    unique: bool = True


def solve(
    index: Index, unknowns: frozenset[Axis], wanted: Index, shape: tuple[int, ...],
    facts: tuple[Index, ...] | None = None,
) -> AxisSolution | None:  # fmt: skip
    """Where `index`, a function of the unknowns, is `wanted`; None when nowhere. Both are row-major
    numbers in a shape. Masked tiles that reach beyond a row leave it to their masks to say so; where
    their conditions are given as `facts` (each >= 0), dimensions that an index leaves are taken as one."""
    split = _short(unknowns, facts or ())
    index = index.substitute(split)
    inner = unknowns | {axis for value in split.values() for axis in value.axes}
    facts = facts and tuple(fact.substitute(split) for fact in facts)
    while cut := _cut(index, inner, split):
        split.update(cut)
        index = index.substitute({a: i for a, i in cut.items() if a in index.axes})
        inner = inner | {axis for value in cut.values() for axis in value.axes}
        facts = facts and tuple(fact.substitute(cut) for fact in facts)
    if facts is not None:
        shape = _rows_of(index, shape, facts)
    found = _solved_in_rows(index, inner, wanted, shape)
    if found is None or not found.unique:
        return found
    for axis, value in reversed(split.items()):
        if all(part in found.axes for part in value.axes):
            number = found.axes[axis] = value.substitute(found.axes)
            if number.bounds[1] >= axis.extent:
                found.ranges.append(number * -1 + (axis.extent - 1))
    found.axes = {axis: value for axis, value in found.axes.items() if axis in unknowns}
    return found


def _solved_in_rows(
    index: Index, unknowns: frozenset[Axis], wanted: Index, shape: tuple[int, ...]
) -> AxisSolution | None:
    rows = _by_dimension(index, shape)
    whole = rows or _by_dimension(index, shape, diagonal=True) or []
    inside = bool(whole) and all(
        row.bounds[0] >= 0 and row.bounds[1] < extent
        for row, extent in zip(whole[1:], shape[1:], strict=True)
    )  # beyond the first dimension no other row begins
    rows = whole if inside else rows
    found = None if inside else _solved(unknowns, [(index, wanted)])
    if rows is None or (not inside and (found is None or found.unique)):
        return found
    equations: list[tuple[Index, Index]] = []
    for extent, row in zip(reversed(shape[1:]), reversed(rows[1:]), strict=True):
        equations.append((row, wanted % extent))
        wanted = wanted // extent
    return _solved(unknowns, [*equations, *((row, wanted) for row in rows[:1])])


def narrowed(conditions: Sequence[Index]) -> tuple[Axis, Index, Index] | None:
    """An axis that some of the conditions (each >= 0) bound alone; what it is in a shorter one
    that takes just the values left, and what that is in it. None where there is no such axis."""
    for condition in conditions:
        if len(condition.terms) == 1 and isinstance(condition.terms[0][0], Axis):
            axis = condition.terms[0][0]
            low, high = 0, axis.extent - 1
            for other in conditions:
                factor = other.coefficient(axis)
                if len(other.terms) == 1 and factor > 0:
                    low = max(low, -(other.constant // factor))
                elif len(other.terms) == 1 and factor < 0:
                    high = min(high, other.constant // -factor)
            if low <= high and (low, high) != axis.bounds:
                shorter = Axis(f"{axis.name}'", high - low + 1)
                return axis, index_of(shorter) + low, index_of(axis) - low
    return None


def _short(unknowns: frozenset[Axis], facts: tuple[Index, ...]) -> dict[Axis, Index]:
    """Unknowns that facts keep in a part of their axes, by an axis of that part."""
    found = dict[Axis, Index]()
    for axis, (low, high) in ranges_where(frozenset(facts)).items():
        if axis in unknowns and 0 < high - low + 1 < axis.extent:
            found[axis] = index_of(Axis(f"{axis.name}'", high - low + 1)) + low
    return found


def _rows_of(index: Index, shape: tuple[int, ...], facts: tuple[Index, ...]) -> tuple[int, ...]:
    """The shape with those dimensions as one that an index goes through as one where facts hold."""
    rows = _by_dimension(index, shape)
    joint = [
        (*shape[: n - 1], shape[n - 1] * shape[n], *shape[n + 1 :])
        for n in range(len(shape) - 1, 0, -1)
    ]
    if rows is None and joint:
        fitting = (made for made in joint if _by_dimension(index, made) is not None)
        return _rows_of(index, next(fitting, joint[0]), facts)
    for made, row, extent in zip(joint, (rows or [])[:0:-1], shape[:0:-1], strict=False):
        if not (follows(row, facts) and follows(row * -1 + (extent - 1), facts)):
            return _rows_of(index, made, facts)
    return shape


def _by_dimension(
    index: Index, shape: tuple[int, ...], *, diagonal: bool = False
) -> list[Index] | None:
    """A row-major number as the subscripts that it is made of; None where a stride is no multiple
    of a row, but for a `diagonal`, which goes on along several dimensions at once."""
    strides: list[int] = []
    size = 1
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    strides.reverse()
    rows: list[Index] = []
    for stride in strides:
        taken = tuple((t, c) for t, c in index.terms if abs(c) >= stride)
        if any(c % stride for _, c in taken) and not diagonal:
            return None
        constant = index.constant // stride
        row = Index(constant, tuple((t, c // stride) for t, c in taken))
        index = index - row * stride
        rows.append(row)
    return rows


def _solved(unknowns: frozenset[Axis], equations: list[tuple[Index, Index]]) -> AxisSolution | None:
    solution = AxisSolution()
    found: dict[Axis, Index] = {}
    for left, wanted in equations:
        digits = _digits(left, unknowns)
        if digits is None:
            return AxisSolution(unique=False)
        known, pairs = digits
        if pairs and all(axis in found for axis, _, _ in pairs):  # another dimension of a diagonal
            apart = wanted - left.substitute(found)
            solution.conditions += [apart, apart * -1]
            continue
        if any(axis in found for axis, _, _ in pairs):
            return AxisSolution(unique=False)
        if not _divided(solution, found, pairs, wanted - known):
            return AxisSolution(unique=False) if not solution.unique else None
    solution.axes = found
    return solution


def _divided(
    solution: AxisSolution,
    found: dict[Axis, Index],
    pairs: list[tuple[Axis, int, bool]],
    rest: Index,
) -> bool:
    """Adds the digits that make up `rest`; False where there are none or several."""
    lower = sum(stride * (axis.extent - 1) for axis, stride, _ in pairs)
    for axis, stride, downward in pairs:
        lower -= stride * (axis.extent - 1)
        if stride <= lower:
            solution.unique = False
            return False
        digit = rest // stride
        low, high = digit.bounds
        if high < 0 or low >= axis.extent:
            return False
        if low < 0:
            solution.ranges.append(digit)
        if high >= axis.extent:
            solution.ranges.append(digit * -1 + (axis.extent - 1))
        rest = rest - digit * stride
        found[axis] = digit * -1 + (axis.extent - 1) if downward else digit
    low, high = rest.bounds
    if low < 0 or high > 0:
        solution.conditions += [rest, rest * -1]
    return low <= 0 <= high


def _digits(
    index: Index, unknowns: frozenset[Axis]
) -> tuple[Index, list[tuple[Axis, int, bool]]] | None:
    """The part without unknowns, and the unknowns with the size of their strides and whether they count
    down, largest first; None where an unknown stands below a floor."""
    pairs: list[tuple[Axis, int, bool]] = []
    known = Index(index.constant)
    for term, coefficient in index.terms:
        if isinstance(term, Axis) and term in unknowns:
            if coefficient < 0:
                known = known + coefficient * (term.extent - 1)
            pairs.append((term, abs(coefficient), coefficient < 0))
        elif isinstance(term, Floor) and term.inner.axes & unknowns:
            return None
        else:
            known = known + index_of(term) * coefficient
    return known, sorted(pairs, key=lambda pair: -pair[1])


def _cut(
    index: Index, unknowns: frozenset[Axis], done: Mapping[Axis, Index]
) -> dict[Axis, Index] | None:
    """An unknown that stands below a floor, as the two digits that the floor makes of it; several that
    are the digits of what stands there, as those of one."""
    for term, _ in index.terms:
        if not isinstance(term, Floor) or not term.inner.is_affine or term.inner.constant:
            continue
        if len(term.inner.terms) > 1:
            if joint := _joint(term.inner, unknowns, done):
                return joint
            continue
        axis, coefficient = term.inner.terms[0]
        if not isinstance(axis, Axis) or axis not in unknowns or axis in done:
            continue
        if coefficient == 1:
            high = Axis(f"{axis.name}/", -(-axis.extent // term.divisor))
            low = Axis(f"{axis.name}%", term.divisor)
            return {axis: index_of(high) * term.divisor + index_of(low)}
    return None


def _joint(
    inner: Index, unknowns: frozenset[Axis], done: Mapping[Axis, Index]
) -> dict[Axis, Index] | None:
    """Unknowns that are the digits of an index, in terms of one that is the index."""
    pairs = sorted(((c, t) for t, c in inner.terms if isinstance(t, Axis)), key=lambda p: p[0])
    whole = Axis("+".join(axis.name for _, axis in pairs), math.prod(a.extent for _, a in pairs))
    below, found = 1, dict[Axis, Index]()
    for coefficient, axis in pairs:
        if coefficient != below or axis not in unknowns or axis in done:
            return None
        found[axis] = index_of(whole) // below % axis.extent
        below *= axis.extent
    return found


class GuardedAddress(NamedTuple):
    """A row-major address, read where each of the guards is at least 0."""

    address: Index
    guards: tuple[Index, ...] = ()


def view_of(accesses: Sequence[GuardedAddress], given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which all accesses have subscripts in range, as near to how they are used as
    can be; one dimension where there is none."""
    size = 1
    strides: list[int] = []
    for extent in reversed(given):
        strides.append(size)
        size *= extent
    used = {abs(c) for access in accesses for _, c in access.address.terms} | {1}
    for wanted in (used, {*strides, 1}):
        chain = _chain(wanted, size)
        while chain:
            found = [_failing(access, chain, size) for access in accesses]
            failing = [dimension for dimension in found if dimension is not None]
            if not failing:
                return _shape(chain, size)
            worst = max(failing)
            if not worst:
                break
            del chain[worst - 1]  # the dimension above takes both
    return (size,)


def subscripts(access: GuardedAddress, shape: Sequence[int]) -> tuple[Index, ...]:
    """A row-major address as one index a dimension."""
    strides = row_major(shape)
    for found in _by_strides(access.address, strides, access.guards):
        if not _outside(found, shape, access.guards):
            return found
    address = access.address
    result: list[Index] = []
    for extent in reversed(shape[1:]):
        result.append(address % extent)
        address = address // extent
    return (address, *result[::-1])


def _chain(strides: set[int], size: int) -> list[int]:
    """As many strides as there are that divide each other, largest first."""
    chains = list[list[int]]()
    for stride in sorted(s for s in strides if 0 < s < size or s == 1):
        if size % stride == 0:
            below = (chain for chain in chains if stride % chain[0] == 0)
            chains.append([stride, *max(below, key=len, default=[])])
    return max(chains, key=len, default=[])


def _shape(chain: Sequence[int], size: int) -> tuple[int, ...]:
    above = [size, *chain[:-1]]
    return tuple(high // low for high, low in zip(above, chain, strict=True))


def _failing(access: GuardedAddress, chain: list[int], size: int) -> int | None:
    """The number of the last dimension that an access leaves; None when it leaves none."""
    shape = _shape(chain, size)
    worst = len(chain) - 1
    for found in _by_strides(access.address, chain, access.guards):
        outside = _outside(found, shape, access.guards)
        if not outside:
            return None
        worst = outside[-1]
    return worst


def _by_strides(
    address: Index, strides: Sequence[int], guards: Sequence[Index]
) -> Iterator[tuple[Index, ...]]:
    """An address by strides, its constant rounded down or up to a multiple of each, or to where it begins under the
    guards; nothing where a coefficient is no multiple of one."""
    if not strides:
        yield ()
        return
    stride, *rest = strides
    terms = tuple((t, c) for t, c in address.terms if abs(c) >= stride)
    if any(c % stride for _, c in terms):
        return
    inside = Index(address.constant, tuple((t, c) for t, c in address.terms if abs(c) < stride))
    least = least_where(inside, ranges_where(frozenset(guards)))
    constants = (address.constant // stride, -(-address.constant // stride), least // stride)
    for constant in dict.fromkeys(constants):
        index = Index(constant, tuple((t, c // stride) for t, c in terms))
        for below in _by_strides(address - index * stride, rest, guards):
            yield index, *below


def _outside(indices: Sequence[Index], shape: Sequence[int], guards: Sequence[Index]) -> list[int]:
    """The dimensions whose subscripts may be out of range where the guards hold."""
    return [
        number
        for number, (index, extent) in enumerate(zip(indices, shape, strict=True))
        if not (follows(index, guards) and follows(index * -1 + (extent - 1), guards))
    ]
