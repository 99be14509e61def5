"""Expressions and statements of a Triton kernel in Gluon, where each value has a layout.

A kernel has three layouts of two axes: that of the products that give scores, that of the products
with values, and that in which tiles are copied. What is made of numbers and ranges alone is made
anew in each layout that asks for it; what was loaded or multiplied has a home and is converted.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from enum import Enum

from accelopt.kernels.triton.moves.gluon.shapes import (
    NotWritten,
    Shapes,
    Value,
    new_axis,
    reduced_axis,
)
from accelopt.kernels.triton.moves.lanes import ELEMENTWISE, NUMBERS, REDUCTIONS
from accelopt.kernels.triton.moves.source import called, names_in, target_of
from accelopt.parsing import parse_expression, parse_python

NOT_IN_GLUON = {"tl.sigmoid"}


class Layout(str, Enum):
    """The layouts of a kernel, by the names they have in it."""

    SCORES = "SCORES"
    VALUES = "VALUES"
    COPIES = "COPIES"


class Axes:
    """The axes of a kernel's tiles, as it writes their extents."""

    def __init__(self, rows: str, keys: str, columns: set[str]) -> None:
        if rows == keys or {rows, keys} & columns:
            raise NotWritten("two axes with one extent")
        self.rows, self.keys, self.columns = rows, keys, columns

    def place(self, axis: str, layout: Layout) -> int:
        """Which axis of a layout's tiles runs along an axis of a value."""
        if axis == self.rows or (axis == self.keys and layout is Layout.COPIES):
            return 0
        if axis == self.keys and layout is Layout.SCORES:
            return 1
        if axis in self.columns and layout is not Layout.SCORES:
            return 1
        raise NotWritten(f"{axis} in {layout.value}")

    def home(self, value: Value) -> Layout:
        """The layout of a tile that is computed, and of a vector that was found."""
        in_values = any(axis in self.columns for axis in value.lines)
        return Layout.VALUES if in_values else Layout.SCORES


