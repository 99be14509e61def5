"""Changes of Python text at the places of its expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence


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


def one_line_of(lines: Sequence[bytes], node: ast.expr) -> str:
    """The text of an expression; empty where it takes several lines."""
    if node.end_lineno != node.lineno:
        return ""
    return lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
