"""Python text as a tree, from any thread."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterable, Iterator

_ONE_AT_A_TIME = threading.Lock()


def parse_python(text: str) -> ast.Module:
    """`ast.parse`, one thread at a time: until Python 3.12 its depth is counted for all threads
    together, and two that parse at once may end in a SystemError (CPython issue 106905). Raises
    SyntaxError, ValueError."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)


def tree_of(text: str) -> ast.Module:
    """The same, of a text that may be no Python, which is for others to say: an empty tree then."""
    try:
        return parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def parse_expression(text: str) -> ast.expr:
    """`parse_python` of one expression."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, mode="eval").body


def names_read(*nodes: ast.AST) -> set[str]:
    """The names that code reads."""
    return {n.id for n in _names(nodes) if isinstance(n.ctx, ast.Load)}


def names_stored(*nodes: ast.AST) -> set[str]:
    """The names that code assigns, in targets of assignments, loops and the like."""
    return {n.id for n in _names(nodes) if isinstance(n.ctx, ast.Store)}


def _names(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    return (n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))
