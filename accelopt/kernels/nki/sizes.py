"""A reference at other sizes: its module's whole numbers, such as `N, D = 2048, 1024`, replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from accelopt.errors import ConfigError
from accelopt.parsing import parse_python


def sizes_in(text: str) -> dict[str, int]:
    """The sizes in `N=8192` or `M=64,N=8192`. Raises ConfigError for what is none."""
    sizes: dict[str, int] = {}
    for pair in text.split(","):
        name, _, number = (part.strip() for part in pair.partition("="))
        if not name.isidentifier() or not number.isdecimal() or not int(number):
            raise ConfigError(f"{text!r} is neither a file nor sizes such as N=8192,M=64")
        sizes[name] = int(number)
    return sizes


def at_sizes(reference: str, sizes: Mapping[str, int], name: str = "the reference") -> str:
    """The text of a reference module with other numbers for some of its names, and nothing else
    changed. Raises ConfigError for a name that its top level does not give a whole number."""
    try:
        tree = parse_python(reference)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{name} is no Python: {error}") from error
    places = dict(_numbers(tree))
    if missing := [size for size in sizes if size not in places]:
        known = ", ".join(places) or "none"
        raise ConfigError(
            f"{name} has no whole number {missing[0]} at its top level (there are: {known}); give "
            "another reference instead"
        )
    lines = [line.encode() for line in reference.splitlines(keepends=True)]
    changes = [(places[size], number) for size, number in sizes.items()]
    for node, number in sorted(changes, key=lambda c: (c[0].lineno, c[0].col_offset), reverse=True):
        line = lines[node.lineno - 1]
        start, end = node.col_offset, node.end_col_offset
        lines[node.lineno - 1] = line[:start] + str(number).encode() + line[end:]
    return b"".join(lines).decode()


def _numbers(tree: ast.Module) -> Iterator[tuple[str, ast.Constant]]:
    """Names that the module's top level gives a whole number, the last place of each."""
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from _pair(statement.target, statement.value)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _pair(target, statement.value)


def _pair(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.Constant]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, other in zip(target.elts, value.elts, strict=False):
            yield from _pair(one, other)
    elif (
        isinstance(target, ast.Name)
        and isinstance(value, ast.Constant)
        and type(value.value) is int
    ):
        yield target.id, value