class GluonWriter:
    """Writes a kernel's statements; `asked` says in which layouts its vectors are needed.

    `looked_up` are names that only the addresses of copies are made of; `tiles` the dtype of each
    tile in shared memory, as text.
    """

    def __init__(
        self, shapes: Shapes, axes: Axes, looked_up: set[str], tiles: Mapping[str, str]
    ) -> None:
        self.shapes, self.axes = shapes, axes
        self.looked_up, self.tiles = looked_up, tiles
        self.asked: dict[str, set[Layout]] = {}

    def is_made_anew(self, name: str) -> bool:
        """Whether each layout has its own copy of a name's value."""
        value = self.shapes.of_names.get(name)
        return value is not None and bool(value.lines) and not value.found

    def home(self, name: str) -> Layout:
        """Where a value that is not made anew lies."""
        return (
            Layout.COPIES if name in self.looked_up else self.axes.home(self.shapes.of_names[name])
        )

    def assigned(self, name: str, value: ast.expr) -> list[ast.stmt]:
        """`name = value`, once for each layout that needs it."""
        if not self.shapes.of_names[name].lines:
            return [_assign(name, self.expression(value, Layout.SCORES))]
        if self.is_made_anew(name):
            layouts = sorted(self.asked.get(name, ()), key=lambda layout: layout.value)
            return [
                _assign(_named(name, layout), self.expression(value, layout)) for layout in layouts
            ]
        return [_assign(name, self.expression(value, self.home(name)))]

    def expression(self, node: ast.expr, layout: Layout) -> ast.expr:
        """An expression in a layout."""
        written = _Expression(self, layout).visit(copy.deepcopy(node))
        assert isinstance(written, ast.expr)
        return written

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """A statement outside of the loop over keys."""
        name = target_of(node)
        if name is not None and isinstance(node, ast.Assign):
            return self.assigned(name, node.value)
        if isinstance(node, ast.Expr) and called(node.value) == "tl.store":
            return [ast.Expr(self.store(node.value))]  # type: ignore[arg-type]
        if isinstance(node, ast.If):
            body, orelse = self.statements(node.body), self.statements(node.orelse)
            return [ast.If(self._number(node.test), body or [ast.Pass()], orelse)]
        if isinstance(node, ast.While) and not node.orelse:
            return [ast.While(self._number(node.test), self.statements(node.body), [])]
        if isinstance(node, ast.For) and not node.orelse:
            return [ast.For(node.target, self._range(node.iter), self.statements(node.body), [])]
        if isinstance(node, (ast.Return, ast.Pass)):
            return [node]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return []
        raise NotWritten(ast.unparse(node))

    def statements(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements one behind the other."""
        return [written for node in nodes for written in self.statement(node)]

    def store(self, call: ast.Call) -> ast.expr:
        """A store of a tile of values, or of what lies in scores."""
        if not call.args:
            raise NotWritten(ast.unparse(call))
        layout = self.axes.home(self.shapes.of(call.args[0]))
        written = [self.expression(argument, layout) for argument in call.args]
        keywords = [ast.keyword(k.arg, self.expression(k.value, layout)) for k in call.keywords]
        return ast.Call(parse_expression("gl.store"), written, keywords)

    def _number(self, node: ast.expr) -> ast.expr:
        if self.shapes.of(node).lines:
            raise NotWritten(ast.unparse(node))
        return self.expression(node, Layout.SCORES)

    def _range(self, node: ast.expr) -> ast.expr:
        name = called(node).replace("tl.", "gl.") if "static" in called(node) else "range"
        if called(node) not in ("range", "tl.range", "tl.static_range"):
            raise NotWritten(ast.unparse(node))
        assert isinstance(node, ast.Call)
        return ast.Call(parse_expression(name), [self._number(a) for a in node.args], [])


class _Expression(ast.NodeTransformer):
    """Puts one expression into a layout."""

    def __init__(self, writer: GluonWriter, layout: Layout) -> None:
        self.writer, self.layout = writer, layout
        self.shapes = writer.shapes

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.shapes.of_names.get(node.id)
        if value is None or not value.axes:
            return node
        if self.writer.is_made_anew(node.id):
            self.writer.asked.setdefault(node.id, set()).add(self.layout)
            return ast.Name(_named(node.id, self.layout), ast.Load())
        if self.writer.home(node.id) is self.layout:
            return node
        return converted(node, self._layout_of(value))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        text = ast.unparse(node)
        if text.endswith(".dtype") and text[: -len(".dtype")] in self.writer.tiles:
            return parse_expression(self.writer.tiles[text[: -len(".dtype")]])
        if text.startswith("tl."):
            return parse_expression(text.replace("tl.", "gl.", 1))
        is_anew = isinstance(node.value, ast.Name) and self.writer.is_made_anew(node.value.id)
        return ast.Attribute(self.visit(node.value), node.attr, ast.Load()) if is_anew else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        axis = new_axis(node)
        (own,) = self.shapes.of(node.value).axes
        if self.writer.axes.place(own, self.layout) != 1 - axis:
            raise NotWritten(f"{ast.unparse(node)} in {self.layout.value}")
        inner = self.visit(node.value)
        return ast.Call(parse_expression("gl.expand_dims"), [inner, ast.Constant(axis)], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = called(node)
        if name in REDUCTIONS:
            inside = self._home_of(node.args[0])
            whole = self.writer.expression(node.args[0], inside)
            axis = reduced_axis(node)
            made = ast.Call(parse_expression(_gluon(name)), [whole, ast.Constant(axis)], [])
            left = self.shapes.of(node)
            return made if inside is self.layout or not left.axes else converted(
                made, self._layout_of(left)
            )  # fmt: skip
        if name in ("tl.zeros", "tl.full"):
            return self._filled(node)
        if name == "tl.arange":
            bounds = [self.visit(argument) for argument in node.args]
            laid = ast.keyword("layout", parse_expression(self._layout_of(self.shapes.of(node))))
            return ast.Call(parse_expression("gl.arange"), bounds, [laid])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            function = ast.Attribute(self.visit(node.func.value), "to", ast.Load())
            return ast.Call(function, [self.visit(argument) for argument in node.args], [])
        if name in (ELEMENTWISE | NUMBERS | {"tl.load"}) - NOT_IN_GLUON:
            keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
            arguments = [self.visit(argument) for argument in node.args]
            return ast.Call(parse_expression(_gluon(name)), arguments, keywords)
        raise NotWritten(ast.unparse(node))

    def _filled(self, node: ast.Call) -> ast.expr:
        """`tl.zeros` and `tl.full` with a layout."""
        is_zero = called(node) == "tl.zeros"
        given = dict(
            zip(("dtype",) if is_zero else ("value", "dtype"), node.args[1:], strict=False)
        )
        given |= {str(k.arg): k.value for k in node.keywords}
        if is_zero:
            given["value"] = ast.Constant(0)
        if given.keys() != {"value", "dtype"} or not self.shapes.of(node).axes:
            raise NotWritten(ast.unparse(node))
        laid = ast.keyword("layout", parse_expression(self._layout_of(self.shapes.of(node))))
        arguments = [node.args[0], *(self.visit(given[name]) for name in ("value", "dtype"))]
        return ast.Call(parse_expression("gl.full"), arguments, [laid])

    def _home_of(self, node: ast.expr) -> Layout:
        """The layout of what is reduced: copies where it is made of what was looked up alone."""
        names = {n for n in names_in(node) if self.shapes.of_names.get(n, Value(())).lines}
        if names and names <= self.writer.looked_up:
            return Layout.COPIES
        return self.writer.axes.home(self.shapes.of(node))

    def _layout_of(self, value: Value) -> str:
        """The layout of a value as text: the whole one, or a slice of it for a vector."""
        if len(value.axes) == 2:
            return self.layout.value
        (axis,) = value.axes
        return (
            f"gl.SliceLayout({1 - self.writer.axes.place(axis, self.layout)}, {self.layout.value})"
        )


def converted(node: ast.expr, layout: str) -> ast.expr:
    """A value in another layout."""
    return ast.Call(parse_expression("gl.convert_layout"), [node, parse_expression(layout)], [])


def _named(name: str, layout: Layout) -> str:
    return name if layout is Layout.SCORES else f"{name}_of_{layout.value.lower()}"


def _gluon(name: str) -> str:
    return name.replace("tl.math.", "gl.").replace("tl.", "gl.")


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return parse_python(f"{name} = {ast.unparse(value)}").body[0]
