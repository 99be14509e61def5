"""Arguments and results that a lowered kernel gives another shape and then, each time, their own again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accelopt.kernels.nki.rescheduling.authorship.steps import names_bound
from accelopt.kernels.nki.rescheduling.authorship.text import replaced
from accelopt.parsing import parse_python

Shape = tuple[int, ...]


class _Reshaped(NamedTuple):
    """`target = array.reshape(shape)`, in this statement or as this expression."""

    target: str
    array: str
    shape: Shape
    node: ast.stmt | ast.expr


def without_detours(text: str, kernel: str, shapes: Mapping[str, Shape]) -> str:
    """`text` in which such an array keeps the shape that it is called, or made, with.

    before: gain = gain.reshape((768,))                     after: row = nl.load(gain[0:1, :])
            row = nl.load(gain.reshape((1, 768))[0:1, :])
    """
    functions = (n for n in parse_python(text).body if isinstance(n, ast.FunctionDef))
    for function in (function for function in functions if function.name == kernel):
        known = {**_made(function), **shapes}
        now = dict(known)
        for given in _given(function):
            if now.get(given.array) == given.shape and given.target != given.array:
                return without_detours(_called(text, given), kernel, shapes)
            now[given.target] = given.shape
            back = _given_back(function, given, known.get(given.array))
            if back is None:
                continue
            lines = replaced(text, [(call, given.array) for call in back]).splitlines(True)
            del lines[given.node.lineno - 1 : given.node.end_lineno]
            return without_detours("".join(lines), kernel, shapes)
    return text


def _called(text: str, given: _Reshaped) -> str:
    """`text` with the array by its own name where a statement gives it the shape that it has."""
    lines = text.splitlines(keepends=True)
    del lines[given.node.lineno - 1 : given.node.end_lineno]
    return re.sub(rf"\b{given.target}\b", given.array, "".join(lines))


def declared_first(text: str, kernel: str) -> str:
    """`text` with the arrays that a kernel makes in HBM above the statements that give an argument another
    shape: they have the shapes that its callers know."""
    function = next(n for n in parse_python(text).body if getattr(n, "name", "") == kernel)
    assert isinstance(function, ast.FunctionDef)
    own = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    first = next((s.lineno for s in function.body if own & set(names_bound(s))), None)
    lines = text.splitlines(keepends=True)
    moved = [
        (statement.lineno - 1, statement.end_lineno)
        for statement in function.body
        if first is not None and statement.lineno > first
        if isinstance(statement, ast.Assign) and "_hbm)" in ast.unparse(statement)
    ]
    top = [line for begin, end in moved for line in lines[begin:end]]
    for begin, end in reversed(moved):
        del lines[begin:end]
    return "".join([*lines[: (first or 1) - 1], *top, *lines[(first or 1) - 1 :]])


def _given(function: ast.FunctionDef) -> Iterator[_Reshaped]:
    """The statements that do nothing but give an array another shape."""
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                if found := _reshaped(value):
                    yield found._replace(target=target, node=statement)


def _given_back(
    function: ast.FunctionDef, given: _Reshaped, shape: Shape | None
) -> list[ast.expr] | None:
    """The expressions below a statement that give its array the `shape` again that it had; None where
    the other one has another use, or such an expression takes several lines."""
    below = [n for n in ast.walk(function) if getattr(n, "lineno", 0) > given.node.lineno]
    uses = [n for n in below if isinstance(n, ast.Name) and n.id == given.target]
    back = [
        found.node
        for node in below
        if isinstance(node, ast.expr) and (found := _reshaped(node))
        if (found.array, found.shape) == (given.target, shape) and node.lineno == node.end_lineno
    ]
    return [node for node in back if isinstance(node, ast.expr)] if len(back) == len(uses) else None


def _made(function: ast.FunctionDef) -> dict[str, Shape]:
    """The shapes of the arrays that a function makes in HBM, by their names."""
    found: dict[str, Shape] = {}
    for statement in function.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr="ndarray"), args=[ast.Tuple() as shape, *_]),
            ):
                found |= {name: said} if (said := _shape(shape)) else {}
    return found


def _reshaped(node: ast.expr) -> _Reshaped | None:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=array), attr="reshape"),
            args=[ast.Tuple() as given],
        ):
            shape = _shape(given)
            return _Reshaped(array, array, shape, node) if shape else None
    return None


def _shape(node: ast.Tuple) -> Shape | None:
    try:
        return tuple(ast.literal_eval(node))
    except ValueError:
        return None
