"""What the tiles of a kernel make of its group: programs, dimensions of tiles, and walks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from accelopt.algorithm.contraction import Contraction
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Expression, Reduce
from accelopt.kernels.triton.emission.grid_of_segments import packing_of
from accelopt.kernels.triton.emission.groups import Group, Member
from accelopt.kernels.triton.emission.running import growth
from accelopt.kernels.triton.emission.schedule import Kernel

MOST_AGAIN = 4
"""Programs that may compute and store the same elements of a small result beside those of a large one."""
LEAST_OF_DOT = 16
"""Elements of each axis of an operand of `tl.dot`."""
NARROW = ("bfloat16", "float16")
"""Formats of operands that the tensor cores take at their full rate."""

Axes = tuple[Axis, ...]


class Tiles:
    """What a kernel's tiles make of its group's axes."""

    def __init__(self, group: Group, kernel: Kernel, stored: Collection[str] = ()) -> None:
        self.group, self.kernel = group, kernel
        self.walked = next((a for a in group.axes if a.name == kernel.walked), None)
        self.sizes = {a: kernel.size(a.name) for a in group.axes}
        for axis in group.reduced:
            if axis != self.walked:
                self.sizes[axis] = power_of_two(axis.extent)
        self.order = (*group.free, *(a for a in group.axes if a in group.reduced))
        self._several = tuple(a for a in self.order if self.sizes[a] > 1)
        self.grid = tuple(a for a in group.free if a.extent > self.sizes[a])
        found = packing_of(m for m in group.members if m.out in stored)
        fits = found is not None and {found.numbers, found.places} <= {*self.grid}
        self.packable = found if fits and found and self.sizes[found.numbers] == 1 else None
        self.packing = self.packable if kernel.packed else None

    def count(self, axis: Axis) -> int:
        """Tiles of an axis."""
        return -(-axis.extent // self.sizes[axis])

    @property
    def counts(self) -> dict[Axis, int]:
        """How many programs there are along each axis of the grid. Where those of segments are packed, they are
        along the axis of places."""
        found, packing = {axis: self.count(axis) for axis in self.grid}, self.packing
        if packing is not None:
            found[packing.numbers] = packing.beside
            found[packing.places] = packing.tiles(self.sizes[packing.places])
        return found

    @property
    def programs(self) -> int:
        """How many a launch has."""
        return math.prod(self.counts.values())

    def stores(self, member: Member) -> bool:
        """Whether programs may store a member's elements: each its own, or beside products a few the same ones, which
        all of them compute alike."""
        missing = [axis for axis in self.grid if axis not in member.definition.axes]
        products = any(self.product(own) is not None for own in self.group.members)
        return not missing or (products and math.prod(map(self.count, missing)) <= MOST_AGAIN)

    def dims(self, axes: Sequence[Axis] | frozenset[Axis]) -> Axes:
        """Those axes of which a program has more than one element at once, free ones first."""
        return tuple(a for a in self._several if a in axes)

    def product(self, member: Member) -> Contraction | None:
        """The matrix product of a member, where its tiles are ones for the tensor cores."""
        found = member.product
        if found is None:
            return None
        sides = [self.dims(axes) for axes in (found.rows, found.columns, found.contracted)]
        if self.dims(found.batch) or any(len(side) != 1 for side in sides):
            return None
        if any(self.sizes[side[0]] < LEAST_OF_DOT for side in sides):
            return None
        return found

    @cached_property
    def alike(self) -> dict[Axis, Index]:
        """The first of some axes in the place of the others: each program has all of their elements, and as many."""
        whole = [a for a in self.order if a not in self.grid and a != self.walked]
        first = {(a.extent, self.sizes[a]): a for a in reversed(whole)}
        pairs = ((a, first[a.extent, self.sizes[a]]) for a in whole if self.sizes[a] > 1)
        return {a: index_of(other) for a, other in pairs if other != a}

    @cached_property
    def passes(self) -> dict[str, int]:
        """The walk in which each member is known: one that does not reduce the walked axis at its end."""
        found: dict[str, int] = {}
        for member in self.group.members:
            found[member.out] = self._pass(member, found)
        return found

    def _pass(self, member: Member, known: Mapping[str, int]) -> int:
        before = [r.array for r in member.reads if r.array in known]
        if self.walked is None:
            return 0
        sums = self.reductions_behind(member)
        last = max((known[name] for name in sums), default=-1)
        if self.walked in member.reduced:
            now = {name for name in sums if known[name] == last}
            if now and self.growth(member, now) is not None:
                return last
            return last + 1
        if self.walked in member.every_axis:
            return last + 1
        return max([last, *(known[name] for name in before)], default=0)

    def growth(self, member: Member, running: set[str]) -> Expression | None:
        """What a sum is rescaled by when the arrays `running` change, which end with the same walk."""
        if member.definition.out in running or not isinstance(member.definition, Reduce):
            return None
        if member.definition.combiner != "add":
            return None
        names = {name for name in running if self._is_extreme(name)}
        direct = {r.array for r in member.reads}
        if names != running or not running <= direct or self._behind(member, running):
            return None
        return growth(member.definition.expression, running, self.walked)

    def _behind(self, member: Member, running: set[str]) -> bool:
        """Whether something between a member and running results is made of them."""
        for read in member.reads:
            other = self.group.member(read.array)
            if other is None or read.array in running:
                continue
            if self.reductions_behind(other) & running:
                return True
        return False

    def _is_extreme(self, name: str) -> bool:
        member = self.group.member(name)
        assert member is not None
        return isinstance(member.definition, Reduce) and member.definition.combiner == "maximum"

    def reductions_behind(self, member: Member) -> set[str]:
        """The reductions over the walked axis that a member is made of, but for what they are made of."""
        found: set[str] = set()
        for read in member.reads:
            other = self.group.member(read.array)
            if other is None or other is member:
                continue
            if self.walked in other.reduced:
                found.add(other.out)
            else:
                found |= self.reductions_behind(other)
        return found


def power_of_two(extent: int) -> int:
    """The next one."""
    return 1 << max(extent - 1, 0).bit_length()
