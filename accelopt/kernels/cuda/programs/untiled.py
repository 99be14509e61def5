"""Products whose blocks share tiles already, as if each thread read all that it needs itself.

    __shared__ float a[T][T], b[T][T];
    for (int t = 0; t < (depth + T - 1) / T; ++t) {
      a[threadIdx.y][threadIdx.x] = t * T + threadIdx.x < depth ? left[row * depth + t * T + threadIdx.x] : 0;
      b[threadIdx.y][threadIdx.x] = t * T + threadIdx.y < depth ? right[(t * T + threadIdx.y) * n + col] : 0;
      __syncthreads();
      for (int k = 0; k < T; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
      __syncthreads();
    }

What a thread finds at a place of a tile, the thread of that place has read. With that thread's numbers in
the index this one can read it itself, and both loops are one: then other tiles can be made of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import place, pointers_of
from accelopt.kernels.cuda.programs.loops import head, is_sync, is_zero
from accelopt.kernels.cuda.programs.merged import STEP, MergedLoops
from accelopt.kernels.cuda.programs.quantities import Quantity, named, number, quantity
from accelopt.kernels.cuda.programs.syntax import (
    AS_FLOAT,
    SHORT_FLOATS,
    WHOLE,
    Kernel,
    Unread,
    assigned,
    bare,
    body_of,
    declared,
    field,
    joined,
    names,
    replaced,
    said,
    statements,
    tight,
    walk,
)

THREADS = ("threadIdx.x", "threadIdx.y")
_CONVERTED = re.compile(rf"{AS_FLOAT.format('@')}|@")

Pair = tuple[Quantity, Quantity]


def untiled(kernel: Kernel) -> Kernel:
    """The kernel without its tiles. Raises Unread for one that has none, or others."""
    return kernel._replace(body=body_of(_Untiler(kernel).text()))


class _Array(NamedTuple):
    """A shared array: the type of an element, and how many indices it takes."""

    type: str
    indices: int


class _Load(NamedTuple):
    """What each thread writes into a shared array: for which of its numbers each index stands, how far
    apart rows are where there is one index, which value, and on what conditions; 0 where one fails."""

    order: tuple[str, str]
    pitch: int
    value: Node
    conditions: tuple[Node, ...]
    known: Mapping[str, Quantity]


class _Place(NamedTuple):
    """An element of a shared array as it is named: by one index or by two."""

    array: str
    at: tuple[Quantity, ...]

    def pair(self, pitch: int, choice: Sequence[Quantity]) -> Pair:
        """Two indices out of `choice`. Raises Unread where it is made of others."""
        for one, other in product(choice, repeat=2):
            if self.at in ((one, other), (one.times(number(pitch)).plus(other),)):
                return one, other
        raise Unread("an element of another thread's")


class _Untiler:
    """Reads declarations, the loop over tiles, and what becomes of the sum."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        launch = kernel.launch
        self.block = dict(zip("xy", launch.block, strict=False))
        self.known = {f"blockDim.{a}": number(n) for a, n in zip("xyz", launch.block, strict=True)}
        self.pointers = pointers_of(kernel)
        self.moved = assigned(kernel.body)
        self.axes: dict[str, str] = {}
        self.arrays: dict[str, _Array] = {}
        self.within: set[str] = set()  # what the loop over tiles declares
        self.floats = {
            one.name for one in kernel.parameters.values() if one.type in ("float", "double")
        }
        self.values: dict[str, Node] = {}
        self.kept: list[str] = []
        self.sums: list[str] = []

    def text(self) -> str:
        """The body."""
        lines = statements(self.kernel.body)
        while lines and lines[0].type == "declaration":
            self._declaration(lines.pop(0))
        if len(lines) < 2 or lines[0].type != "for_statement" or set(self.axes) != {"x", "y"}:
            raise Unread("no loop over tiles")
        if len(self.arrays) != 2 or len(self.sums) != 1:
            raise Unread("no two tiles and a sum")
        guard, after = self._after(lines[1:])
        inside = "\n".join([*self.sums, self._loop(lines[0], guard), *map(said, after)])
        if guard:
            bounds = " && ".join(f"{self.axes[axis]} < {bound}" for axis, bound in guard.items())
            inside = f"if ({bounds}) {{\n{inside}\n}}"
        return "\n".join(["{", *self.kept, inside, "}"])

    def _declaration(self, line: Node) -> None:
        for one in declared(line):
            if one.shared:
                if len(one.lengths) not in (1, 2) or one.pointer:
                    raise Unread("a shared array of another form")
                self.arrays[one.name] = _Array(one.type, len(one.lengths))
                continue
            if one.pointer or one.lengths or one.value is None:
                raise Unread("a declaration of another kind")
            text = f"{one.type} {one.name} = {said(one.value)};"
            if one.name in self.moved:
                self.sums.append(text)
                continue
            if one.type not in WHOLE:
                raise Unread("a value that is no whole number")
            self.known[one.name] = quantity(one.value, self.known)
            self.values[one.name] = one.value
            self.kept.append(text)
            for axis in self.block:
                if self.known[one.name] == self._placed(axis):
                    self.axes.setdefault(axis, one.name)

    def _placed(self, axis: str) -> Quantity:
        """A thread's place along an axis."""
        block = named(f"blockIdx.{axis}").times(number(self.block[axis]))
        return block.plus(named(f"threadIdx.{axis}"))

    def _after(self, lines: list[Node]) -> tuple[dict[str, str], list[Node]]:
        """Bounds of the axes within which the sum is used, and the statements that use it."""
        if len(lines) != 1 or lines[0].type != "if_statement":
            return {}, lines
        if lines[0].child_by_field_name("alternative") is not None:
            raise Unread("two ways to store a sum")
        guard: dict[str, str] = {}
        for part in joined(bare(field(lines[0], "condition")), "&&"):
            at, bound = self._bounded(part, self.known)
            axis = next((a for a in self.axes if at == self._placed(a)), None)
            if axis is None or axis in guard:
                raise Unread("a guard of another kind")
            guard[axis] = bound
        return guard, statements(field(lines[0], "consequence"))

    def _bounded(self, part: Node, known: Mapping[str, Quantity]) -> tuple[Quantity, str]:
        """What stays below which bound, the same for all threads."""
        if part.type != "binary_expression" or field(part, "operator").type not in ("<", ">"):
            raise Unread("a condition of another kind")
        sides = field(part, "left"), field(part, "right")
        low, high = sides if field(part, "operator").type == "<" else sides[::-1]
        own = {*self.moved, *self.within, *self.floats}
        if any("Idx" in one for one in quantity(high, known).names) or names(high) & own:
            raise Unread("a bound that is not the same for all")
        return quantity(low, known), said(high)

    def _loop(self, loop: Node, guard: Mapping[str, str]) -> str:
        """One loop in the place of both."""
        outer = head(loop, self.known)
        known = {name: one for name, one in self.known.items() if name != outer.variable}
        loads, inner = self._parts(statements(field(loop, "body")), known)
        steps = head(inner, known)
        count = quantity(steps.high, known).number
        if steps.low != number(0) or outer.low != number(0) or steps.step != number(1):
            raise Unread("loops that do not begin with 0")
        if count is None or not 0 < count <= min(self.block.values()):
            raise Unread("tiles of other sizes than blocks")
        if outer.step not in (number(1), number(count)) or steps.variable == outer.variable:
            raise Unread("tiles that are not side by side")
        both = MergedLoops(steps.variable, outer, count, self.axes, self.block)
        bounds: set[str] = set()

        def read(node: Node) -> str | None:
            there = self._element(node, known)
            if there is None:
                return None
            load = loads[there.array]
            by = self._thread(load, there, steps.variable)
            bounds.update(self._bounds(load, by, both, guard))
            return self._value(load, self.arrays[there.array].type, by, both)

        body = bare(field(inner, "body"))
        if body is None or body.type != "assignment_expression":
            raise Unread("more than a sum")
        step, k = replaced(body, read), steps.variable
        shape = replaced(body, lambda one: "@" if self._element(one, known) else None)
        if bounds and not _is_sum_of_products(shape):
            raise Unread("steps behind the last one that may add something")
        if names(body_of(f"{{ {step}; }}")) & {*self.arrays, *self.within, outer.variable}:
            raise Unread("a tile that is used in another way")
        depth = both.depth(bounds, self._tiles(outer.high))
        return f"for ({steps.type} {k} = 0; {k} < {depth}; ++{k}) {step};"

    def _parts(
        self, lines: list[Node], known: dict[str, Quantity]
    ) -> tuple[dict[str, _Load], Node]:
        """What is loaded into which array, and the loop over a tile; `known` takes what lines declare."""
        marks = [is_sync(one) for one in lines]
        first = marks[:1] == [True]
        lines, marks = lines[first:], marks[first:]
        if marks[-2:] == [False, True]:
            lines, marks = lines[:-1], marks[:-1]
        elif not first:
            raise Unread("a tile that is written while it is read")
        if (
            marks.count(True) != 1
            or marks[-2:] != [True, False]
            or lines[-1].type != "for_statement"
        ):
            raise Unread("other barriers than behind the loads and behind the sum")
        loads: dict[str, _Load] = {}
        for line in lines[:-2]:
            if line.type == "declaration":
                self._within(line, known)
                continue
            array, load = self._load(line, known)
            if array in loads:
                raise Unread("a tile that is written twice")
            loads[array] = load
        if set(loads) != set(self.arrays):
            raise Unread("a tile that nobody writes")
        return loads, lines[-1]

    def _within(self, line: Node, known: dict[str, Quantity]) -> None:
        for one in declared(line):
            plain = one.type in WHOLE and not one.pointer and not one.lengths
            hides = one.name in self.known or one.name in self.kernel.parameters
            if one.value is None or not plain or hides or one.name in self.moved:
                raise Unread("a declaration of another kind")
            known[one.name] = quantity(one.value, known)
            self.within.add(one.name)

    def _load(self, line: Node, known: Mapping[str, Quantity]) -> tuple[str, _Load]:
        """A statement that writes an element of a tile."""
        conditions: list[Node] = []
        one = bare(line)
        if one is not None and one.type == "if_statement":
            conditions = joined(bare(field(one, "condition")), "&&")
            (other,) = field(one, "alternative").named_children
            otherwise, one = bare(other), bare(field(one, "consequence"))
            if otherwise is None or one is None or otherwise.type != "assignment_expression":
                raise Unread("a tile of another kind")
            if tight(field(otherwise, "left")) != tight(field(one, "left")):
                raise Unread("a condition on where a tile is written")
            _check_zero(field(otherwise, "right"))
        if one is None or one.type != "assignment_expression" or field(one, "operator").type != "=":
            raise Unread("a step over tiles of another kind")
        there, value = self._element(field(one, "left"), known), bare(field(one, "right"))
        if there is None or value is None:
            raise Unread("a step over tiles that does more than load them")
        if value.type == "conditional_expression":
            _check_zero(field(value, "alternative"))
            conditions += joined(bare(field(value, "condition")), "&&")
            value = bare(field(value, "consequence"))
        assert value is not None
        order, pitch = self._order(there)
        return there.array, _Load(order, pitch, value, tuple(conditions), dict(known))

    def _order(self, there: _Place) -> tuple[tuple[str, str], int]:
        """For which numbers of the thread the indices stand, and how far apart rows are."""
        for first, last in permutations(THREADS):
            threads = self.block[last[-1]]
            pitches = {times for _, times in there.at[0].terms} if len(there.at) == 1 else {0}
            for pitch in pitches:
                apart = pitch >= threads or len(there.at) == 2
                if apart and there.at in (
                    (named(first), named(last)),
                    (named(first).times(number(pitch)).plus(named(last)),),
                ):
                    return (first, last), pitch
        raise Unread("a place in a tile that is not its thread's own")

    def _element(self, node: Node | None, known: Mapping[str, Quantity]) -> _Place | None:
        """The element of a shared array that a node names; None where it names none."""
        at: list[Quantity] = []
        while node is not None and node.type == "subscript_expression":
            inside = field(node, "indices").named_children
            if len(inside) != 1:
                return None
            at.insert(0, quantity(inside[0], known))
            node = field(node, "argument")
        name = said(node)
        if name not in self.arrays or len(at) != self.arrays[name].indices:
            return None
        return _Place(name, tuple(at))

    def _thread(self, load: _Load, there: _Place, step: str) -> dict[str, Quantity]:
        """The numbers of the thread that has written what is found at a place."""
        pair = there.pair(load.pitch, [named(one) for one in (*THREADS, step)])
        for writes, reads in zip(load.order, pair, strict=True):
            own = next((one for one in THREADS if reads == named(one)), None)
            if own is not None and self.block[own[-1]] > self.block[writes[-1]]:
                raise Unread("an element that no thread has written")
        return dict(zip(load.order, pair, strict=True))

    def _bounds(
        self, load: _Load, by: Mapping[str, Quantity], both: MergedLoops, guard: Mapping[str, str]
    ) -> set[str]:
        """How far steps go by a load's conditions. Raises Unread where those say more than `guard`."""
        found = set()
        for part in load.conditions:
            low, bound = self._bounded(part, load.known)
            at = both.rewritten(low, by)
            if at == named(STEP):
                found.add(bound)
            elif not any(
                at == named(name) and bound.split() == guard.get(axis, "").split()
                for axis, name in self.axes.items()
            ):
                raise Unread("a condition that what is stored does not have")
        return found

    def _value(self, load: _Load, kind: str, by: Mapping[str, Quantity], both: MergedLoops) -> str:
        """What the thread `by` has loaded into an array of `kind`, read by this one."""
        found = [
            (one, at) for one in walk(load.value) if (at := place(one, load.known, self.pointers))
        ]
        if len(found) != 1:
            raise Unread("a tile of another kind")
        ((node, pointed),) = found
        shape = replaced(load.value, lambda one: "@" if one.id == node.id else None).replace(
            " ", ""
        )
        if not _CONVERTED.fullmatch(shape) or (shape != "@" and kind != "float"):
            raise Unread("a tile of computed values")
        own = self.kernel.parameters[pointed.parameter].type
        if shape == "@" and own != kind:
            if kind != "float" or own not in SHORT_FLOATS:
                raise Unread("a tile of another type than its matrix")
            shape = "(float)@"
        index = both.text(both.rewritten(pointed.offset, by))
        return shape.replace("@", f"{pointed.parameter}[{index}]")

    def _tiles(self, high: Node) -> str:
        """How far the loop over tiles goes, constants by their values."""
        while said(high) in self.values:
            high = self.values[said(high)]
        return replaced(high, self._number)

    def _number(self, node: Node) -> str | None:
        """A constant by its value."""
        of = (
            self.known.get(tight(node)) if node.type in ("identifier", "field_expression") else None
        )
        return None if of is None or of.number is None else str(of.number)


def _check_zero(node: Node) -> None:
    if not is_zero(tight(bare(node))):
        raise Unread("what is out of bounds is not 0")


def _is_sum_of_products(shape: str) -> bool:
    """Whether a step adds the product of two elements, which stand as @, to something."""
    text = re.sub(r"\s", "", shape)
    text = re.sub(AS_FLOAT.format("@"), "@", text)
    return bool(
        re.fullmatch(r"(\w+)(?:\+=@\*@|=\1\+@\*@|=@\*@\+\1|=(?:fmaf?|__fmaf_rn)\(@,@,\1\))", text)
    )
