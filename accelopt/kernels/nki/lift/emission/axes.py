"""The axes of a whole kernel, from those of its definitions.

Axes that an algorithm names apart, but that run along the same dimension of an array, are one; an axis
of which `h // 2` is read somewhere is two; where conditions cut an axis into equal ranges, each range
is a piece of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from accelopt.algorithm.algorithm import (
    Algorithm,
    Definition,
    Read,
    Reduce,
    Where,
    expressions_of,
    indices_of,
    walk,
)
from accelopt.algorithm.index import Axis, Floor, Index, index_of
from accelopt.kernels.nki.lift.emission.graph import NotLowered


def axis_of(index: Index) -> Axis:
    """The axis that an index is; an axis that was split has none."""
    terms = index.terms
    plain = len(terms) == 1 and index.constant == 0 and terms[0][1] == 1
    if plain and isinstance(terms[0][0], Axis):
        return terms[0][0]
    return Axis(f"({index})", 0)


def own_axes(definition: Definition) -> tuple[Axis, ...]:
    """The axes of a definition: those of its result, then those it combines over."""
    return definition.axes + (definition.reduced if isinstance(definition, Reduce) else ())


def pieces_of(definition: Definition) -> list[dict[Axis, Index]]:
    """The ranges of an axis between which conditions on that axis alone change, as what the axis is
    in each; one empty piece where there are none, or ranges differ in length."""
    breaks: dict[Axis, set[int]] = {}
    for expression in expressions_of(definition):
        for part in walk(expression):
            if isinstance(part, Where):
                for condition in part.conditions:
                    if len(condition.axes) == 1 and condition.is_affine:
                        (axis, step), *_ = condition.terms
                        assert isinstance(axis, Axis)
                        first = (
                            -(condition.constant // step)
                            if step > 0
                            else (condition.constant // -step + 1)
                        )
                        breaks.setdefault(axis, set()).add(first)
    for axis, found in breaks.items():
        edges = sorted({0, axis.extent} | {b for b in found if 0 < b < axis.extent})
        lengths = {b - a for a, b in itertools.pairwise(edges)}
        if axis in definition.axes and len(edges) > 2 and len(lengths) == 1:
            part_axis = Axis(axis.name, lengths.pop())
            return [{axis: index_of(part_axis) + start} for start in edges[:-1]]
    return [{}]


DefinitionAxis = tuple[int, Axis]
"""An axis of a definition, by the definition's number."""


