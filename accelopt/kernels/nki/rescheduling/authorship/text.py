"""Comments, names and expressions of Python text."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pylint|mypy|ruff|pragma)")


class AuthorsComment(NamedTuple):
    """What a comment says, over one or more lines, and the line that it speaks of."""

    lines: tuple[str, ...]
    about: int


def comments(text: str, first: int, last: int) -> Iterator[AuthorsComment]:
    """The comments between two lines of `text`: blocks speak of the line below them, a comment
    behind code of its own line."""
    block: list[str] = []
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row = token.start[0]
        if token.type != tokenize.COMMENT or not first <= row <= last:
            continue
        if DIRECTIVE.match(token.string):
            continue
        if lines[row - 1].lstrip().startswith("#"):
            block.append(token.string)
            below = lines[row].lstrip() if row < len(lines) else ""
            if not below.startswith("#"):
                after = next((n for n in range(row, len(lines)) if lines[n].strip()), row)
                yield AuthorsComment(tuple(block), after + 1)
                block = []
        else:
            yield AuthorsComment((token.string,), row)


def identifiers(node: ast.AST) -> set[str]:
    """Every name that a part of a program uses or binds."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    found |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    return found | {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}


def replaced(text: str, changes: Iterable[tuple[ast.expr, str]]) -> str:
    """`text` with others in the places of some of its expressions, each on one line and none inside
    another."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for node, made in sorted(changes, key=lambda c: (c[0].lineno, c[0].col_offset), reverse=True):
        if node.end_lineno != node.lineno:
            continue
        line = lines[node.lineno - 1]
        new = line[: node.col_offset] + made.encode() + line[node.end_col_offset or 0 :]
        lines[node.lineno - 1] = new
    return b"".join(lines).decode()
