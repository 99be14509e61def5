"""Statements of a kernel as Python's own trees: what they declare and name, and the same with other expressions."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from accelopt.parsing import names_read, names_stored, parse_python

Change = Callable[[ast.AST], ast.AST | None]
"""Another expression in the place of one; None where what it is made of may change."""
MEMORIES = ("sbuf", "psum")
DESTINATIONS = ("dst", "reduce_res")


class _Decimal(float):
    """A number as a formatter leaves it: 1e30."""

    def __repr__(self) -> str:
        return super().__repr__().replace("e+", "e")


class Declared(NamedTuple):
    """A tile that a statement declares: its shape, as text, its format and its memory."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    memory: str


@functools.lru_cache(maxsize=16384)  # kernels of one search have most of their text in common
def trees(text: str) -> tuple[ast.stmt, ...]:
    """The statements of a text, in which a negative number is a number. They are read only."""
    return tuple(mapped(parse_python(text).body, lambda node: None))


def text_of(statements: Iterable[ast.stmt]) -> str:
    """Statements as text, one a line."""
    return "\n".join(map(ast.unparse, statements))


def mapped(node: Any, change: Change) -> Any:
    """A tree, or a list of some, with other expressions, in which sums of sums are one and have no 0."""
    if isinstance(node, list):
        found = [mapped(item, change) for item in node]
        return node if all(map(operator.is_, found, node)) else found
    if not isinstance(node, ast.AST):
        return node
    if (other := change(node)) is not None:
        return other
    parts = {name: getattr(node, name) for name in node._fields}
    changed = {name: mapped(part, change) for name, part in parts.items()}
    same = all(changed[name] is part for name, part in parts.items())
    return _plain(node) if same else made_of(node, changed)


def made_of(node: ast.AST, parts: Mapping[str, Any]) -> Any:
    """A node like another, of other parts."""
    made = type(node)(**parts)
    if isinstance(made, ast.stmt):
        made.lineno = 0  # who writes statements as text asks for it
    return _plain(made)


def _plain(node: Any) -> Any:
    match node:
        case ast.Constant(value=float() as number) if type(number) is float:
            return ast.Constant(_Decimal(number))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return _plain(ast.Constant(-number))
        case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=int() as number)):
            below = ast.BinOp(left, ast.Sub(), ast.Constant(-number))
            return left if number == 0 else below if number < 0 else node
        case ast.BinOp(left=left, op=ast.Add(), right=ast.BinOp(op=ast.Add() | ast.Sub()) as sums):
            return ast.BinOp(_plain(ast.BinOp(left, ast.Add(), sums.left)), sums.op, sums.right)
    return node


def renamed(text: str, names: Mapping[str, str]) -> list[ast.stmt]:
    """The statements of a text, with other expressions in the places of names."""

    def change(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Name) and node.id in names:
            return _expression(names[node.id])
        return None

    return mapped([*trees(text)], change) if names_in(text) & names.keys() else [*trees(text)]


@functools.lru_cache(maxsize=1024)
def _expression(text: str) -> ast.expr:
    (statement,) = trees(text)
    assert isinstance(statement, ast.Expr)
    return statement.value


@functools.lru_cache(maxsize=16384)
def names_in(text: str, stored: bool = False) -> frozenset[str]:
    """The names in a text; those alone that it gives values, where it is asked for `stored` ones."""
    found = names_stored(*trees(text))
    return frozenset(found if stored else found | names_read(*trees(text)))


def whole_tile(node: ast.AST) -> str:
    """The name of a tile of which an expression is all: `tile[...]`; empty for any other."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=inside)):
            return name if inside is ... else ""
    return ""


def base(node: ast.expr | None) -> str:
    """The name of what an expression is a part of."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def assigned(statement: ast.stmt | None) -> tuple[ast.expr | None, ast.expr]:
    """What a statement assigns to, and what."""
    match statement:
        case ast.Assign(targets=[into], value=value) | ast.AugAssign(target=into, value=value):
            return into, value
    return None, ast.Constant(None)


@functools.lru_cache(maxsize=16384)
def written(text: str) -> tuple[str, ...]:
    """The names of what the statements of a text write parts of."""
    into = [target for target, _ in map(assigned, trees(text)) if not isinstance(target, ast.Name)]
    nodes = (node for statement in trees(text) for node in ast.walk(statement))
    into += [n.value for n in nodes if isinstance(n, ast.keyword) and n.arg in DESTINATIONS]
    return tuple(map(base, into))


def declared(statement: ast.stmt) -> Declared | None:
    """The tile on the chip that a statement declares."""
    into, value = assigned(statement)
    match value:
        case ast.Call(
            func=ast.Attribute(attr="ndarray" | "zeros"),
            args=[ast.Tuple(elts=[rows, *free])],
            keywords=[
                ast.keyword(value=ast.Attribute(attr=dtype)),
                ast.keyword(value=ast.Attribute(attr=memory)),
            ],
        ) if memory in MEMORIES:
            lanes = rows.args[0] if isinstance(rows, ast.Call) else rows
            shape = tuple(map(ast.unparse, (lanes, *free)))
            return Declared(base(into), shape, dtype, memory)
    return None
