"""Definitions that one kernel computes, over axes that they share.

Lifting names axes by their place in each definition. Here two axes are one where a definition reads what
another one defines, or both read the same elements of an input: `x[100*m + k]` and `x[l]` make one axis `l` the
pair of `m` and `k`. Where each definition is computed then says which elements the others may take from
registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import Contraction
from accelopt.algorithm.index import ZERO, Axis, Floor, Index, element_number, index_of
from accelopt.kernels.triton.emission.scattering import Scatter, scattered
from accelopt.kernels.triton.emission.scattering import moved as moved_scatter
from accelopt.kernels.triton.emission.simplifying import product_in

Substitution = Mapping[Axis, Index]


@dataclass(frozen=True)
class Member:
    """A definition over the axes of its group; `place` are the indices of its elements in its array."""

    definition: ir.Definition
    place: tuple[Index, ...]
    scatter: Scatter | None = None

    @property
    def out(self) -> str:
        """The array that it defines."""
        return self.definition.out

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The axes that it reduces."""
        return self.definition.reduced if isinstance(self.definition, ir.Reduce) else ()

    @cached_property
    def product(self) -> Contraction | None:
        """The matrix product that it is."""
        return product_in(self.definition)

    @cached_property
    def every_axis(self) -> frozenset[Axis]:
        """Every axis that it has or depends on."""
        own = (axis for e in self._expressions for axis in ir.axes_of(e))
        return frozenset((*own, *self.axes))

    @property
    def _expressions(self) -> tuple[ir.Expression, ...]:
        """What is computed for it, with where it is stored."""
        found = ir.expressions_of(self.definition)
        return found if self.scatter is None else (*found, self.scatter.number, *self.scatter.tests)

    @cached_property
    def parts(self) -> list[tuple[ir.Expression, frozenset[Axis]]]:
        """Everything that is computed of an element, or of an operand where it is a matrix product, and the
        axes that it depends on."""
        product = self.product
        whole = ir.expressions_of(self.definition)
        if product is not None:
            whole = (product.left, product.right, product.scale)
        return [(part, ir.axes_of(part)) for expression in whole for part in ir.walk(expression)]

    @cached_property
    def reads(self) -> list[ir.Read]:
        """What it reads."""
        parts = (part for e in self._expressions for part in ir.walk(e))
        return [part for part in parts if isinstance(part, ir.Read)]

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """All of its axes: those of its elements in the order of its array, then those that it reduces."""
        return (*self.definition.axes, *self.reduced)

    def moved(self, axes: Substitution) -> Member:
        """With indices in the place of axes."""
        if not axes:
            return self
        made = ir.with_expressions(
            self.definition,
            [ir.substituted(e, axes, {}) for e in ir.expressions_of(self.definition)],
        )
        place = tuple(index.substitute(axes) for index in self.place)
        made = replace(made, axes=_parts(self.definition.axes, axes))
        if isinstance(made, ir.Reduce):
            made = replace(made, reduced=_parts(made.reduced, axes))
        if isinstance(made, ir.Scan) and made.along in axes:
            (along,) = axes[made.along].axes
            made = replace(made, along=along)
        return Member(made, place, self.scatter and moved_scatter(self.scatter, axes))


def _parts(axes: Iterable[Axis], moved: Substitution) -> tuple[Axis, ...]:
    """The axes that others are made of, the slowest first."""
    found: list[Axis] = []
    for axis in axes:
        found += reversed(digits(moved[axis]) or ()) if axis in moved else [axis]
    return tuple(found)


def member_of(definition: ir.Definition) -> Member:
    """A definition alone: axes of one element are 0."""
    place = tuple(index_of(a) if a.extent > 1 else ZERO for a in definition.axes)
    scatter: Scatter | None = None
    if (found := scattered(definition)) is not None:
        definition, scatter, axis = found
        place = tuple(index_of(scatter.axis) if p == index_of(axis) else p for p in place)
    axes = tuple(a for a in definition.axes if a.extent > 1)
    return Member(replace(definition, axes=axes), place, scatter)


