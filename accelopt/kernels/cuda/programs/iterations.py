"""Loops whose iterations do not need each other: what they access, sum up, and count."""

from __future__ import annotations

import re

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import (
    Accesses,
    accesses,
    pointer,
)
from accelopt.kernels.cuda.programs.loops import gathered, starts_neutral
from accelopt.kernels.cuda.programs.program import (
    Accumulator,
    Count,
    Edit,
    Item,
    Loop,
    Once,
    Team,
    Uniform,
)
from accelopt.kernels.cuda.programs.quantities import Quantity, named, quantity
from accelopt.kernels.cuda.programs.state import State
from accelopt.kernels.cuda.programs.syntax import (
    SIZES,
    Unread,
    assigned,
    bare,
    declared,
    field,
    names,
    said,
    walk,
)

ATOMIC = {"atomicAdd": "{} + {}", "atomicMax": "max({}, {})", "atomicMin": "min({}, {})"}


_NEUTRAL = {
    ("atomicAdd", "float"): "0.0f", ("atomicAdd", "double"): "0.0", ("atomicAdd", "int"): "0",
    ("atomicAdd", "unsigned"): "0u", ("atomicAdd", "unsigned int"): "0u",
    ("atomicAdd", "unsigned long long"): "0ull",
    ("atomicMax", "int"): "(-2147483647 - 1)", ("atomicMin", "int"): "2147483647",
    ("atomicMax", "unsigned"): "0u", ("atomicMax", "unsigned int"): "0u",
    ("atomicMin", "unsigned"): "4294967295u", ("atomicMin", "unsigned int"): "4294967295u",
}  # fmt: skip


def gathering_into(name: str, combined: str, cast: str, value: Node) -> Edit:
    """`name = combined(name, value)`, around the value."""
    before, _, after = combined.format(name, "\0").partition("\0")
    return Edit((f"{name} = {before}{cast}(", value, f"){after}"))