def joined_axes(algorithm: Algorithm) -> list[dict[Axis, Index]]:
    """For each definition, what its axes are in the graph."""
    joined = _Joined(algorithm)
    split = _divisors(algorithm, joined)
    pairs = _pairs(algorithm, joined)
    names = _names(joined)
    result: list[dict[Axis, Index]] = []
    for number, definition in enumerate(algorithm.definitions):
        renamed: dict[Axis, Index] = {}
        for axis in own_axes(definition):
            root = joined.root((number, axis))
            name, divisor = names[root], split.get(root, 0)
            if root in pairs and not divisor:
                outer, inner = (Axis(names[part], size) for part, size in pairs[root])
                renamed[axis] = index_of(outer) * inner.extent + index_of(inner)
            elif divisor:
                outer = Axis(name, axis.extent // divisor)
                inner = Axis(f"{name}_in", divisor)
                renamed[axis] = index_of(outer) * divisor + index_of(inner)
            else:
                renamed[axis] = index_of(Axis(name, axis.extent))
        result.append(renamed)
    return result


class _Joined:
    """Axes of all definitions, in classes of those that run along one dimension."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._parent: dict[DefinitionAxis, DefinitionAxis] = {}
        self._members: dict[DefinitionAxis, list[DefinitionAxis]] = {}
        self.dimensions: dict[tuple[str, int], DefinitionAxis] = {}
        """An axis that runs along each dimension of an array."""
        for number, definition in enumerate(algorithm.definitions):
            for axis in own_axes(definition):
                place = (number, axis)
                self._parent[place] = place
                self._members[place] = [place]
        for number, definition in enumerate(algorithm.definitions):
            for array, dimension, axis in _plain_reads(definition):
                place = (number, axis)
                known = self.dimensions.setdefault((array, dimension), place)
                self.join(known, place)
            for dimension, axis in enumerate(definition.axes):
                self.dimensions.setdefault((definition.out, dimension), (number, axis))

    def root(self, place: DefinitionAxis) -> DefinitionAxis:
        """The class of a place."""
        while self._parent[place] != place:
            place = self._parent[place]
        return place

    def join(self, one: DefinitionAxis, other: DefinitionAxis) -> None:
        """Makes two classes one, unless that made two axes of one definition the same."""
        first, second = self.root(one), self.root(other)
        if first == second or one[1].extent != other[1].extent:
            return
        if {n for n, _ in self._members[first]} & {n for n, _ in self._members[second]}:
            return
        self._parent[second] = first
        self._members[first] += self._members.pop(second)

    @property
    def classes(self) -> dict[DefinitionAxis, list[DefinitionAxis]]:
        """The members of each class."""
        return self._members


def _plain_reads(definition: Definition) -> Iterator[tuple[str, int, Axis]]:
    """Array, dimension and axis, of each dimension that is read along a whole axis of its length."""
    for array, dimension, index in _reads(definition):
        axis = axis_of(index)
        if axis.extent:
            yield array, dimension, axis


def _divisors(algorithm: Algorithm, joined: _Joined) -> dict[DefinitionAxis, int]:
    """Classes of axes that are read through a floor, and the divisor."""
    found: dict[DefinitionAxis, int] = {}
    for number, definition in enumerate(algorithm.definitions):
        for expression in expressions_of(definition):
            for part in walk(expression):
                for index in indices_of(part):
                    for term, _ in index.terms:
                        if not isinstance(term, Floor):
                            continue
                        axis = axis_of(term.inner)
                        if not axis.extent or axis.extent % term.divisor:
                            raise NotLowered(f"the index {index} is not affine")
                        root = joined.root((number, axis))
                        if found.setdefault(root, term.divisor) != term.divisor:
                            raise NotLowered(f"{axis.name} is divided by two numbers")
    return found


Pair = tuple[tuple[DefinitionAxis, int], tuple[DefinitionAxis, int]]
"""The classes of an outer and an inner axis, with their extents."""


def _pairs(algorithm: Algorithm, joined: _Joined) -> dict[DefinitionAxis, Pair]:
    """Classes of axes that are two axes elsewhere: what one definition computes for every row, another
    reads for groups of rows, at `8 * group + row`. Axes of arrays that are only read are left as they
    are where something is combined along them."""
    made = {definition.out for definition in algorithm.definitions}
    combined = {
        joined.root((number, axis))
        for number, definition in enumerate(algorithm.definitions)
        for axis in (definition.reduced if isinstance(definition, Reduce) else ())
    }
    found: dict[DefinitionAxis, Pair] = {}
    for number, definition in enumerate(algorithm.definitions):
        for array, dimension, index in _reads(definition):
            if (array, dimension) not in joined.dimensions or not index.is_affine:
                continue
            place = joined.dimensions[array, dimension]
            root, extent = joined.root(place), place[1].extent
            parts = _outer_and_inner(index, extent)
            if parts is None or (array not in made and root in combined):
                continue
            pair = tuple((joined.root((number, axis)), axis.extent) for axis in parts)
            numbers = {n for part, _ in pair for n, _ in joined.classes[part]}
            if not numbers & {n for n, _ in joined.classes[root]}:
                found.setdefault(root, (pair[0], pair[1]))
    return found


def _outer_and_inner(index: Index, extent: int) -> tuple[Axis, Axis] | None:
    """The axes of an index that counts rows of rows, of so many in all."""
    if index.constant or len(index.terms) != 2:
        return None
    (inner, one), (outer, step) = sorted(index.terms, key=lambda term: term[1])
    if not (isinstance(inner, Axis) and isinstance(outer, Axis)):
        return None
    whole = one == 1 and step == inner.extent and outer.extent * step == extent
    return (outer, inner) if whole else None


def _reads(definition: Definition) -> Iterator[tuple[str, int, Index]]:
    """Array, dimension and index of all that a definition reads."""
    for expression in expressions_of(definition):
        for part in walk(expression):
            if isinstance(part, Read):
                for dimension, index in enumerate(part.indices):
                    yield part.array, dimension, index


def _names(joined: _Joined) -> dict[DefinitionAxis, str]:
    """A name for each class: the one that most of its axes have, told apart where two agree."""
    taken: set[str] = set()
    names: dict[DefinitionAxis, str] = {}
    for root, members in joined.classes.items():
        called = [axis.name for _, axis in members]
        name = max(dict.fromkeys(called), key=called.count)
        while name in taken:
            name += "_"
        taken.add(name)
        names[root] = name
    return names
