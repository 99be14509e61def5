"""Positions past the end that become the last one, in the place of masks."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.loops import Renamed, bodies, fresh_name, is_plain
from accelopt.kernels.triton.moves.masks import conjuncts, is_very_negative, named_numbers
from accelopt.kernels.triton.moves.source import (
    JitFunction,
    assigned_in,
    called,
    names_in,
    target_of,
)
from accelopt.parsing import parse_python


def last_again(kernel: JitFunction) -> ast.FunctionDef | None:
    """Load the last position again where a step reaches past it, in the place of masked loads.

    Before: `p = s + tl.arange(0, B); i = tl.load(t + p, mask=p < n, other=0); x = tl.load(q + i,
    mask=(p < n)[:, None], other=0)`, x a tile of keys whose scores `tl.where(p < n, ..., -inf)`
    hides. After: `tl.load(t + tl.minimum(p, n - 1))` and x without a mask: a condition for each row
    of a tile is a register and some instructions for each row. Legal where the loop ends at n or
    before, so that there is a last position, and where each tile goes into products alone: its
    scores are hidden, and so its weights are zero. None where no load can go without its mask.
    """
    node = copy.deepcopy(kernel.node)
    changed = False
    for body in bodies(node):
        for loop in body:
            if isinstance(loop, ast.For) and is_plain(loop):
                changed |= _clamped(loop, node)
    return node if changed else None


def _clamped(loop: ast.For, node: ast.FunctionDef) -> bool:
    """Whether masks of a loop were left out."""
    assert isinstance(loop.iter, ast.Call) and isinstance(loop.target, ast.Name)
    defined = named_numbers(node)
    for place, statement in enumerate(loop.body):
        position = target_of(statement)
        if position is None or not isinstance(statement, ast.Assign):
            continue
        if not _runs_along(statement.value, loop.target.id):
            continue
        for limit in _limits(loop, position, defined):
            if _ends_at(loop.iter.args[1], limit, defined) and _hides(
                loop, position, limit, defined
            ):
                inside = fresh_name(f"{position}_inside", node)
                unmasked = _unmasked(loop.body, position, limit, inside, defined)
                if unmasked:
                    line = f"{inside} = tl.minimum({position}, {limit} - 1)"
                    loop.body[place + 1 : place + 1] = parse_python(line).body
                    return True
    return False


def _runs_along(value: ast.expr, variable: str) -> bool:
    """Whether an expression is the loop's position plus a range."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return False
    sides = (value.left, value.right)
    return any(isinstance(s, ast.Name) and s.id == variable for s in sides) and any(
        called(s) == "tl.arange" for s in sides
    )


def _conditions(node: ast.expr, defined: dict[str, ast.expr]) -> list[ast.expr]:
    """The conditions that a mask joins, its names followed, without the axes they lie along."""
    found: list[ast.expr] = []
    for part in conjuncts(node):
        bare = part.value if isinstance(part, ast.Subscript) else part
        made = defined.get(bare.id) if isinstance(bare, ast.Name) else None
        if made is not None and isinstance(made, (ast.Compare, ast.BinOp, ast.Subscript)):
            found += _conditions(made, defined)
        else:
            found.append(bare)
    return found


def _limit(condition: ast.expr, position: str) -> str | None:
    """What a condition says that positions are below."""
    if not (isinstance(condition, ast.Compare) and len(condition.ops) == 1):
        return None
    left, right = condition.left, condition.comparators[0]
    if isinstance(condition.ops[0], ast.Gt):
        left, right = right, left
    elif not isinstance(condition.ops[0], ast.Lt):
        return None
    bare = left.value if isinstance(left, ast.Subscript) else left
    is_position = isinstance(bare, ast.Name) and bare.id == position
    return right.id if is_position and isinstance(right, ast.Name) else None


def _limits(loop: ast.For, position: str, defined: dict[str, ast.expr]) -> list[str]:
    """Names of what the masks of loads say that positions are below, and the loop does not store."""
    found = []
    for call in ast.walk(loop):
        mask = _mask(call)
        if mask is not None:
            for condition in _conditions(mask, defined):
                limit = _limit(condition, position)
                if limit is not None and limit not in assigned_in(loop.body):
                    found.append(limit)
    return list(dict.fromkeys(found))


def _mask(node: ast.AST) -> ast.expr | None:
    """The mask of a load."""
    if called(node) != "tl.load" or not isinstance(node, ast.Call):
        return None
    return next((k.value for k in node.keywords if k.arg == "mask"), None)


def _ends_at(end: ast.expr, limit: str, defined: dict[str, ast.expr]) -> bool:
    """Whether an end is the limit, or the least of several numbers with it among them."""
    if isinstance(end, ast.Name):
        made = defined.get(end.id)
        return end.id == limit or (made is not None and _ends_at(made, limit, defined))
    if called(end) in ("tl.minimum", "min") and isinstance(end, ast.Call):
        return any(_ends_at(argument, limit, defined) for argument in end.args)
    return False


def _hides(loop: ast.For, position: str, limit: str, defined: dict[str, ast.expr]) -> bool:
    """Whether scores of positions past the limit become minus infinity."""
    return any(
        called(call) == "tl.where"
        and isinstance(call, ast.Call)
        and is_very_negative(call, defined)
        and any(_limit(c, position) == limit for c in _conditions(call.args[0], defined))
        for call in ast.walk(loop)
    )


def _unmasked(
    body: list[ast.stmt], position: str, limit: str, inside: str, defined: dict[str, ast.expr]
) -> bool:
    """Takes the masks from loads that can go without; whether there were such."""
    found = set[str]()  # names of numbers that are loaded where `inside` says
    changed = False
    for place, statement in enumerate(body):
        name = target_of(statement)
        loads = [n for n in ast.walk(statement) if called(n) == "tl.load"]
        if name is None or len(loads) != 1:
            continue
        call = loads[0]
        mask = _mask(call)
        assert isinstance(call, ast.Call)
        if mask is None or [_limit(c, position) for c in _conditions(mask, defined)] != [limit]:
            continue
        later = body[place + 1 :]
        address = names_in(call.args[0])
        if not address & {position, *found} or not _only_found_by_or_multiplied(name, later):
            continue
        call.args[0] = Renamed({position: inside}, {}).visit(call.args[0])
        call.keywords = [k for k in call.keywords if k.arg not in ("mask", "other")]
        found.add(name)
        changed = True
    return changed


def _only_found_by_or_multiplied(name: str, later: list[ast.stmt]) -> bool:
    """Whether a value is used in addresses and in products alone."""
    uses = {id(n) for s in later for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name}
    allowed: set[int] = set()
    for statement in later:
        for call in ast.walk(statement):
            if not isinstance(call, ast.Call):
                continue
            parts: list[ast.expr] = []
            if called(call) == "tl.load":
                parts = call.args[:1]
            elif called(call) == "tl.dot":
                parts = call.args[:2]
            for part in parts:
                allowed |= {id(n) for n in ast.walk(part)}
        if isinstance(statement, ast.Assign) and called(statement.value) == "tl.trans":
            turned = target_of(statement)
            if turned is None or not _only_found_by_or_multiplied(turned, later):
                continue
            allowed |= {id(n) for n in ast.walk(statement.value)}
    types = {
        id(n.value)
        for s in later
        for n in ast.walk(s)
        if isinstance(n, ast.Attribute) and n.attr == "dtype"
    }
    return bool(uses) and uses <= allowed | types
