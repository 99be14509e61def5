"""Arguments that a lowered kernel gives another shape and then, each time, their own again."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from accelopt.kernels.nki.moves.surgery.text import replaced
from accelopt.parsing import parse_python


def without_detours(text: str, kernel: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """`text` in which such an argument keeps the shape that it is called with.

    before: gain = gain.reshape((768,))                     after: row = nl.load(gain[0:1, :])
            row = nl.load(gain.reshape((1, 768))[0:1, :])
    """
    for name, shape in shapes.items():
        functions = (n for n in parse_python(text).body if isinstance(n, ast.FunctionDef))
        for function in (function for function in functions if function.name == kernel):
            given = next((s for s in function.body if _gives_shape(s, name)), None)
            back = _reshapes(function, name, shape, given.lineno) if given else None
            if given is not None and back is not None:
                lines = replaced(text, [(call, name) for call in back]).splitlines(keepends=True)
                del lines[given.lineno - 1 : given.end_lineno]
                text = "".join(lines)
    return text


def _gives_shape(statement: ast.stmt, name: str) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=value):
            return target == name and _shape_given(value, name) is not None
    return False


def _reshapes(
    function: ast.FunctionDef, name: str, shape: tuple[int, ...], line: int
) -> list[ast.Call] | None:
    """The calls below a line that give `name` its own shape again; None where it has another use."""
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and node.lineno > line and _shape_given(node, name) == shape
    ]
    uses = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name and node.lineno > line
    ]
    return calls if len(calls) == len(uses) else None


def _shape_given(node: ast.expr, name: str) -> tuple[int, ...] | None:
    """The shape in `name.reshape(shape)`; None for anything else."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=found), attr="reshape"),
            args=[ast.Tuple() as given],
        ) if found == name:
            try:
                return tuple(ast.literal_eval(given))
            except ValueError:
                return None
    return None
