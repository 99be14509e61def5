"""What a step of a loop over keys loads, multiplies and computes."""

from __future__ import annotations

import ast
from itertools import combinations
from typing import NamedTuple

from accelopt.kernels.triton.moves.gluon.shapes import NotWritten, Shapes
from accelopt.kernels.triton.moves.loops import bodies, is_plain
from accelopt.kernels.triton.moves.once import Product, product_of, scores_of
from accelopt.kernels.triton.moves.source import (
    assigned_in,
    called,
    names_in,
    read_first,
    target_of,
)


class Tile(NamedTuple):
    """A tile that is loaded: its name, where from, where it is not zeros, its rows and columns."""

    name: str
    pointer: ast.expr
    mask: ast.expr | None
    rows: str
    columns: str


class KeyStep(NamedTuple):
    """A step `at` of a loop over keys.

    `lookups` say where the tiles of `keys` are, `places` those among them that `rest` needs as
    well, for its own step; `scores` are the products that add up to `target`; `rest` is what a
    step computes from them, the products of `values` among it. The left operands of the scores are
    `queries`, loaded before the loop.
    """

    loop: ast.For
    lookups: tuple[ast.stmt, ...]
    places: tuple[ast.stmt, ...]
    keys: tuple[Tile, ...]
    queries: tuple[Tile, ...]
    scores: tuple[Product, ...]
    values: tuple[Product, ...]
    rest: tuple[ast.stmt, ...]

    @property
    def at(self) -> str:
        """The first position of a step."""
        return ast.unparse(self.loop.target)

    @property
    def bounds(self) -> tuple[str, str, str]:
        """Where the loop begins and ends, and the positions of a step."""
        assert isinstance(self.loop.iter, ast.Call)
        begin, end, step = (ast.unparse(bound) for bound in self.loop.iter.args)
        return begin, end, step

    @property
    def early(self) -> list[ast.stmt]:
        """The lookups that the copies of the same step need."""
        parts = [tile.pointer for tile in self.keys] + [
            t.mask for t in self.keys if t.mask is not None
        ]
        needed = {name for part in parts for name in names_in(part)}
        found: list[ast.stmt] = []
        for statement in reversed(self.lookups):
            if (name := target_of(statement)) in needed:
                found.insert(0, statement)
                needed = (needed - {name}) | _read(statement)
        return found

    @property
    def target(self) -> str:
        """What the scores add up to."""
        return self.scores[0].target


def key_step(node: ast.FunctionDef, shapes: Shapes) -> tuple[list[ast.stmt], KeyStep]:
    """The one loop of a kernel that multiplies, in its body; raises NotWritten for any other."""
    loops = [
        (body, loop)
        for body in bodies(node)
        for loop in body
        if isinstance(loop, ast.For) and "tl.dot" in ast.unparse(loop)
    ]
    if len(loops) != 1 or ast.unparse(node).count("tl.dot") != ast.unparse(loops[0][1]).count(
        "tl.dot"
    ):
        raise NotWritten("not one loop with products")
    body, loop = loops[0]
    scores = scores_of(loop) if is_plain(loop) and not loop.orelse else None
    if scores is None:
        raise NotWritten("no scores that another product reads")
    keys = [_tile(s, shapes) for s in scores.loads if _is_tile(s, shapes)]
    lookups = [s for s in scores.loads if not _is_tile(s, shapes)]
    others = [s for s in loop.body if s not in scores.loads and s not in scores.products]
    first = [product for s in scores.products if (product := product_of(s)) is not None]
    zeros = next(s for s in others if target_of(s) == first[0].target)
    before = loop.body[: loop.body.index(scores.products[-1])]
    if any(first[0].target in names_in(s) for s in before if s in others and s is not zeros):
        raise NotWritten(f"{first[0].target} is more than products")
    multiplied = [s for s in others if "tl.dot" in ast.unparse(s)]
    values = [product for s in multiplied if (product := product_of(s)) is not None]
    rest = [s for s in others if s is not zeros]
    names = {tile.name for tile in keys}
    if len(values) != len(multiplied) or not values:
        raise NotWritten("products that are not added to something")
    _check_values(values, others, multiplied, names)
    queries = [_query(node, loop, product, names, shapes) for product in first]
    places = _places(lookups, rest, shapes)
    step = KeyStep(
        loop, tuple(lookups), places, tuple(keys), tuple(queries), tuple(first), tuple(values), tuple(rest)
    )  # fmt: skip
    _check_names(node, step)
    _check_order(step)
    return body, step


def _check_names(node: ast.FunctionDef, step: KeyStep) -> None:
    """Raises NotWritten where something but products reads a tile, or a name that is a step ahead,
    or where a step stores to what says which steps there are."""
    for tile in step.keys:
        operands = [o for p in (*step.scores, *step.values) for o in p.call.args[1:]]
        in_products = sum(tile.name in names_in(operand) for operand in operands)
        dtypes = sum(ast.unparse(n) == f"{tile.name}.dtype" for n in ast.walk(node))
        if _reads(node, tile.name) != in_products + dtypes:
            raise NotWritten(f"{tile.name} is read by more than products")
    for name in {step.at, *assigned_in(step.lookups)}:
        if _reads(node, name) != _reads(step.loop, name):
            raise NotWritten(f"{name} is read outside of the loop")
    fixed = {step.at, *(n for bound in step.loop.iter.args for n in names_in(bound))}  # type: ignore[attr-defined]
    if fixed & assigned_in(step.loop.body):
        raise NotWritten("a step stores to its own bounds")


