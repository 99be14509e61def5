"""What each name of a Triton kernel holds: along which axes, and whether it had to be loaded."""

from __future__ import annotations

import ast
from typing import NamedTuple

from accelopt.kernels.triton.moves.lanes import ELEMENTWISE, NUMBERS, REDUCTIONS
from accelopt.kernels.triton.moves.source import called

ONE = "1"
"""The extent of an axis that `x[:, None]` adds."""


class NotWritten(Exception):
    """The kernel, or a part of it, has no form in Gluon that is known here."""


class Value(NamedTuple):
    """The extents of a value's axes, as the kernel writes them, and whether it is `found`: made of
    tiles or vectors that were loaded or multiplied, so that it is not made anew elsewhere."""

    axes: tuple[str, ...]
    found: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The axes along which it is longer than one."""
        return tuple(axis for axis in self.axes if axis != ONE)


NUMBER = Value(())


class Shapes:
    """The values of a kernel's names, until nothing new is found; raises NotWritten."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.of_names: dict[str, Value] = {}
        while self._learn(node):
            pass

    def _learn(self, node: ast.FunctionDef) -> bool:
        before = dict(self.of_names)
        for statement in ast.walk(node):
            if isinstance(statement, ast.Assign):
                if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
                    raise NotWritten(ast.unparse(statement))
                self._store(statement.targets[0].id, self.of(statement.value))
            elif isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
                self._store(statement.target.id, NUMBER)
            elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
                raise NotWritten(ast.unparse(statement))
        return before != self.of_names

    def _store(self, name: str, value: Value) -> None:
        old = self.of_names.get(name, value)
        together = _broadcast([old, value])
        if together is None:
            raise NotWritten(f"{name} has the axes {old.axes} and {value.axes}")
        self.of_names[name] = together

    def of(self, node: ast.expr) -> Value:
        """The value of an expression."""
        if isinstance(node, ast.Name):
            return self.of_names.get(node.id, NUMBER)
        if isinstance(node, ast.Attribute) and node.attr != "dtype" and self._has_axes(node.value):
            raise NotWritten(ast.unparse(node))
        if isinstance(node, (ast.Constant, ast.Attribute)):
            return NUMBER
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand)
        if isinstance(node, ast.BinOp):
            return self._together(node.left, node.right)
        if isinstance(node, ast.Compare):
            return self._together(node.left, *node.comparators)
        if isinstance(node, ast.BoolOp):
            return self._together(*node.values)
        if isinstance(node, ast.IfExp) and not self.of(node.test).axes:
            return self._together(node.body, node.orelse)
        if isinstance(node, ast.Subscript):
            return self._line(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise NotWritten(ast.unparse(node))

    def _has_axes(self, node: ast.expr) -> bool:
        """Whether an expression, perhaps one that has no form here, is made of vectors or tiles."""
        return any(isinstance(n, ast.Name) and self.of(n).axes for n in ast.walk(node))

    def _together(self, *nodes: ast.expr) -> Value:
        together = _broadcast([self.of(node) for node in nodes])
        if together is None:
            raise NotWritten(" beside ".join(ast.unparse(node) for node in nodes))
        return together

    def _line(self, node: ast.Subscript) -> Value:
        inner = self.of(node.value)
        if len(inner.axes) != 1:
            raise NotWritten(ast.unparse(node))
        axes = (inner.axes[0], ONE) if new_axis(node) == 1 else (ONE, inner.axes[0])
        return Value(axes, inner.found)

    def _call(self, node: ast.Call) -> Value:
        name = called(node)
        if name.startswith("tl.") and name not in NUMBERS and not node.args:
            raise NotWritten(ast.unparse(node))
        if name == "tl.arange":
            if len(node.args) != 2 or ast.unparse(node.args[0]) != "0":
                raise NotWritten(ast.unparse(node))
            return Value((ast.unparse(node.args[1]),))
        if name in ("tl.zeros", "tl.full"):
            shape = node.args[0]
            if not isinstance(shape, (ast.List, ast.Tuple)):
                raise NotWritten(ast.unparse(node))
            return Value(tuple(ast.unparse(extent) for extent in shape.elts))
        if name == "tl.load":
            return Value(self.of(node.args[0]).axes, found=True)
        if name == "tl.dot" and len(node.args) >= 2:
            left, right = self.of(node.args[0]), self.of(node.args[1])
            if len(left.axes) == len(right.axes) == 2:
                return Value((left.axes[0], right.axes[1]), found=True)
        if name == "tl.trans" and len(node.args) == 1:
            inner = self.of(node.args[0])
            return Value(inner.axes[::-1], inner.found)
        if name in REDUCTIONS:
            return self._reduced(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            return self.of(node.func.value)
        if name in ELEMENTWISE and not node.keywords:
            return self._together(*node.args)
        if name in NUMBERS and not any(self.of(argument).axes for argument in node.args):
            return NUMBER
        raise NotWritten(ast.unparse(node))

    def _reduced(self, node: ast.Call) -> Value:
        inner, axis = self.of(node.args[0]), reduced_axis(node)
        kept = tuple(extent for place, extent in enumerate(inner.axes) if place != axis)
        return Value(kept, inner.found)


def _broadcast(values: list[Value]) -> Value | None:
    """What values give together; None where their axes differ."""
    rank = max(len(value.axes) for value in values)
    axes = [ONE] * rank
    for value in values:
        if value.axes and len(value.axes) != rank:
            return None
        for place, axis in enumerate(value.axes):
            if axis != ONE and axes[place] not in (ONE, axis):
                return None
            axes[place] = axis if axis != ONE else axes[place]
    # A number is the same wherever it is needed, loaded or not.
    return Value(tuple(axes), any(value.found for value in values if value.axes))


def reduced_axis(node: ast.Call) -> int:
    """The axis that a reduction takes away; raises NotWritten where it is not one that is given."""
    given = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "axis")]
    axis = given[0] if len(given) == 1 and len(node.keywords) + len(node.args) == 2 else None
    if axis is None or ast.unparse(axis) not in ("0", "1"):
        raise NotWritten(ast.unparse(node))
    return int(ast.unparse(axis))


def new_axis(node: ast.Subscript) -> int:
    """Which axis `x[:, None]` (1) and `x[None, :]` (0) add."""
    index = ast.unparse(node.slice).strip("()").replace(" ", "")
    if index not in (":,None", "None,:"):
        raise NotWritten(ast.unparse(node))
    return 1 if index == ":,None" else 0
