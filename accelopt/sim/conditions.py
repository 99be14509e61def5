"""Branches that depend on loop indices: scopes of tensors, as the real tracer treats them."""

from __future__ import annotations

import ast
import functools
import linecache
from typing import NamedTuple

from accelopt.sim.errors import SourceLine


class Block(NamedTuple):
    """The body of an `if` whose condition depends on loop indices, and its function."""

    file: str
    first: int
    last: int
    function_first: int
    function_last: int

    def holds(self, line: SourceLine) -> bool:
        """True when the line lies in the block."""
        return line.file == self.file and self.first <= line.line <= self.last

    def is_left_by(self, line: SourceLine) -> bool:
        """True when the line lies in the same function, but outside of the block."""
        inside = self.function_first <= line.line <= self.function_last
        return line.file == self.file and inside and not self.holds(line)


def branches(line: SourceLine) -> set[Block]:
    """The branches of the `if` statement whose condition stands on the line."""
    found: set[Block] = set()
    for node, function in _conditionals("".join(linecache.getlines(line.file))):
        if not node.test.lineno <= line.line <= (node.test.end_lineno or 0):
            continue
        for branch in (node.body, node.orelse):
            if branch and not isinstance(branch[0], ast.If):
                last = branch[-1].end_lineno or branch[-1].lineno
                found.add(Block(line.file, branch[0].lineno, last, *function))
    return found


@functools.lru_cache(maxsize=64)
def _conditionals(text: str) -> tuple[tuple[ast.If, tuple[int, int]], ...]:
    """Every `if` statement with the first and last line of its function."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    found: dict[ast.If, tuple[int, int]] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.If):  # inner functions come later and win
                    found[node] = (function.lineno, function.end_lineno or function.lineno)
    return tuple(found.items())
