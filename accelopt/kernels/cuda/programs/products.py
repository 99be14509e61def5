"""Kernels in which each thread of a plane walks along a sum of its own: naive matrix products.

    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && col < n) {
      float sum = 0;
      for (int k = 0; k < depth; ++k) sum += a[row * depth + k] * b[k * n + col];
      c[row * n + col] = sum;
    }

What is added, and what becomes of the sum, may be anything that one element of each operand is enough for.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import Access, accesses, pointers_of
from accelopt.kernels.cuda.programs.loops import gathered, head
from accelopt.kernels.cuda.programs.plane import Axis, PlaneReader, knows_thread, times_of
from accelopt.kernels.cuda.programs.quantities import number, quantity
from accelopt.kernels.cuda.programs.syntax import (
    AS_FLOAT,
    Declared,
    Kernel,
    Unread,
    assigned,
    bare,
    declared,
    field,
    names,
    replaced,
    said,
    tight,
    walk,
)
from accelopt.kernels.cuda.programs.untiled import untiled


class Operand(NamedTuple):
    """An element that one step of the sum needs: of which parameter, at which index, along which axis it
    changes, and whether its neighbours in memory are those of the next step."""

    access: Access
    type: str
    size: int
    along_steps: bool


class Product(NamedTuple):
    """A kernel as such sums: `row` and `column` are the axes of the operands `left` and `right`; `step` is
    the loop's variable; the texts stand for one thread's own values."""

    kernel: Kernel
    row: Axis
    column: Axis
    left: Operand
    right: Operand
    step: Declared
    depth: str
    sum: Declared
    before: tuple[Node, ...]
    body: Node
    after: tuple[Node, ...]

    @property
    def multiplies(self) -> bool:
        """Whether a step adds the product of both operands, each by itself or made a float."""
        inner = bare(self.body)
        if inner is None or inner.type != "assignment_expression" or self.sum.type != "float":
            return False
        ids = {self.left.access.node.id: "l", self.right.access.node.id: "r"}
        text = replaced(inner, lambda node: ids.get(node.id)).replace(" ", "")
        left, right = AS_FLOAT.format("l"), AS_FLOAT.format("r")
        name = re.escape(self.sum.name)
        both = rf"(?:{left}\*{right}|{right}\*{left})"
        return bool(
            re.fullmatch(
                rf"{name}(\+={both}|={name}\+{both}|=fmaf\((?:{left},{right}|{right},{left}),{name}\))",
                text,
            )
        )


def product(kernel: Kernel) -> Product:
    """The kernel as sums of a plane of threads, whose blocks may share tiles. Raises Unread for any other."""
    return _Reader(untiled(kernel) if "__shared__" in said(kernel.body) else kernel).product()


class _Reader(PlaneReader):
    def product(self) -> Product:
        lines = self.opening()
        if len(lines) < 2:
            raise Unread("no sum")
        return self._sum(lines[0], lines[1:])

    def _sum(self, line: Node, rest: list[Node]) -> Product:
        """`float sum = 0; for (...) ...; after`."""
        if line.type != "declaration" or not rest or rest[0].type != "for_statement":
            raise Unread("no sum")
        (sum_,) = declared(line)
        loop, after = rest[0], rest[1:]
        if sum_.value is None or sum_.pointer or sum_.lengths or set(self.axes) != {"x", "y"}:
            raise Unread("no sum of a plane")
        found = head(loop, self.known)
        body = field(loop, "body")
        moving = {*(axis.name for axis in self.axes.values()), found.variable, *self.moved}
        if found.low != number(0) or found.step != number(1):
            raise Unread("a sum of other steps")
        depth = quantity(found.high, self.known).names
        if depth & moving or any(map(knows_thread, depth)) or names(found.high) & self.parts:
            raise Unread("sums of several lengths")
        if assigned(loop) - self._inside(loop) - {found.variable} != {sum_.name}:
            raise Unread("more than one sum")
        if not any((g := gathered(one)) and g.name == sum_.name for one in walk(body)):
            raise Unread("what is no sum")
        if any(one.type in ("for_statement", "while_statement", "if_statement", "break_statement",
                            "continue_statement", "return_statement") for one in walk(body)):  # fmt: skip
            raise Unread("a sum with conditions")
        operands = self._operands(body, found.variable)
        self._after(after, sum_, operands, line)
        left, right = operands
        axes = {axis.name: axis for axis in self.axes.values()}
        column = next(name for name in axes if name in right.access.at.names)
        row = next(name for name in axes if name != column)
        return Product(
            self.kernel, axes[row], axes[column], left, right,
            Declared(found.variable, found.type, False, False, (), None),
            said(found.high), sum_, tuple(self.before), body, tuple(after),
        )  # fmt: skip

    def _inside(self, node: Node) -> set[str]:
        return {
            made.name for one in walk(node) if one.type == "declaration" for made in declared(one)
        }

    def _operands(self, body: Node, step: str) -> tuple[Operand, Operand]:
        """The two, that of the thread's row first: the axis along which what is stored is apart."""
        known = {name: one for name, one in self.known.items() if name != step}
        found = accesses([body], known, pointers_of(self.kernel), frozenset())
        if len(found.found) != 2 or found.escaped or any(one.writes for one in found.found):
            raise Unread("no two operands")
        x, y = self.axes["x"].name, self.axes["y"].name
        sides: dict[str, Operand] = {}
        inner = self._inside(body) | {"threadIdx.x", "threadIdx.y", "blockIdx.x", "blockIdx.y"}
        for one in found.found:
            mine = [axis for axis in (x, y) if axis in one.at.names]
            if len(mine) != 1 or step not in one.at.names or one.at.names & inner:
                raise Unread("an operand of another kind")
            if mine[0] in sides:
                raise Unread("two operands of one axis")
            apart = times_of(one.at, step), times_of(one.at, mine[0])
            if None in apart or number(1) not in apart:
                raise Unread("an operand without neighbours")
            kind = self.kernel.parameters[one.pointer].type
            sides[mine[0]] = Operand(
                one, kind, self.kernel.size(one.pointer), apart[0] == number(1)
            )
        if len({operand.access.pointer for operand in sides.values()}) != 2:
            raise Unread("one matrix twice")
        names_there = names(body) & {x, y, step}
        inside = {name for operand in sides.values() for name in names(operand.access.node)}
        if names_there - inside or self._outside(body, sides, {x, y, step}):
            raise Unread("a step that knows its place")
        return sides[y], sides[x]

    def _outside(self, body: Node, sides: dict[str, Operand], places: set[str]) -> bool:
        """Whether a step names its place elsewhere than in the operands."""
        ids = {operand.access.node.id for operand in sides.values()}
        waiting = [body]
        while waiting:
            one = waiting.pop()
            if one.id in ids:
                continue
            if one.type == "identifier":
                known = self.known.get(said(one), number(0))
                if said(one) in places | self.parts or any(map(knows_thread, known.names)):
                    return True
            if one.type == "field_expression" and knows_thread(tight(one)):
                return True
            waiting += one.children
        return False

    def _after(
        self, after: list[Node], sum_: Declared, operands: tuple[Operand, Operand], line: Node
    ) -> None:
        """What becomes of a sum: it must be stored, and nobody may read what others store."""
        read = {one.access.pointer for one in operands}
        first, last = self.accesses([*self.before, line]), self.accesses(after)
        if first.escaped or last.escaped or first.atomics or last.atomics:
            raise Unread("pointers that go elsewhere")
        writes = {one.pointer for one in last.found if one.writes}
        others = {one.pointer for one in (*first.found, *last.found) if not one.writes}
        places = {one.pointer: {other.at for other in (*first.found, *last.found)
                                if other.pointer == one.pointer} for one in last.found}  # fmt: skip
        if not writes or writes & read or any(one.writes for one in first.found):
            raise Unread("a sum that is not stored")
        if any(len(places[name]) != 1 for name in writes & others):
            raise Unread("sums that read what others store")
        text = " ".join(map(said, [line, *after, *self.before]))
        if "threadIdx" in text or re.search(r"blockIdx\s*\.\s*[xy]", text) or "return" in text:
            raise Unread("sums that know their thread")
        if any(names(one) & self.parts for one in (line, *after, *self.before)):
            raise Unread("sums that know their thread")