def _check_order(step: KeyStep) -> None:
    """Raises NotWritten where what loads need is made in an order that copies do not keep: all early
    lookups, the copies of all tiles, the other lookups."""
    loop, early = step.loop.body, step.early
    names = [name for s in loop for name in assigned_in([s])]
    if any(names.count(n) > 1 for n in (*assigned_in(step.lookups), *(t.name for t in step.keys))):
        raise NotWritten("what is loaded, or where from, changes within a step")
    tiles = {tile.name for tile in step.keys}
    loads = [s for s in loop if s in step.lookups or target_of(s) in tiles]
    for one, two in combinations(loads, 2):
        turns_round = _place(one, tiles, early) > _place(two, tiles, early)
        if turns_round and (
            assigned_in([one]) & names_in(two) or assigned_in([two]) & names_in(one)
        ):
            raise NotWritten(f"{ast.unparse(two)} stands behind {ast.unparse(one)}")


def _place(statement: ast.stmt, tiles: set[str], early: list[ast.stmt]) -> int:
    """Which of the three a statement is among."""
    return 0 if statement in early else 1 if target_of(statement) in tiles else 2


def _reads(node: ast.AST, name: str) -> int:
    return sum(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
        for n in ast.walk(node)
    )


def _places(lookups: list[ast.stmt], rest: list[ast.stmt], shapes: Shapes) -> tuple[ast.stmt, ...]:
    """What a step computes for its loads and reads itself; raises NotWritten where that was loaded
    or goes on from one step to the next, for loads are a step ahead."""
    carried = read_first(lookups) & assigned_in(lookups)
    read = {name for statement in rest for name in names_in(statement)}
    needed: list[ast.stmt] = []
    for statement in reversed(lookups):
        name = str(target_of(statement))
        if name not in read:
            continue
        if name in carried or shapes.of_names[name].found:
            raise NotWritten(f"{name} is looked up for a step and read by it")
        needed.insert(0, statement)
        read |= names_in(statement)
    return tuple(needed)


def _read(statement: ast.stmt) -> set[str]:
    return names_in(statement.value) if isinstance(statement, ast.Assign) else set()


def _is_tile(statement: ast.stmt, shapes: Shapes) -> bool:
    name = target_of(statement)
    return name is not None and len(shapes.of_names[name].lines) == 2


def _tile(statement: ast.stmt, shapes: Shapes) -> Tile:
    name = target_of(statement)
    assert name is not None and isinstance(statement, ast.Assign)
    call = statement.value
    if called(call) != "tl.load" or not isinstance(call, ast.Call):
        raise NotWritten(f"{name} is not loaded as it is")
    given = dict(zip(("pointer", "mask", "other"), call.args, strict=False))
    given.update({str(keyword.arg): keyword.value for keyword in call.keywords})
    other = given.pop("other", None)
    is_zero = other is None or ast.unparse(other) in ("0", "0.0")
    if not (is_zero and given.keys() <= {"pointer", "mask"}):
        raise NotWritten(f"{name} is loaded with {', '.join(given)}")
    rows, columns = shapes.of_names[name].axes
    return Tile(name, given["pointer"], given.get("mask"), rows, columns)


def _query(
    node: ast.FunctionDef, loop: ast.For, product: Product, keys: set[str], shapes: Shapes
) -> Tile:
    """The left operand of a product of scores, whose right one is a tile of keys, turned."""
    left, right = product.call.args[:2]
    turned = isinstance(right, ast.Call) and called(right) == "tl.trans" and right.args[0]
    if not (isinstance(left, ast.Name) and isinstance(turned, ast.Name) and turned.id in keys):
        raise NotWritten(ast.unparse(product.call))
    inside = {id(inner) for inner in ast.walk(loop)}
    made = [
        s
        for s in ast.walk(node)
        if isinstance(s, ast.Assign) and target_of(s) == left.id and id(s) not in inside
    ]
    reads = sum(isinstance(n, ast.Name) and n.id == left.id for n in ast.walk(node))
    if len(made) != 1 or reads != 2 or left.id in assigned_in([loop]):
        raise NotWritten(f"{left.id} is not loaded once, for scores alone")
    return _tile(made[0], shapes)


def _check_values(
    values: list[Product], others: list[ast.stmt], multiplied: list[ast.stmt], keys: set[str]
) -> None:
    """Raises NotWritten where sums of values are read before the step ends, or are of no keys."""
    for product, statement in zip(values, multiplied, strict=True):
        right = product.call.args[1]
        if not (isinstance(right, ast.Name) and right.id in keys):
            raise NotWritten(ast.unparse(product.call))
        behind = others[others.index(statement) + 1 :]
        if any(product.target in names_in(s) for s in behind):
            raise NotWritten(f"{product.target} is read behind its product")
