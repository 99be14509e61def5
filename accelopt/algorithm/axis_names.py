"""Letters for axes: the same letter for the same axis of the problem in all definitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis

NamedAxis = tuple[str, int | tuple[int, int, int] | Axis]
"""A dimension of an array, by number, or a digit of its places there (with its step and extent), or an
axis of the definition of an array."""

_OUTPUT_LETTERS = {1: "m", 2: "mn", 3: "bmn", 4: "bhmn", 5: "bghmn"}
_LETTERS = "kljipqrstuvwxyzacdefo"


class AxisNames:
    """Which axes of which definitions are one axis of the problem, and their letters."""

    def __init__(
        self,
        inputs: Sequence[ir.Array],
        definitions: Sequence[ir.Definition],
        outputs: Sequence[ir.Array],
    ) -> None:
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._definitions = list(definitions)
        self._parent: dict[NamedAxis, NamedAxis] = {}
        self._members: dict[NamedAxis, set[NamedAxis]] = {}

    def algorithm(self, name: str) -> ir.Algorithm:
        """The Algorithm with its axes named."""
        for definition in self._definitions:
            for number, axis in enumerate(definition.axes):
                self._unite((definition.out, axis), (definition.out, number))
        for definition in self._definitions:
            for expression in ir.expressions_of(definition):
                for part in ir.walk(expression):
                    if isinstance(part, ir.Read):
                        self._link(definition, part)
        letters = self._letters()
        renamed = tuple(self._renamed(d, letters) for d in self._definitions)
        return ir.Algorithm(name, self._inputs, renamed, self._outputs)

    def _link(self, definition: ir.Definition, read: ir.Read) -> None:
        for number, index in enumerate(read.indices):
            for term, coefficient in index.terms if not index.constant else ():
                if not isinstance(term, Axis):
                    continue
                if len(index.terms) > 1:  # a digit of the place
                    digit = (number, coefficient, term.extent)
                    self._unite((definition.out, term), (read.array, digit))
                elif coefficient == 1:
                    self._unite((definition.out, term), (read.array, number))

    def _root(self, place: NamedAxis) -> NamedAxis:
        self._members.setdefault(place, {place})
        while self._parent.get(place, place) != place:
            place = self._parent[place]
        return place

    def _unite(self, first: NamedAxis, second: NamedAxis) -> None:
        """Makes both one axis, unless that made two axes of one definition the same."""
        one, other = self._root(first), self._root(second)
        if one == other:
            return
        members = self._members[one] | self._members[other]
        own = [array for array, place in members if isinstance(place, Axis)]
        extents = {place.extent for _, place in members if isinstance(place, Axis)}
        if len(own) == len(set(own)) and len(extents) <= 1:
            self._parent[other] = one
            self._members[one] = members

    def _letters(self) -> dict[NamedAxis, str]:
        """A name for every axis of the problem, those of the last output first."""
        found: dict[NamedAxis, str] = {}
        taken = {array.name for array in (*self._inputs, *self._outputs)}

        def give(place: NamedAxis, wanted: str) -> None:
            root = self._root(place)
            if root not in found:
                others = chain((wanted,), "ijk", _LETTERS, (f"i{n}" for n in count(2)))
                name = next(c for c in others if c not in taken)
                found[root] = name
                taken.add(name)

        last = max(self._definitions, key=lambda d: len(d.axes) if self._is_output(d) else -1)
        letters = _OUTPUT_LETTERS.get(len(last.axes), "")
        for n, axis in enumerate(last.axes):
            give((last.out, axis), letters[n] if letters else f"m{n + 1}")
        spare = (name for name in chain(_LETTERS, (f"k{n}" for n in count(2))) if name not in taken)
        for definition in self._definitions:
            for axis in ir.own_axes(definition):
                if self._root((definition.out, axis)) not in found:
                    give((definition.out, axis), next(spare))
        return found

    def _is_output(self, definition: ir.Definition) -> bool:
        return any(array.name == definition.out for array in self._outputs)

    def _renamed(self, definition: ir.Definition, letters: dict[NamedAxis, str]) -> ir.Definition:
        names: dict[Axis, Axis] = {}
        for axis in ir.own_axes(definition):
            place = self._root((definition.out, axis))
            names[axis] = Axis(letters.get(place, axis.name), axis.extent)
        return ir.with_axes(definition, names)
