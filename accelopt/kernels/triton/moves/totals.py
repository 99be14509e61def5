"""Sums along the rows of a tile, taken once behind a loop in the place of one in each step."""

from __future__ import annotations

import ast

from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import assigned_in, called, names_in, target_of
from accelopt.parsing import parse_expression, parse_python


def summed_behind(body: list[ast.stmt], place: int, node: ast.FunctionDef) -> None:
    """Add tiles up in a loop, and the columns of their sum behind it, in a kernel's `body`.

    Before: `l = tl.zeros([R])`, and in the loop at `place` `t = tl.sum(p, axis=1); l = l * a + t`.
    After: `w = tl.zeros([R, B])`, in the loop `w = w * a[:, None] + p`, and behind it `l =
    tl.sum(w, axis=1)`. Legal where nothing else in the loop reads or stores l, which begins with zeros
    whenever the loop does, and p and a are what they are where both are read; B is the loop's step.
    """
    loop = body[place]
    assert isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)
    columns = ast.unparse(loop.iter.args[2])
    for at, statement in enumerate(loop.body):
        total = _Total.read(statement, loop.body[:at])
        if total is None or len(_mentions(loop, total.name)) != 2:
            continue
        rows = _rows_of_zeros(node, loop, total.name)
        if rows is None:
            continue
        known_at = total.known_at(statement, loop.body)
        if known_at is None:
            continue
        tiles = fresh_name(f"{total.name}_of_columns", node)
        loop.body.remove(statement)
        loop.body[known_at:known_at] = parse_python(
            f"{tiles} = {tiles} * ({total.factor})[:, None] + {total.tile}"
        ).body
        if total.apart is not None and not _mentions(loop, str(target_of(total.apart)))[1:]:
            loop.body.remove(total.apart)
        behind = parse_python(f"{total.name} = tl.sum({tiles}, axis=1)").body
        before = parse_python(f"{tiles} = tl.zeros([{rows}, {columns}], dtype=tl.float32)").body
        body[place : place + 1] = [*before, loop, *behind]
        return


class _Total:
    """`name = name * factor + tl.sum(tile, axis=1)`, the sum perhaps a statement apart."""

    def __init__(self, name: str, factor: str, tile: str, apart: ast.stmt | None) -> None:
        self.name, self.factor, self.tile, self.apart = name, factor, tile, apart

    @classmethod
    def read(cls, statement: ast.stmt, before: list[ast.stmt]) -> _Total | None:
        """What a statement adds up, if it does that; a sum apart stands before it."""
        name = target_of(statement)
        if name is None or not isinstance(statement, ast.Assign):
            return None
        value = statement.value
        if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
            return None
        for scaled, added in ((value.left, value.right), (value.right, value.left)):
            factor = _factor(scaled, name)
            apart = _stored_once(added, before)
            tile = _summed(added if apart is None else apart.value)
            if factor is not None and tile is not None:
                return cls(name, factor, tile, apart)
        return None

    def known_at(self, statement: ast.stmt, statements: list[ast.stmt]) -> int | None:
        """The place in a loop where both the tile and the factor are what they are for the sum."""
        place = statements.index(statement)
        if self.apart is None:
            return place
        made = statements.index(self.apart)
        between = assigned_in(statements[made:place])
        if made > place or self.tile in between:
            is_factor_known = not names_in(parse_expression(self.factor)) & between
            return made if made < place and is_factor_known else None
        return place


def _factor(node: ast.expr, name: str) -> str | None:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return None
    sides = (node.left, node.right)
    others = [s for s in sides if not (isinstance(s, ast.Name) and s.id == name)]
    return ast.unparse(others[0]) if len(others) == 1 else None


def _stored_once(node: ast.expr, statements: list[ast.stmt]) -> ast.Assign | None:
    """The statement that gives a name its value."""
    found = [s for s in statements if isinstance(node, ast.Name) and target_of(s) == node.id]
    return found[0] if len(found) == 1 and isinstance(found[0], ast.Assign) else None


def _summed(node: ast.expr) -> str | None:
    """The name of the tile whose columns are added up."""
    if called(node) != "tl.sum" or not isinstance(node, ast.Call):
        return None
    axes = [*node.args[1:], *(k.value for k in node.keywords)]
    is_second = [ast.unparse(axis) for axis in axes] == ["1"]
    return ast.unparse(node.args[0]) if is_second and isinstance(node.args[0], ast.Name) else None


def _mentions(loop: ast.For, name: str) -> list[ast.Name]:
    return [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == name]


def _contains(node: ast.AST, inner: ast.AST) -> bool:
    return any(n is inner for n in ast.walk(node))


def _rows_of_zeros(node: ast.FunctionDef, loop: ast.For, name: str) -> str | None:
    """How many zeros a name begins with, all that it is given outside of the loop."""
    inside = {id(inner) for inner in ast.walk(loop)}
    made = [
        s
        for s in ast.walk(node)
        if isinstance(s, (ast.Assign, ast.AugAssign)) and id(s) not in inside and name in assigned_in([s])
    ]  # fmt: skip
    if len(made) != 1 or not isinstance(made[0], ast.Assign):
        return None
    around = [n for n in ast.walk(node) if isinstance(n, (ast.For, ast.While))]
    if any(_contains(n, loop) and not _contains(n, made[0]) for n in around if n is not loop):
        return None
    call = made[0].value
    if not isinstance(call, ast.Call) or called(call) not in ("tl.zeros", "tl.full"):
        return None
    given = [*map(ast.unparse, call.args[1:2])] if called(call) == "tl.full" else ["0"]
    if not call.args or given not in (["0"], ["0.0"]):
        return None
    shape = call.args[0]
    one = isinstance(shape, (ast.List, ast.Tuple)) and len(shape.elts) == 1
    return ast.unparse(shape.elts[0]) if one else None  # type: ignore[attr-defined]