class Iterations(State):
    """Reads the loops that a team shares."""

    def _walks_along(self, variable: str, body: list[Node]) -> bool:
        """Whether a loop's iterations touch neighbours in memory."""
        found, _ = self._of_body(variable, body)
        rests = [one.at.plus(named(variable), -1) for one in found.found]
        return any(variable not in rest.names for rest in rests)

    def _of_body(self, variable: str, body: list[Node]) -> tuple[Accesses, set[str]]:
        """What the body of a loop accesses, and the names that change within it."""
        known = {name: one for name, one in self.known.items() if name != variable}
        pointers = dict(self.pointers)
        moving = {variable}
        for one in (inner for part in body for inner in walk(part)):
            if one.type != "declaration":
                continue
            for made in declared(one):
                if made.shared or made.name in self.kernel.parameters:
                    raise Unread("declarations of another kind in a loop")
                moving.add(made.name)
                known.pop(made.name, None)
                pointers.pop(made.name, None)
                if made.lengths:
                    self.arrays.add(made.name)
                elif made.pointer:
                    there = pointer(made.value, known, pointers)
                    if there is None or made.name in self.moved:
                        raise Unread("a pointer that moves")
                    pointers[made.name] = there
                elif made.value is not None and made.name not in self.moved and made.type in SIZES:
                    try:
                        known[made.name] = quantity(made.value, known)
                    except Unread:
                        continue
        moving |= self.moved - {self.walks}
        return accesses(body, known, pointers, frozenset(self.arrays)), moving

    def _loop(
        self, variable: str, kind: str, low: Quantity, high: Node, body: list[Node],
        edits: dict[int, Edit],
    ) -> None:  # fmt: skip
        bound = quantity(high, self.known)
        self._append_loop(variable, kind, low, self._text(high), bound, body, edits)

    def _append_loop(
        self, variable: str, kind: str, low: Quantity, high: str, bound: Quantity,
        body: list[Node], edits: dict[int, Edit], made: tuple[Accumulator, ...] = (), reached: list[Node] | None = None,
    ) -> None:  # fmt: skip
        found, moving = self._of_body(variable, reached or body)
        if bound.names & moving or low.names & moving:
            raise Unread("a bound that changes")
        writes = {one.pointer for one in found.found if one.writes}
        atomics, after = self._uniform_atomics(found, variable, moving, edits)
        if found.escaped & writes:
            raise Unread("a pointer that is written and goes elsewhere")
        own = {one.name for one in made}
        sums = (*self._sums(variable, body, own), *atomics, *made)
        for one in sums:
            if not one.own and not starts_neutral(one.combined, self.values.get(one.name, "?")):
                raise Unread(f"{one.name} begins with something")
            if not one.own:
                self.values.pop(one.name, None)
                if self.team is not Team.THREAD:
                    self.partial[one.name] = one
        texts = " ".join(map(said, body))
        unsaid = {*self.partial, *(self.stale - set(self.values))} - {one.name for one in sums}
        if any(re.search(rf"\b{name}\b", texts) for name in {*self.tainted, *self.shared, *unsaid}):
            raise Unread("a loop whose iterations know their thread")
        if re.search(r"\b(threadIdx|blockIdx)\s*\.\s*x\b", texts) and self.team is not Team.BLOCK:
            raise Unread("a loop whose iterations know their thread")
        if "threadIdx" in re.sub(r"threadIdx\s*\.\s*[yz]", "", texts):
            raise Unread("a loop whose iterations know their thread")
        self.items.append(
            Loop(variable, kind, low, high, bound, tuple(body), found.found, sums, edits,
                 frozenset(moving), self._counts(found, moving, edits))
        )  # fmt: skip
        self.items += after

    def _counts(
        self, found: Accesses, moving: set[str], edits: dict[int, Edit]
    ) -> tuple[Count, ...]:
        """Additions to places of a parameter that the iterations choose, where nothing else is done
        with it."""
        counts = []
        for one in found.atomics:
            target, *rest = field(one, "arguments").named_children
            place = bare(target.child_by_field_name("argument"))
            parent = one.parent
            if one.id in edits or parent is None or parent.type != "expression_statement":
                continue
            if place is None or place.type != "subscript_expression" or len(rest) != 1:
                continue
            name, function = said(field(place, "argument")), said(field(one, "function"))
            index = field(place, "indices").named_children
            if name not in self.kernel.parameters or len(index) != 1 or assigned(index[0]):
                continue
            if function == "atomicAdd" and all(access.pointer != name for access in found.found):
                kind = self.kernel.parameters[name].type
                counts.append(Count(one, function, name, kind, index[0], rest[0]))
        return tuple(counts)

    def _sums(self, variable: str, body: list[Node], own: set[str]) -> list[Accumulator]:
        """What the iterations add up in variables from outside. Raises Unread where they do more."""
        inside = {made.name for part in body for one in walk(part) if one.type == "declaration"
                  for made in declared(one)}  # fmt: skip
        outside = {name for part in body for name in assigned(part)}
        outside -= inside | own | {variable}
        sums: dict[str, Accumulator] = {}
        uses = dict.fromkeys(outside, 0)
        for one in (inner for part in body for inner in walk(part)):
            if one.type == "identifier" and said(one) in outside:
                uses[said(one)] += 1
            found = gathered(one)
            if found is None or found.name not in outside:
                continue
            uses[found.name] -= sum(
                inner.type == "identifier" and said(inner) == found.name for inner in walk(one)
            )
            before = sums.setdefault(
                found.name, Accumulator(found.name, self.types.get(found.name, ""), found.combined)
            )
            if before.combined != found.combined:
                raise Unread("a sum of several kinds")
        if set(sums) != outside or any(uses.values()):
            raise Unread("iterations that need each other")
        if any(
            not one.type or one.name in self.stale or one.name in self.told for one in sums.values()
        ):
            raise Unread("sums in what is no variable of a thread")
        return list(sums.values())

    def _uniform_atomics(
        self, found: Accesses, variable: str, moving: set[str], edits: dict[int, Edit]
    ) -> tuple[list[Accumulator], list[Item]]:
        """Atomic operations of the iterations on one place as sums of the loop, and what comes after."""
        sums: list[Accumulator] = []
        after: list[Item] = []
        for one in found.atomics:
            target, *rest = field(one, "arguments").named_children
            function = said(field(one, "function"))
            same = not (names(target) & (moving | self.tainted)) and not (
                names(target) & {"threadIdx.x"}
            )
            if not same:
                continue
            parent = one.parent
            there = pointer(target, self.known, self.pointers)
            if parent is None or parent.type != "expression_statement" or there is None:
                raise Unread("an atomic operation whose result is used")
            kind = self.kernel.parameters[there.parameter].type
            if (function, kind) not in _NEUTRAL or len(rest) != 1:
                raise Unread("an atomic operation of another kind")
            if self.team is Team.THREAD:
                raise Unread("atomics in a row of a thread's own")
            name = f"sum{len(self.items)}_{len(sums)}_"
            combined = ATOMIC[function]
            sums.append(Accumulator(name, kind, combined, own=True))
            edits[one.id] = gathering_into(name, combined, f"({kind})", rest[0])
            self.items.append(Uniform(f"{kind} {name} = {_NEUTRAL[function, kind]};"))
            self.stored.add(there.parameter)
            after.append(Once(f"{function}({self._text(target)}, {name});"))
        return sums, after
