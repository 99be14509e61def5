"""Room at the ends of arrays in HBM that are read beyond them, where a condition excludes what is read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from accelopt.algorithm.index import ZERO, Axis, Index
from accelopt.algorithm.ir import Algorithm
from accelopt.algorithm.values import least_where, ranges_where
from accelopt.kernels.nki.nests.value_graphs import Reading
from accelopt.kernels.nki.nests.values import Value

Facts = frozenset[Index]
"""What is at least 0 where something is read."""


MOST_APART = 3
"""Dimensions that one DMA brings into room of their own."""


class Margins(NamedTuple):
    """An array whose dimensions from the first one that is left lie one after the other, as in memory,
    with `low` elements before and `high` after them; `given` is its shape without. `ends` are how far
    each dimension is read beyond its ends; with room there for each of several, they lie `apart`."""

    given: tuple[int, ...]
    first: int
    low: int
    high: int
    ends: tuple[tuple[int, int], ...] = ()
    apart: bool = False

    @property
    def inner(self) -> tuple[tuple[int, int, int], ...]:
        """Elements before, of, and after the array, along each dimension from the first that is left."""
        if not self.apart:
            return ((self.low, math.prod(self.given[self.first :]), self.high),)
        sides = zip(self.given[self.first :], self.ends[self.first :], strict=True)
        return tuple((low, extent, high) for extent, (low, high) in sides)

    @property
    def outer(self) -> int:
        """How often there are margins: for each element of the dimensions before."""
        return math.prod(self.given[: self.first])

    @property
    def step(self) -> int:
        """Elements from one begin of margins to the next."""
        return math.prod(map(sum, self.inner))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array with its margins."""
        return (*self.given[: self.first], *map(sum, self.inner))

    def flat(self, indices: Sequence[Index]) -> Index:
        """The indices from the first dimension that is left as one."""
        place = ZERO
        for index, extent in zip(indices[self.first :], self.given[self.first :], strict=True):
            place = place * extent + index
        return place

    def along(self, indices: Sequence[Index]) -> Sequence[Index]:
        """The indices of the dimensions `inner`."""
        return indices[self.first :] if self.apart else [self.flat(indices)]

    def place(self, indices: Sequence[Index]) -> tuple[Index, ...]:
        """Indices of the array as those of the array with its margins."""
        sides = zip(self.along(indices), self.inner, strict=True)
        moved = (index + low for index, (low, _, _) in sides)
        return (*indices[: self.first], *moved)


def margins_of(
    algorithm: Algorithm, reading: Reading, alone: Mapping[str, Collection[Axis]] = {}
) -> dict[str, Margins]:
    """The arrays that are read beyond their ends, with as much room as is read there. What conditions
    on axes `alone` of a definition exclude is not read: their parts are written one by one."""
    shapes = {array.name: array.shape for array in algorithm.inputs}
    inputs = {*shapes}
    shapes |= {d.out: tuple(a.extent for a in d.axes) for d in algorithm.definitions}
    places: dict[str, list[tuple[tuple[Index, ...], Facts]]] = {}
    for out, meaning in reading.meanings.items():
        for root in meaning.roots:
            for value, facts in _read(root, frozenset(), alone.get(out, ()), set()):
                places.setdefault(value.array, []).append((value.indices, facts))
    found: dict[str, Margins] = {}
    for name, all_places in places.items():
        shape = shapes[name]
        along = [[_bounds(index, facts) for index in indices] for indices, facts in all_places]
        each = tuple(
            (max(0, -min(low for low, _ in own)), max(0, max(high for _, high in own) - extent + 1))
            for own, extent in zip(zip(*along, strict=True), shape, strict=False)
        )
        left = [n for n, own in enumerate(each) if any(own)]
        if left:
            bare = Margins(shape, min(left), 0, 0)
            ends = [_bounds(bare.flat(indices), facts) for indices, facts in all_places]
            low = max(0, -min(low for low, _ in ends))
            high = max(0, max(high for _, high in ends) - bare.step + 1)
            apart = name in inputs and len(left) > 1 and len(shape) - min(left) <= MOST_APART
            found[name] = Margins(shape, min(left), low, high, each, apart)
    return found


def is_zero_outside(value: Value, condition: Index, margins: Mapping[str, Margins]) -> bool:
    """Whether a value is 0 where a condition fails: a factor of it is read from a margin there."""
    if value.kind == "apply" and value.function == "multiply":
        return any(is_zero_outside(part, condition, margins) for part in value.arguments)
    if value.kind == "where":
        held, other = value.arguments
        zero = other.kind == "constant" and not other.constant
        return zero and is_zero_outside(held, condition, margins)
    found = margins.get(value.array) if value.kind == "input" else None
    if found is None:
        return False
    if found.apart:
        own = zip(value.indices[found.first :], found.given[found.first :], strict=True)
        return any(condition in (index, index * -1 + (extent - 1)) for index, extent in own)
    index, *inner = value.indices[found.first :]
    extent, *extents = found.given[found.first :]
    within = all(
        low >= 0 and high < most
        for (low, high), most in zip((i.bounds for i in inner), extents, strict=True)
    )
    return within and condition in (index, index * -1 + (extent - 1))


def with_margins_read(
    reading: Reading, value: Value, margins: Mapping[str, Margins], alone: Collection[Axis]
) -> Value:
    """A value without the conditions that only choose between an array and zeros which its margins have,
    but for those that are decided `alone`."""

    def made(part: Value, arguments: tuple[Value, ...]) -> Value:
        part = reading.rebuilt(part, arguments)
        if part.kind != "where" or part.indices[0].axes <= {*alone}:
            return part
        held, other = part.arguments
        zero = other.kind == "constant" and not other.constant
        return held if zero and is_zero_outside(held, part.indices[0], margins) else part

    return reading.changed(value, made)


def _read(
    value: Value, facts: Facts, deciding: Collection[Axis], seen: set[object]
) -> Iterator[tuple[Value, Facts]]:
    """The elements of arrays that a value is made of, and what is known where they are read."""
    if (value, facts) in seen or any(low > high for low, high in ranges_where(facts).values()):
        return
    seen.add((value, facts))
    if value.kind == "input":
        yield value, facts
    sides = [facts for _ in value.arguments]
    if value.kind == "where" and value.indices[0].is_affine:
        condition = value.indices[0]
        if condition.axes <= set(deciding):
            sides = [facts | {condition}, facts | {condition * -1 - 1}]
    if value.kind == "either":
        # What lies in HBM is brought where it is taken alone.
        opposite = [c * -1 - 1 for c in value.indices[: 2 - len(value.indices)]]
        for n, known in enumerate(({*value.indices}, {*opposite})):
            alone = value.arguments[n].kind == "input" and value.arguments[n].dtype == value.dtype
            sides[n] = facts | {c for c in known if alone or c.axes <= set(deciding)}
    for argument, side in zip(value.arguments, sides, strict=True):
        yield from _read(argument, side, deciding, seen)


def _bounds(index: Index, facts: Facts) -> tuple[int, int]:
    """The least and the largest value of an index where facts hold."""
    if not facts or not index.is_affine:
        return index.bounds
    ranges = ranges_where(facts)
    return least_where(index, ranges), -least_where(index * -1, ranges)
