"""Prefetch of the indices that a loop's next step takes its addresses from."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.loops import Renamed, bodies, fresh_name, stores
from accelopt.kernels.triton.moves.source import (
    JitFunction,
    assigned_in,
    called,
    is_range,
    names_in,
)
from accelopt.parsing import parse_python


def looked_up_ahead(kernel: JitFunction) -> ast.FunctionDef | None:
    """Load the numbers that later loads of a step are found by while the step before computes.

    Before: `for s in range(a, e, B): i = tl.load(p + s + r); x = tl.load(q + i * n); ...`. After:
    `i` of the first step is loaded before the loop, and each step loads that of the next one. The
    wait for `i` then overlaps a step's products. Legal where `i` depends on the step alone; none is
    loaded for a step that does not come, but where positions past the end are the last one anyhow.
    None when no loop with a product looks anything up.
    """
    node = copy.deepcopy(kernel.node)
    changed = False
    for body in bodies(node):
        for index, loop in reversed(list(enumerate(body))):
            if isinstance(loop, ast.For) and is_range(loop.iter):
                before = _ahead(loop, node)
                changed |= bool(before)
                body[index:index] = before
    return node if changed else None


def _ahead(loop: ast.For, node: ast.FunctionDef) -> list[ast.stmt]:
    """Changes a loop; what has to stand before it, nothing where it stays as it is."""
    assert isinstance(loop.iter, ast.Call)
    if len(loop.iter.args) != 3 or not isinstance(loop.target, ast.Name) or loop.orelse:
        return []
    if any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in ast.walk(loop)):
        return []
    if not any(called(n) == "tl.dot" for n in ast.walk(loop)):
        return []
    for place, statement in enumerate(loop.body):
        name = _looked_up(statement, loop.body[place + 1 :])
        if name is None or stores(loop, name) != 1 or name.endswith("_ahead"):
            continue
        assert isinstance(statement, ast.Assign)
        value = _expanded(statement.value, loop, place)
        if value is None:
            continue
        start, end, step = loop.iter.args
        at, following = loop.target.id, fresh_name(f"{name}_ahead", node)
        first = _at(value, at, start, ast.Compare(start, [ast.Lt()], [end]))
        after = ast.BinOp(ast.Name(at, ast.Load()), ast.Add(), step)
        comes = None if stays_inside(value, at) else ast.Compare(after, [ast.Lt()], [end])
        second = _at(value, at, after, comes)
        own = parse_python(f"{name} = {following}").body
        loop.body[place : place + 1] = [*own, _assign(following, second)]
        return [_assign(following, first)]
    return []


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return parse_python(f"{name} = {ast.unparse(value)}").body[0]


def _looked_up(statement: ast.stmt, after: list[ast.stmt]) -> str | None:
    """A name that a load gives, where later loads are found by it."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return None
    if sum(called(n) == "tl.load" for n in ast.walk(statement.value)) != 1:
        return None
    name = statement.targets[0].id
    made = {name}
    for later in after:
        for call in ast.walk(later):
            if called(call) != "tl.load":
                continue
            assert isinstance(call, ast.Call)
            if names_in(call.args[0]) & made:
                return name
        if isinstance(later, ast.Assign) and names_in(later.value) & made:
            made |= assigned_in([later])
    return None


def _expanded(value: ast.expr, loop: ast.For, place: int) -> ast.expr | None:
    """An expression in terms of the loop's position and of what is fixed; None where it is not."""
    assert isinstance(loop.target, ast.Name)
    inside = assigned_in(loop.body)
    value = copy.deepcopy(value)
    for statement in reversed(loop.body[:place]):
        stored = assigned_in([statement]) & names_in(value)
        if stored:
            if not isinstance(statement, ast.Assign) or "tl.load" in ast.unparse(statement.value):
                return None
            value = Renamed({}, {stored.pop(): statement.value}).visit(value)
    return None if names_in(value) & (inside - {loop.target.id}) else value


def stays_inside(value: ast.expr, variable: str) -> bool:
    """Whether a load without a mask reads the last position where a later one is asked for."""
    if any(k.arg == "mask" for n in ast.walk(value) if isinstance(n, ast.Call) for k in n.keywords):
        return False
    clamped = {
        id(name)
        for call in ast.walk(value)
        if called(call) == "tl.minimum" and isinstance(call, ast.Call)
        and ast.unparse(call.args[1]).endswith("- 1")
        for name in ast.walk(call.args[0])
    }  # fmt: skip
    positions = [n for n in ast.walk(value) if isinstance(n, ast.Name) and n.id == variable]
    return bool(positions) and all(id(position) in clamped for position in positions)


def _at(value: ast.expr, variable: str, position: ast.expr, inside: ast.expr | None) -> ast.expr:
    """The load at a position, only if that lies inside, where this is asked."""
    value = Renamed({}, {variable: position}).visit(copy.deepcopy(value))
    if inside is None:
        return value
    for call in ast.walk(value):
        if called(call) == "tl.load":
            assert isinstance(call, ast.Call)
            mask = next((k for k in call.keywords if k.arg == "mask"), None)
            if mask is None and len(call.args) == 1:
                call.keywords.append(ast.keyword("mask", inside))
            elif mask is not None:
                mask.value = ast.BinOp(mask.value, ast.BitAnd(), inside)
            else:
                call.args[1] = ast.BinOp(call.args[1], ast.BitAnd(), inside)
            if len(call.args) < 3 and not any(k.arg == "other" for k in call.keywords):
                call.keywords.append(ast.keyword("other", ast.Constant(0)))
    return value
