"""Changes of Python text at the places of its expressions."""

from __future__ import annotations

import ast
from collections.abc import Sequence


def one_line_of(lines: Sequence[bytes], node: ast.expr) -> str:
    """The text of an expression; empty where it takes several lines."""
    if node.end_lineno != node.lineno:
        return ""
    return lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
