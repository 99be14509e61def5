"""Moves on the loops of a kernel: counted where they were open, one pass instead of several."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from accelopt.kernels.triton.moves.source import JitFunction, assigned_in, is_range, names_in
from accelopt.parsing import parse_expression, parse_python


def counted_loop(kernel: JitFunction) -> ast.FunctionDef | None:
    """Count the steps of a loop that was left open, so that it can be pipelined and its tile be set.

    Before: `p = 0; while p < n: ...; p += B`. After: `for p in range(0, n, B): ...`. Legal when
    the loop stores nothing else to `p` nor to what `n` and `B` are made of, ends in no other way,
    and `p` is not read behind it.
    """
    node = copy.deepcopy(kernel.node)
    changed = False
    for body in bodies(node):
        for index, statement in reversed(list(enumerate(body))):
            if isinstance(statement, ast.While):
                start = _start_of(statement, body[:index])
                counted = _counted(statement, node)
                if start is not None and counted is not None:
                    body[index] = counted
                    del body[start]
                    changed = True
    return node if changed else None


def _start_of(loop: ast.While, before: list[ast.stmt]) -> int | None:
    """Which statement sets the running position to zero, if no other touches it before the loop."""
    if not (isinstance(loop.test, ast.Compare) and isinstance(loop.test.left, ast.Name)):
        return None
    name = loop.test.left.id
    touching = [i for i, statement in enumerate(before) if name in names_in(statement)]
    if len(touching) != 1 or not isinstance(before[touching[0]], ast.Assign):
        return None
    statement = before[touching[0]]
    assert isinstance(statement, ast.Assign)
    text = ast.unparse(statement.value)
    zero = text == "0" or text.startswith(("tl.zeros((),", "tl.zeros([],"))
    return touching[0] if zero and assigned_in([statement]) == {name} else None


def _counted(loop: ast.While, node: ast.FunctionDef) -> ast.For | None:
    """The same steps as a `for`; None when they are not of one size to one end."""
    if not (isinstance(loop.test, ast.Compare) and isinstance(loop.test.left, ast.Name)):
        return None
    name, last = loop.test.left.id, loop.body[-1]
    if (
        len(loop.test.ops) != 1
        or not isinstance(loop.test.ops[0], ast.Lt)
        or loop.orelse
        or not (isinstance(last, ast.AugAssign) and isinstance(last.op, ast.Add))
        or ast.unparse(last.target) != name
        or any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in ast.walk(loop))
    ):
        return None
    end, step = loop.test.comparators[0], last.value
    inside = assigned_in(loop.body[:-1])
    if ({name} | names_in(end) | names_in(step)) & inside:
        return None
    assert loop.end_lineno is not None
    if any(
        isinstance(n, ast.Name) and n.id == name and n.lineno > loop.end_lineno
        for n in ast.walk(node)
    ):
        return None
    call = ast.Call(ast.Name("range", ast.Load()), [ast.Constant(0), end, step], [])
    return ast.For(ast.Name(name, ast.Store()), call, loop.body[:-1], [], lineno=loop.lineno)


def one_pass(kernel: JitFunction) -> ast.FunctionDef | None:
    """Keep what one loop loads, for the loops after it over the same row: for a whole row at once.

    Before: `for s in range(0, n, B): x = tl.load(p + s + r) ...` twice or more.
    After: the bodies one behind the other with s = 0 and each load done once. Legal only when B
    covers the whole row; the caller sets B so, and `tl.static_assert` refuses anything else when
    n is a constant.
    """
    node = copy.deepcopy(kernel.node)
    for body in bodies(node):
        at = [i for i, s in enumerate(body) if isinstance(s, ast.For) and is_plain(s)]
        loops = [body[i] for i in at]
        same = {ast.unparse(loop.iter) for loop in loops if isinstance(loop, ast.For)}
        if len(loops) < 2 or len(same) != 1:
            continue
        first = loops[0]
        assert isinstance(first, ast.For) and isinstance(first.iter, ast.Call)
        start, end, step = first.iter.args
        if not (isinstance(start, ast.Constant) and start.value == 0):
            continue
        straight: list[ast.stmt] = []
        known: dict[str, str] = {}
        straight += parse_python(
            f"tl.static_assert({ast.unparse(step)} >= {ast.unparse(end)})"
        ).body
        for index, statement in enumerate(body):
            if index in at:
                assert isinstance(statement, ast.For)
                straight += _straightened(statement, known)
            elif at[0] < index:
                straight.append(statement)
        body[at[0] :] = straight
        return node
    return None


def _straightened(loop: ast.For, known: dict[str, str]) -> list[ast.stmt]:
    """A loop's body for its only step; an assignment seen before is left out or made a copy."""
    assert isinstance(loop.target, ast.Name)
    lines: list[ast.stmt] = [*parse_python(f"{loop.target.id} = 0").body]
    for statement in copy.deepcopy(loop.body):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target, value = statement.targets[0].id, ast.unparse(statement.value)
            if known.get(target) == value:
                continue
            same = next((name for name, text in known.items() if text == value), None)
            stale = [n for n, t in known.items() if n == target or _mentions(t, target)]
            for name in stale:
                del known[name]
            if same is not None and same in known:
                statement.value = ast.Name(same, ast.Load())
            if not _mentions(value, target):
                known[target] = value
        else:
            for name in assigned_in([statement]):
                for stale_name in [n for n, t in known.items() if n == name or _mentions(t, name)]:
                    del known[stale_name]
        lines.append(statement)
    return lines


def _mentions(text: str, name: str) -> bool:
    return name in names_in(parse_expression(text))


def bodies(node: ast.AST) -> list[list[ast.stmt]]:
    """Every list of statements in a node."""
    return [
        getattr(inner, field)
        for inner in ast.walk(node)
        for field in ("body", "orelse")
        if isinstance(getattr(inner, field, None), list)
    ]


def is_plain(loop: ast.For) -> bool:
    """A loop `for name in range(start, end, step)` without an early end."""
    return (
        isinstance(loop.target, ast.Name)
        and is_range(loop.iter)
        and isinstance(loop.iter, ast.Call)
        and len(loop.iter.args) == 3
        and not any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in ast.walk(loop))
    )


def fresh_name(name: str, node: ast.AST) -> str:
    """`name`, or something like it that `node` does not use."""
    taken = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    while name in taken:
        name += "_"
    return name


class Renamed(ast.NodeTransformer):
    """Puts other names, or where a name is read a value, in the place of names."""

    def __init__(self, names: Mapping[str, str], values: Mapping[str, ast.expr]) -> None:
        self.names = names
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """One name."""
        if node.id in self.values and isinstance(node.ctx, ast.Load):
            return copy.deepcopy(self.values[node.id])
        return ast.Name(self.names.get(node.id, node.id), node.ctx)