def digits(index: Index) -> list[Axis] | None:
    """The axes whose digits an index counts, the fastest first; None where it is no such count."""
    if index.constant or not index.is_affine:
        return None
    below, found = 1, list[Axis]()
    for term, factor in sorted(index.terms, key=lambda pair: pair[1]):
        if factor != below or isinstance(term, Floor):
            return None
        found.append(term)
        below *= term.extent
    return found


@dataclass(frozen=True)
class Group:
    """Members in an order in which they can be computed."""

    members: tuple[Member, ...]

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Every axis."""
        return tuple(dict.fromkeys(axis for member in self.members for axis in member.axes))

    @cached_property
    def reduced(self) -> frozenset[Axis]:
        """The axes that some member reduces or scans along."""
        along = {m.definition.along for m in self.members if isinstance(m.definition, ir.Scan)}
        return frozenset({axis for member in self.members for axis in member.reduced} | along)

    @cached_property
    def free(self) -> tuple[Axis, ...]:
        """The axes that no member reduces: programs can have parts of them."""
        return tuple(axis for axis in self.axes if axis not in self.reduced)

    def member(self, name: str) -> Member | None:
        """What defines an array, where this group does."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.out: member for member in reversed(self.members)}


def flat(read: ir.Read, arrays: Mapping[str, ir.Array]) -> Index:
    """The address of an element, in elements."""
    return element_number(read.indices, arrays[read.array].shape)


class _Apart(Exception):
    """Two indices are not the same one in any naming of their axes."""


