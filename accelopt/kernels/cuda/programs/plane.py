"""Kernels whose threads have a place of a plane each: both axes, their bounds, and what comes then."""

from __future__ import annotations

import re
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import Accesses, accesses, check_calls, pointers_of
from accelopt.kernels.cuda.programs.quantities import Quantity, named, number, quantity
from accelopt.kernels.cuda.programs.syntax import (
    SIZES,
    Kernel,
    Unread,
    assigned,
    bare,
    declared,
    field,
    joined,
    names,
    said,
    statements,
)


class Axis(NamedTuple):
    """A thread's place along one axis: its variable, the bound that it stays below as an expression, and
    how many places the launch covers."""

    name: str
    type: str
    bound: str
    covered: int
    along: str


class PlaneReader:
    """Reads the statements of a kernel that say where its thread is, up to those that do its work."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        launch = kernel.launch
        self.known = {f"blockDim.{a}": number(n) for a, n in zip("xyz", launch.block, strict=True)}
        self.moved = assigned(kernel.body)
        self.axes: dict[str, Axis] = {}
        self.before: list[Node] = []
        self.parts: set[str] = set()  # what is known, and not written
        check_calls(kernel, kernel.body)
        text = re.sub(r"\b__\w+2\w+\b", "", said(kernel.body))
        if re.search(r"\w_\b|__shared__|__sync|__shfl|atomic|gridDim", text):
            raise Unread("more than a thread's own work")

    def opening(self) -> list[Node]:
        """Read where the thread is; the statements that follow. Declarations that only name values are
        in `before`."""
        lines = statements(self.kernel.body)
        while lines:
            line = lines[0]
            if line.type == "declaration" and declared(line)[0].name not in self.moved:
                self._declaration(line)
            elif line.type == "if_statement" and line.child_by_field_name("alternative") is None:
                then = bare(field(line, "consequence"))
                away = then is not None and then.type == "return_statement"
                if not away and len(lines) > 1:
                    raise Unread("what stands behind a guard")
                self._guard(field(line, "condition"), away)
                if not away:
                    lines = [line, *statements(field(line, "consequence"))]
            else:
                break
            lines = lines[1:]
        if set(self.axes) != {"x", "y"}:
            raise Unread("no plane of threads")
        return lines

    def accesses(self, nodes: list[Node]) -> Accesses:
        """What statements read and write."""
        return accesses(nodes, self.known, pointers_of(self.kernel), frozenset())

    def _declaration(self, line: Node) -> None:
        (one,) = declared(line)
        if one.shared or one.lengths or one.pointer or one.value is None:
            raise Unread("a declaration of another kind")
        if one.type not in SIZES and one.type != "auto":
            raise Unread("a value before a sum")
        value = quantity(one.value, self.known)
        for axis, block, grid in zip(
            "xyz", self.kernel.launch.block, self.kernel.launch.grid, strict=True
        ):
            if value == named(f"blockIdx.{axis}").times(number(block)).plus(
                named(f"threadIdx.{axis}")
            ):
                if axis in self.axes or axis == "z":
                    raise Unread("an axis twice")
                self.axes[axis] = Axis(one.name, one.type, str(block * grid), block * grid, axis)
                self.known[one.name] = named(one.name)
                return
        self.known[one.name] = value
        if any(part.startswith(("threadIdx", "blockIdx.x", "blockIdx.y")) for part in value.names):
            if not re.search(r"\b[A-Za-z_]\w*\b", said(one.value)):
                raise Unread("a thread's place of another kind")
            if "threadIdx" in said(one.value) or "blockIdx" in said(one.value):
                self.parts.add(one.name)  # of a place that is put together later
                return
        self.before.append(line)

    def _guard(self, condition: Node, away: bool) -> None:
        parts = joined(bare(condition), "||" if away else "&&")
        for part in parts:
            if part.type != "binary_expression":
                raise Unread("a guard of another kind")
            left, right = field(part, "left"), field(part, "right")
            sign = field(part, "operator").type
            axes = {axis.name: key for key, axis in self.axes.items()}
            if said(bare(right)) in axes:
                left, right, sign = right, left, {"<": ">", ">": "<", "<=": ">="}.get(sign, sign)
            key = axes.get(said(bare(left)))
            if key is None or sign != (">=" if away else "<") or names(right) & set(axes):
                raise Unread("a guard of another kind")
            if any(one in axes or knows_thread(one) for one in quantity(right, self.known).names):
                raise Unread("a guard of another kind")
            self.axes[key] = self.axes[key]._replace(bound=said(right))


def knows_thread(name: str) -> bool:
    """Whether a name of a built-in variable says where a thread is in the plane."""
    return name.startswith("threadIdx") or name in ("blockIdx.x", "blockIdx.y")


def times_of(index: Quantity, name: str) -> Quantity | None:
    """By what a variable is multiplied in an index; None where it is no plain factor."""
    terms = []
    for product_, times in index.terms:
        mine = [one for one in product_ if one.text == name]
        if len(mine) > 1 or (not mine and any(name in one.names for one in product_)):
            return None
        if mine:
            terms.append((tuple(one for one in product_ if one.text != name), times))
    return Quantity(tuple(terms))
