"""Branches that depend on loop indices: scopes of tensors, as the real tracer treats them."""

from __future__ import annotations

import ast
import functools
import linecache
from collections import Counter
from typing import NamedTuple

from accelopt.parsing import tree_of
from accelopt.sim.errors import SourceLine


class GuardedBody(NamedTuple):
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


def is_tested(line: SourceLine) -> bool:
    """True when the line holds the condition of an `if` or `while` statement."""
    text = "".join(linecache.getlines(line.file))
    return any(first <= line.line <= last for first, last in _tests(text))


@functools.lru_cache(maxsize=64)
def _tests(text: str) -> tuple[tuple[int, int], ...]:
    return tuple(
        (node.test.lineno, node.test.end_lineno or node.test.lineno)
        for node in ast.walk(tree_of(text))
        if isinstance(node, (ast.If, ast.While))
    )


def branches(line: SourceLine) -> set[GuardedBody]:
    """The branches of the `if` statement whose condition stands on the line."""
    found: set[GuardedBody] = set()
    for node, function in _conditionals("".join(linecache.getlines(line.file))):
        if not node.test.lineno <= line.line <= (node.test.end_lineno or 0):
            continue
        for branch in (node.body, node.orelse):
            if branch and not isinstance(branch[0], ast.If):
                last = branch[-1].end_lineno or branch[-1].lineno
                found.add(GuardedBody(line.file, branch[0].lineno, last, *function))
    return found


class Escape(NamedTuple):
    """A name that is bound in a branch and read after it, first at `line`; `updated` when the branch
    only says `x += y`."""

    name: str
    line: int
    updated: bool


class Escapes(NamedTuple):
    """What leaves the branches of the `if` statement at `line`: names, and, when `skips`, a
    `continue` to the next iteration of a loop around it."""

    line: int = 0
    names: tuple[Escape, ...] = ()
    skips: bool = False


def escapes(file: str, line: int) -> Escapes:
    """Those of the `if` statement whose condition stands on the line."""
    return _escapes("".join(linecache.getlines(file))).get(line, Escapes())


@functools.lru_cache(maxsize=64)
def _escapes(text: str) -> dict[int, Escapes]:
    """By every line of a condition."""
    found: dict[int, Escapes] = {}
    for function in ast.walk(tree_of(text)):
        if isinstance(function, ast.FunctionDef):
            _look_into(function.body, [], found)
    return found


def _look_into(
    statements: list[ast.stmt], following: list[list[ast.stmt]], found: dict[int, Escapes]
) -> None:
    """`following` are the statements that run after these, the nearest list first."""
    for at, statement in enumerate(statements):
        after = [statements[at + 1 :], *following]
        if isinstance(statement, ast.If):
            escape = _escape(statement, after)
            last = statement.test.end_lineno or statement.lineno
            found.update(dict.fromkeys(range(statement.test.lineno, last + 1), escape))
        for block in (getattr(statement, name, []) for name in ("body", "orelse", "finalbody")):
            if block and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                _look_into(block, after, found)


def _escape(statement: ast.If, after: list[list[ast.stmt]]) -> Escapes:
    parts = [*statement.body, *statement.orelse]
    inside = [node for part in parts for node in ast.walk(part)]
    names = [node for node in inside if isinstance(node, ast.Name)]
    stored = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
    targets = [node.target for node in inside if isinstance(node, ast.AugAssign)]
    updated = Counter(target.id for target in targets if isinstance(target, ast.Name))
    read: set[str] = set()
    assigned: set[str] = set()
    uses: dict[str, int] = {}
    for block in after:
        read_first(block, assigned, read)
        for node in (node for part in block for node in ast.walk(part)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                uses[node.id] = min(node.lineno, uses.get(node.id, node.lineno))
    found = tuple(
        Escape(name, uses.get(name, statement.lineno), stored[name] == updated[name])
        for name in sorted(read & stored.keys())
    )
    return Escapes(statement.lineno, found, _skips(parts))


def _skips(statements: list[ast.stmt]) -> bool:
    """True when a `continue` here belongs to a loop outside."""
    for statement in statements:
        if isinstance(statement, ast.Continue):
            return True
        if isinstance(statement, (ast.If, ast.With, ast.Try)):
            inner = [*statement.body, *getattr(statement, "orelse", [])]
            if _skips(inner):
                return True
    return False


@functools.lru_cache(maxsize=64)
def _conditionals(text: str) -> tuple[tuple[ast.If, tuple[int, int]], ...]:
    """Every `if` statement with the first and last line of its function."""
    found: dict[ast.If, tuple[int, int]] = {}
    for function in ast.walk(tree_of(text)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.If):  # inner functions come later and win
                    found[node] = (function.lineno, function.end_lineno or function.lineno)
    return tuple(found.items())


def read_first(statements: list[ast.stmt], assigned: set[str], exposed: set[str]) -> None:
    """Adds to `exposed` the names that statements read before they have `assigned` them, and to
    `assigned` those that they assign."""
    for statement in statements:
        if isinstance(statement, (ast.For, ast.While, ast.If, ast.With, ast.Try)):
            _read_in_block(statement, assigned, exposed)
            continue
        stores: set[str] = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load) and node.id not in assigned:
                    exposed.add(node.id)
                elif isinstance(node.ctx, ast.Store):
                    stores.add(node.id)
        target = statement.target if isinstance(statement, ast.AugAssign) else None
        if isinstance(target, ast.Name) and target.id not in assigned:
            exposed.add(target.id)
        assigned |= stores


def _read_in_block(
    statement: ast.For | ast.While | ast.If | ast.With | ast.Try,
    assigned: set[str],
    exposed: set[str],
) -> None:
    """Names assigned in only some branches stay unassigned afterwards."""
    heads: list[ast.AST] = []
    if isinstance(statement, ast.For):
        heads = [statement.iter]
    elif isinstance(statement, (ast.While, ast.If)):
        heads = [statement.test]
    elif isinstance(statement, ast.With):
        heads = [item.context_expr for item in statement.items]
    for head in heads:
        for node in ast.walk(head):
            if isinstance(node, ast.Name) and node.id not in assigned:
                exposed.add(node.id)
    inner = set(assigned)
    if isinstance(statement, ast.For):
        inner |= {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
    read_first(statement.body, inner, exposed)
    if isinstance(statement, ast.With):
        assigned |= inner
        return
    branches = [inner]
    others: list[list[ast.stmt]] = []
    if isinstance(statement, (ast.For, ast.While, ast.If)):
        others = [statement.orelse]
    else:
        others = [statement.orelse, statement.finalbody, *(h.body for h in statement.handlers)]
    for other in others:
        branch = set(assigned)
        read_first(other, branch, exposed)
        branches.append(branch)
    if isinstance(statement, ast.If):
        assigned |= set.intersection(*branches)
    elif isinstance(statement, ast.For):
        # A kernel's inner loop runs at least once; what it assigns is assigned afterwards.
        assigned |= inner
