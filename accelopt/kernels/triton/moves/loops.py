"""Moves on the loops of a kernel: counted where they were open, over positions instead of tiles."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from accelopt.kernels.triton.moves.knobs import Quotient, rounded_up
from accelopt.kernels.triton.moves.source import (
    JitFunction,
    assigned_in,
    is_range,
    names_in,
    target_of,
)


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


def stepped_by_tiles(kernel: JitFunction) -> ast.FunctionDef | None:
    """Let a loop that counts tiles run over the positions where they begin.

    Before: `for i in range(tl.cdiv(n, B)): p = i * B; ...`, the number of tiles by a name or not.
    After: `for p in range(0, n, B): ...`. Legal when `i` is read in no other way, and the loop
    stores nothing to what `n` is made of.
    """
    node = copy.deepcopy(kernel.node)
    changed = False
    for body in bodies(node):
        for loop in body:
            if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
                tiles = _tiles(loop, node)
                if tiles is not None and tiles.divisor in kernel.constants:
                    changed = _step(loop, node, tiles) or changed
    return node if changed else None


def _tiles(loop: ast.For, node: ast.FunctionDef) -> Quotient | None:
    """What a loop counts the tiles of, from the first on."""
    if not is_range(loop.iter) or not isinstance(loop.iter, ast.Call):
        return None
    bounds = loop.iter.args
    if len(bounds) == 2 and ast.unparse(bounds[0]) == "0":
        bounds = bounds[1:]
    if len(bounds) != 1:
        return None
    count = bounds[0]
    if isinstance(count, ast.Name):
        made = [
            s.value
            for s in ast.walk(node)
            if isinstance(s, ast.Assign) and target_of(s) == count.id
        ]
        count = made[0] if len(made) == stores(node, count.id) == 1 else count
    tiles = rounded_up(count)
    return None if tiles is None or names_in(tiles.dividend) & assigned_in(loop.body) else tiles


def stores(node: ast.AST, name: str) -> int:
    """How often a name is assigned below a node."""
    return sum(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        for n in ast.walk(node)
    )


def _step(loop: ast.For, node: ast.FunctionDef, tiles: Quotient) -> bool:
    """Change a loop if its variable says nothing but where a tile begins; whether it did."""
    assert isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call)
    own = loop.target.id
    products = (f"{own} * {tiles.divisor}", f"{tiles.divisor} * {own}")
    places = [n for s in loop.body for n in ast.walk(s) if _is_one_of(n, products)]
    inside = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == own]
    known = {
        id(n)
        for other in ast.walk(node)
        if isinstance(other, ast.For) and ast.unparse(other.target) == own
        for n in ast.walk(other)
    }
    elsewhere = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == own]
    if not places or len(inside) != len(places) + 1 or any(id(n) not in known for n in elsewhere):
        return False
    named = [s for s in loop.body if isinstance(s, ast.Assign) and _is_one_of(s.value, products)]
    name = target_of(named[0]) if named else None
    if name is not None and stores(node, name) == 1:
        loop.body.remove(named[0])
    else:
        name = fresh_name("position", node)
    loop.body = [_Positions(products, name).visit(s) for s in loop.body] or [ast.Pass()]
    loop.target = ast.Name(name, ast.Store())
    loop.iter.args = [ast.Constant(0), tiles.dividend, ast.Name(tiles.divisor, ast.Load())]
    return True


def _is_one_of(node: ast.AST, products: tuple[str, ...]) -> bool:
    return isinstance(node, ast.BinOp) and ast.unparse(node) in products


class _Positions(ast.NodeTransformer):
    """Puts the position where a tile begins in the place of its product."""

    def __init__(self, products: tuple[str, ...], name: str) -> None:
        self.products = products
        self.name = name

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """The position for a product of the tile's number; everything else as it was."""
        if ast.unparse(node) in self.products:
            return ast.Name(self.name, ast.Load())
        return self.generic_visit(node)


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