class _Union:
    """Two members' axes while they are made the same: `left` and `right` say what replaces the axes of the
    group and of the definition."""

    def __init__(self) -> None:
        self.left: dict[Axis, Index] = {}
        self.right: dict[Axis, Index] = {}

    def copy(self) -> _Union:
        made = _Union()
        made.left, made.right = dict(self.left), dict(self.right)
        return made

    def unify(self, left: Index, right: Index) -> None:
        """Makes two indices the same. Raises _Apart."""
        fast, other = digits(left.substitute(self.left)), digits(right.substitute(self.right))
        if fast is None or other is None:
            if left.substitute(self.left) == right.substitute(self.right):
                return
            raise _Apart
        ours, theirs = fast[::-1], other[::-1]  # the fastest is popped first
        while ours and theirs:
            a, b = ours.pop(), theirs.pop()
            if a == b:
                continue
            if not b.name.startswith("'"):  # it is an axis of the group already
                raise _Apart
            if a.extent == b.extent:
                self._put(self.right, b, index_of(a))
            elif a.extent > b.extent and a.extent % b.extent == 0:
                high, low = _cut(a, b.extent)
                self._put(self.left, a, index_of(high) * low.extent + index_of(low))
                self._put(self.right, a, index_of(high) * low.extent + index_of(low))
                self._put(self.right, b, index_of(low))
                ours.append(high)
            elif b.extent > a.extent and b.extent % a.extent == 0:
                high = Axis(f"{b.name}^", b.extent // a.extent)
                self._put(self.right, b, index_of(high) * a.extent + index_of(a))
                theirs.append(high)
            else:
                raise _Apart
        if ours or theirs:
            raise _Apart

    @staticmethod
    def _put(side: dict[Axis, Index], axis: Axis, index: Index) -> None:
        for known in side:
            side[known] = side[known].substitute({axis: index})
        side[axis] = index


def _cut(axis: Axis, size: int) -> tuple[Axis, Axis]:
    return Axis(f"{axis.name}1", axis.extent // size), Axis(f"{axis.name}0", size)


def with_member(
    group: Group, added: Member, arrays: Mapping[str, ir.Array], reader: Member | None = None
) -> Group | None:
    """The group with a member more; None where the member needs elements of it that another program or a
    later part of a loop computes. With a `reader` of both its axes are those of the elements that are read
    beside the group's."""
    names = {axis: index_of(Axis(f"'{axis.name}", axis.extent)) for axis in added.axes}
    apart = added.moved(names)
    union = _Union()
    if reader is not None:
        behind = with_member(group, reader, arrays)
        if behind is None:
            return None
        group = Group(behind.members[:-1])
        together = [read for read in behind.members[-1].reads if read.array == added.out]
    try:
        for read in together if reader is not None else ():
            for ours, theirs in zip(read.indices, apart.place, strict=True):
                union.unify(ours, theirs)
        for read in apart.reads:
            member = group.member(read.array)
            if member is not None and member.scatter is not None:
                return None
            for ours, theirs in zip(member.place, read.indices, strict=True) if member else ():
                union.unify(ours, theirs)
    except _Apart:
        return None
    held = [r for m in group.members for r in m.reads]
    held += [ir.Read(m.out, m.place) for m in group.members]
    known = [r for r in dict.fromkeys(held) if not _looked_up(flat(r, arrays))]
    known.sort(key=lambda read: -len(ir.axes_of(read)))
    for read in sorted(apart.reads, key=lambda r: -len(ir.axes_of(r))):
        if _looked_up(flat(read, arrays)):
            continue
        for other in known:
            trial = _same_element(union, other, read, arrays) if other.array == read.array else None
            if trial is not None and _distinct(apart, trial.right):
                union = trial
                break
    if not union.right and not _by_extents(group, apart, union):
        return None
    if not _distinct(apart, union.right):
        return None
    members = [member.moved(union.left) for member in group.members]
    made = _named(apart.moved(_resolved(union.right, apart)), members)
    result = Group((*members, made))
    for read in made.reads:
        own = result.member(read.array)
        if own is not None and own is not made and own.place != read.indices:
            return None
    return result


def _same_element(
    union: _Union, ours: ir.Read, theirs: ir.Read, arrays: Mapping[str, ir.Array]
) -> _Union | None:
    """Two reads of an array made the same by their addresses, or dimension by dimension where an axis is longer than
    its dimension."""
    for pairs in (
        [(flat(ours, arrays), flat(theirs, arrays))],
        zip(ours.indices, theirs.indices, strict=True),
    ):
        trial = union.copy()
        try:
            for left, right in pairs:
                trial.unify(left, right)
        except _Apart:
            continue
        return trial
    return None


def together(
    first: Group, members: Sequence[Member], arrays: Mapping[str, ir.Array]
) -> Group | None:
    """A group with members more, those later that share nothing with the first ones alone. Where that fails, members
    that share nothing are over the axes by which a later one reads them beside the group's."""
    for by_readers in (False, True):
        group: Group | None = first
        waiting = list(members)
        while waiting and group is not None:
            missing = {member.out for member in waiting}
            made: Group | None = None
            for member in waiting:
                if missing & {read.array for read in member.reads}:
                    continue
                own = {m.out for m in group.members}
                readers = [m for m in waiting if by_readers and _reads_both(m, member.out, own)]
                made = with_member(group, member, arrays, *readers[:1])
                if made is not None:
                    waiting.remove(member)
                    break
            group = made
        if group is not None:
            return group
    return None


def _reads_both(reader: Member, name: str, own: set[str]) -> bool:
    read = {read.array for read in reader.reads}
    return name in read and bool(own & read)


def _by_extents(group: Group, member: Member, union: _Union) -> bool:
    """Makes the axes of a definition that shares nothing with a group those of it that are as long and
    reduced alike."""
    ours = list(group.axes)
    for axis in member.axes:
        reduced = axis in member.reduced
        for other in ours:
            if other.extent == axis.extent and (other in group.reduced) == reduced:
                union.unify(index_of(other), index_of(axis))
                ours.remove(other)
                break
        else:
            return False
    return True


def _looked_up(index: Index) -> bool:
    """Whether an element is known by a number that is read: its axis is no axis of a definition."""
    return any(axis.name.startswith("@") for axis in index.axes)


def _resolved(right: Substitution, member: Member) -> dict[Axis, Index]:
    return {axis: right[axis] for axis in member.axes if axis in right}


def _distinct(member: Member, right: Substitution) -> bool:
    """Whether no two axes of a definition become one."""
    found = [axis for own in member.axes for axis in (right[own].axes if own in right else (own,))]
    return len(found) == len(set(found))


def _named(member: Member, others: Sequence[Member]) -> Member:
    """With names of its own for the axes that the group does not have."""
    taken = {axis.name for other in others for axis in other.axes}
    moved: dict[Axis, Index] = {}
    for axis in member.axes:
        if axis.name.startswith("'"):
            bare = axis.name.strip("'^")
            number = next(n for n in range(99) if (f"{bare}{n or ''}") not in taken)
            name = f"{bare}{number or ''}"
            taken.add(name)
            moved[axis] = index_of(Axis(name, axis.extent))
    return member.moved(moved)


def joined(group: Group) -> Group:
    """The group with one axis in the place of several that every member treats alike: rows of a product
    that lie in different arrays' axes, all axes of what is computed element by element."""
    roles: dict[Axis, tuple[object, ...]] = {}
    for axis in group.axes:
        roles[axis] = tuple(_role(member, axis) for member in group.members)
    families: dict[tuple[object, ...], list[Axis]] = {}
    for axis in group.axes:
        families.setdefault(roles[axis], []).append(axis)
    along = {m.definition.along for m in group.members if isinstance(m.definition, ir.Scan)}
    moved: dict[Axis, Index] = {}
    for axes in families.values():
        if len(axes) < 2 or along & set(axes):
            continue
        whole = Axis("_".join(a.name for a in axes), math.prod(a.extent for a in axes))
        step = whole.extent
        for axis in axes:
            step //= axis.extent
            moved[axis] = index_of(whole) // step % axis.extent
    if moved:
        group = Group(tuple(_joined(member, moved) for member in group.members))
    return _looked_up_alike(group)


def _looked_up_alike(group: Group) -> Group:
    """The group with one axis for the numbers of all lookups of the same place: equal elements are equal expressions."""
    names: dict[tuple[ir.Expression, int], Axis] = {}
    done: dict[ir.Expression, ir.Expression] = {}

    def put(expression: ir.Expression) -> ir.Expression:
        if expression in done:
            return done[expression]
        made = expression
        if isinstance(expression, ir.Indirect):
            at = put(expression.at)
            place = (at, expression.axis.extent)
            axis = names.setdefault(place, Axis(f"@of{len(names)}", expression.axis.extent))
            element = ir.substituted(expression.element, {expression.axis: index_of(axis)}, {})
            made = ir.Indirect(axis, at, put(element))
        else:
            made = ir.with_parts(expression, map(put, ir.parts_of(expression)))
        done[expression] = made
        return made

    found = []
    for member in group.members:
        expressions = ir.expressions_of(member.definition)
        if any(isinstance(part, ir.Indirect) for e in expressions for part in ir.walk(e)):
            made = ir.with_expressions(member.definition, map(put, expressions))
            member = replace(member, definition=made)
        found.append(member)
    return Group(tuple(found))


def _joined(member: Member, moved: Substitution) -> Member:
    definition = member.definition
    made = ir.with_expressions(
        definition, [ir.substituted(e, moved, {}) for e in ir.expressions_of(definition)]
    )

    def whole(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(dict.fromkeys(next(iter(moved[a].axes)) if a in moved else a for a in axes))

    made = replace(made, axes=whole(definition.axes))
    if isinstance(made, ir.Reduce):
        made = replace(made, reduced=whole(made.reduced))
    place = tuple(index.substitute(moved) for index in member.place)
    return Member(made, place, member.scatter and moved_scatter(member.scatter, moved))


def _role(member: Member, axis: Axis) -> object:
    definition, found = member.definition, member.product
    if found is not None:
        sides = (found.batch, found.rows, found.columns, found.contracted)
        return next((n for n, axes in enumerate(sides) if axis in axes), None)
    if isinstance(definition, ir.Map):
        return axis in definition.axes
    return axis in definition.axes, axis in member.reduced


def arrays_of(algorithm: ir.Algorithm) -> dict[str, ir.Array]:
    """Every array: inputs and results as they are, what lies between in fp32."""
    found = {array.name: array for array in algorithm.inputs}
    for definition in algorithm.definitions:
        shape = tuple(axis.extent for axis in definition.axes)
        found[definition.out] = ir.Array(definition.out, shape, "float32", shape)
    for array in algorithm.outputs:
        shape = found[array.name].shape
        found[array.name] = ir.Array(array.name, shape, array.dtype, array.given)
    return found


def needs(group: Group) -> set[str]:
    """The arrays that a group reads and does not define."""
    own = {member.out for member in group.members}
    return {read.array for m in group.members for read in m.reads} - own
