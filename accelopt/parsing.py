"""Python text as a tree, from any thread."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

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


def source_lines(function: Callable[..., Any] | CodeType) -> tuple[list[str], int]:
    """`inspect.getsourcelines` of a `def`, which looks for the module of the code among all that are loaded: in
    a new process that takes longer than tracing a kernel. Raises OSError where there is no source, TypeError for
    what is no function."""
    code: object = function
    if not isinstance(function, CodeType):
        code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        raise TypeError(f"{function!r} is no function of Python")
    linecache.checkcache(code.co_filename)
    lines, first = linecache.getlines(code.co_filename), code.co_firstlineno
    if not (last := _last_lines("".join(lines)).get(first)):
        raise OSError(f"there is no source of {code.co_name}")
    return lines[first - 1 : last], first


@functools.lru_cache(maxsize=64)
def _last_lines(text: str) -> dict[int, int]:
    """Of each function its last line, by its first one, which may be a decorator's."""
    found = [
        n for n in ast.walk(tree_of(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    firsts = (min(n.lineno for n in (node, *node.decorator_list)) for node in found)
    return {first: node.end_lineno or first for first, node in zip(firsts, found, strict=True)}


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
