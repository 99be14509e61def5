"""A kernel says for which shapes it holds: what a rule wrote was verified for no others."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from accelopt.kernels.nki.parameters import ParameterFacts
from accelopt.parsing import parse_python

WIDTH = 100


def hold_to_shapes(source: str, arguments: Mapping[str, ParameterFacts]) -> str:
    """`source` with an assert on the shape of each tensor argument of its kernel, at its beginning.

    An argument that the kernel asserts the shape of already has no second one. A text that holds no
    function with these parameters stays as it is.
    """
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    wanted = [name for name, argument in arguments.items() if argument.shape]
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and _takes(function, wanted):
            return _with_asserts(source, function, wanted, arguments)
    return source


def _takes(function: ast.FunctionDef, names: list[str]) -> bool:
    own = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    return bool(names) and own.issuperset(names)


def _with_asserts(
    source: str,
    function: ast.FunctionDef,
    names: list[str],
    arguments: Mapping[str, ParameterFacts],
) -> str:
    said = {
        ast.unparse(statement.test.left)
        for statement in function.body
        if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare)
    }
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body or body[0].lineno == function.lineno:
        return source
    first = body[0]
    lines = source.splitlines(keepends=True)
    indent = " " * first.col_offset
    made = [
        _assert(indent, name, arguments[name].shape)
        for name in names
        if not said & {f"{name}.shape", f"tuple({name}.shape)"}
    ]
    at = first.lineno - 1
    return "".join([*lines[:at], *made, *lines[at:]])


def _assert(indent: str, name: str, shape: tuple[int, ...]) -> str:
    """One assert with its sentence, laid out as a formatter leaves it."""
    test = f"{indent}assert {name}.shape == {shape}"
    sentence = f'"{name} must be {" x ".join(map(str, shape))}"'
    line = f"{test}, {sentence}\n"
    if len(line) - 1 <= WIDTH:
        return line
    return f"{test}, (\n{indent}    {sentence}\n{indent})\n"
