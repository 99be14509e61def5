"""One tile in the place of pieces of its columns that a kernel handles alike."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from typing import NamedTuple

from accelopt.kernels.triton.moves.knobs import constant_value
from accelopt.kernels.triton.moves.loops import bodies
from accelopt.kernels.triton.moves.sharing import WRITES
from accelopt.kernels.triton.moves.source import (
    Launch,
    Source,
    assigned_in,
    called,
    names_in,
    target_of,
)

COLUMNWISE = (
    "tl.load", "tl.store", "tl.where", "tl.zeros", "tl.full", "tl.exp", "tl.exp2", "tl.log",
    "tl.log2", "tl.sqrt", "tl.rsqrt", "tl.abs", "tl.maximum", "tl.minimum", "tl.fma",
    "tl.multiple_of", "tl.max_contiguous",
)  # fmt: skip
"""What gives each column of its result from that column of its operands."""


BRANCHING = (ast.For, ast.While, ast.If)


class _Piece(NamedTuple):
    """Which family a name is of, and which of its pieces it holds; the columns are family 0."""

    family: int
    number: int


def joined_columns(source: Source, launch: Launch) -> str | None:
    """Make one tile of the pieces of its columns.

    Before: `x0` and `x1`, loaded at `tl.arange(0, B)` and `B + tl.arange(0, B)`, each in statements
    of its own: `s += tl.dot(q0, tl.trans(x0)); s += tl.dot(q1, tl.trans(x1)); o0 += tl.dot(p, x0);
    o1 += tl.dot(p, x1)`. After: `x` of `2 * B` columns in one statement each. Legal where every
    statement of one piece has its like for all others and mixes no columns, but for sums of
    products over them all.
    """
    node = copy.deepcopy(launch.kernel.node)
    values = {
        name: value
        for name in launch.kernel.constants
        if (value := constant_value(source, launch, name)) is not None
    }
    for width in sorted({v.width for v in _vectors(node, values).values()}):
        vectors = {n: v for n, v in _vectors(node, values).items() if v.width == width}
        count = max(v.number for v in vectors.values()) + 1
        if count < 2 or count & (count - 1):
            continue
        pieces = {name: _Piece(0, vector.number) for name, vector in vectors.items()}
        joined = _Joined(node, pieces, count, width, values)
        if joined.join():
            return source.with_kernel(launch.kernel, node)
    return None


class _Vector(NamedTuple):
    """Columns `number * width` and so on: `number * width + tl.arange(0, width)`."""

    number: int
    width: int


def _vectors(node: ast.FunctionDef, values: Mapping[str, int]) -> dict[str, _Vector]:
    """Names that hold pieces of a row of columns."""
    found: dict[str, set[_Vector | None]] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and (name := target_of(inner)) is not None:
            found.setdefault(name, set()).add(_vector(inner.value, values))
    return {
        name: vector
        for name, made in found.items()
        if len(made) == 1 and (vector := made.pop()) is not None
    }


def _vector(value: ast.expr, values: Mapping[str, int]) -> _Vector | None:
    start: int | None = 0
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        start, value = number_of(value.left, values), value.right
    if called(value) != "tl.arange" or start is None:
        return None
    assert isinstance(value, ast.Call)
    begin, end = (number_of(argument, values) for argument in value.args)
    if begin != 0 or not end or start % end:
        return None
    return _Vector(start // end, end)


def number_of(node: ast.expr, values: Mapping[str, int]) -> int | None:
    """A whole number made of numbers and known names by sums and products."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = number_of(node.left, values), number_of(node.right, values)
        if left is not None and right is not None:
            return left + right if isinstance(node.op, ast.Add) else left * right
    return None


class _Joined:
    """A kernel whose pieces become one; `join` changes it, if it can."""

    def __init__(
        self,
        node: ast.FunctionDef,
        pieces: dict[str, _Piece],
        count: int,
        width: int,
        values: Mapping[str, int],
    ) -> None:
        self.node, self.pieces, self.count = node, pieces, count
        self.width, self.values = width, values
        self.sums: set[str] = set()

    def join(self) -> bool:
        """Whether all pieces had their like."""
        while self._find_more():
            pass
        if not any(piece.family for piece in self.pieces.values()):
            return False
        kept = [self._kept(body) for body in bodies(self.node)]
        whole: list[list[ast.stmt]] = []
        for body in kept:
            if body is None:
                return False
            whole.append(body)
        for old, new in zip(bodies(self.node), whole, strict=True):
            old[:] = new
        return True

    def _find_more(self) -> bool:
        """Whether names were found that are made alike of the pieces known so far."""
        alike: dict[str, dict[int, str]] = {}
        for statement in ast.walk(self.node):
            name = target_of(statement) if isinstance(statement, ast.stmt) else None
            if name is None or name in self.pieces:
                continue
            assert isinstance(statement, ast.Assign)
            numbers = self._numbers(statement.value)
            if len(numbers) == 1:
                text = self._text(statement.value, name)
                alike.setdefault(text, {})[numbers.pop()] = name
        for text, named in alike.items():
            if len(named) < self.count:
                continue
            if len(set(named.values())) == 1:
                self.sums.add(text)
            elif len(set(named.values())) == self.count:
                family = 1 + max(piece.family for piece in self.pieces.values())
                self.pieces.update({n: _Piece(family, k) for k, n in named.items()})
                return True
        return False

    def _numbers(self, node: ast.AST) -> set[int]:
        return {self.pieces[n].number for n in names_in(node) if n in self.pieces}

    def _text(self, node: ast.AST, own: str = "") -> str:
        """A node in words that are the same for all pieces."""
        return ast.unparse(_Anonymous(self.pieces, own).visit(copy.deepcopy(node)))

    def _kept(self, body: list[ast.stmt]) -> list[ast.stmt] | None:
        """A body with what is done for the first piece done for all; None where that is not so."""
        done: dict[int, list[str]] = {number: [] for number in range(self.count)}
        places: dict[str, list[int]] = {}
        kept: list[ast.stmt] = []
        for place, statement in enumerate(body):
            if isinstance(statement, BRANCHING):
                head = statement.iter if isinstance(statement, ast.For) else statement.test
                if self._numbers(head):
                    return None
                kept.append(statement)
                continue
            numbers = self._numbers(statement)
            if not numbers:
                kept.append(statement)
                continue
            if len(numbers) > 1 or not self._is_columnwise(statement):
                return None
            like = self._like(statement)
            done[min(numbers)].append(like)
            places.setdefault(like, []).append(place)
            if numbers == {0}:
                kept.append(_Widened(self.width, self.count, self.values).visit(statement))
        if len({tuple(likes) for likes in done.values()}) > 1:
            return None
        return kept if all(self._is_free(body, *found) for found in places.values()) else None

    def _is_free(self, body: list[ast.stmt], first: int, *others: int) -> bool:
        """Whether what is done alike at several places of a body can be done at the first."""
        if not others:
            return True
        own = {first, *others}
        between = [s for i, s in enumerate(body[: max(others)]) if i > first and i not in own]
        moved = [body[place] for place in others]
        if any(isinstance(s, BRANCHING) and self._numbers(s) for s in between):
            return False
        if any(_calls(s, WRITES) for s in (*moved, *between)) and any(
            _calls(s, ("tl.load", *WRITES)) and not self._numbers(s) for s in between
        ):
            return False
        written = assigned_in(moved) - set(self.pieces)
        read = {name for statement in moved for name in names_in(statement)} - set(self.pieces)
        return not (assigned_in(between) & read) and not any(names_in(s) & written for s in between)

    def _like(self, statement: ast.stmt) -> str:
        """What a statement does, in words that are the same for all pieces."""
        name = target_of(statement)
        if name in self.pieces and self._is_vector(statement):
            same = [n for n, piece in self.pieces.items() if piece == self.pieces[name]]
            return f"columns {same.index(name)}"
        return self._text(statement)

    def _is_vector(self, statement: ast.stmt) -> bool:
        return (
            isinstance(statement, ast.Assign) and _vector(statement.value, self.values) is not None
        )

    def _is_columnwise(self, statement: ast.stmt) -> bool:
        """Whether each column of what a statement makes depends on that column alone."""
        if isinstance(statement, ast.Assign):
            name = target_of(statement)
            if name is None:
                return False
            if name not in self.pieces:
                return self._is_sum(statement, name)
            return self._is_vector(statement) or self._mixes_nothing(statement.value)
        return isinstance(statement, ast.Expr) and self._mixes_nothing(statement.value)

    def _is_sum(self, statement: ast.Assign, name: str) -> bool:
        """`s = s + tl.dot(a, tl.trans(b))` of pieces `a` and `b`."""
        value = statement.value
        if self._text(value, name) not in self.sums or not isinstance(value, ast.BinOp):
            return False
        product = value.right
        if ast.unparse(value.left) != name or not isinstance(value.op, ast.Add):
            return False
        if not (isinstance(product, ast.Call) and called(product) == "tl.dot"):
            return False
        if len(product.args) != 2 or called(product.args[1]) != "tl.trans":
            return False
        other = product.args[1]
        assert isinstance(other, ast.Call)
        sides = (product.args[0], other.args[0])
        return len(other.args) == 1 and all(
            isinstance(side, ast.Name) and side.id in self.pieces for side in sides
        )

    def _mixes_nothing(self, node: ast.AST) -> bool:
        if not self._numbers(node):
            return True
        if isinstance(node, ast.Subscript):
            return ast.unparse(node.slice) in ("None, :", "(None, :)") and isinstance(
                node.value, ast.Name
            )
        if isinstance(node, ast.Call):
            name = called(node)
            if name == "tl.dot":
                behind = [*node.args[2:], *(k.value for k in node.keywords)]
                if self._numbers(_undressed(node.args[0])) or len(node.args) < 2:
                    return False
                return all(self._mixes_nothing(n) for n in (node.args[1], *behind))
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
                return self._mixes_nothing(node.func.value)
            if name not in COLUMNWISE:
                return False
        if called(node) == "tl.arange":
            return False
        return all(self._mixes_nothing(child) for child in ast.iter_child_nodes(node))


def _undressed(node: ast.expr) -> ast.expr:
    """An operand without the cast to another one's format: `p.to(x.dtype)` holds no `x`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        words = [ast.unparse(argument) for argument in node.args]
        if node.func.attr == "to" and len(words) == 1 and words[0].endswith(".dtype"):
            return node.func.value
    return node


class _Anonymous(ast.NodeTransformer):
    """Gives a piece the name of its family, and a statement's own name a common one."""

    def __init__(self, pieces: Mapping[str, _Piece], own: str) -> None:
        self.pieces = pieces
        self.own = own

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == self.own:
            return ast.Name("own", node.ctx)
        if node.id in self.pieces:
            return ast.Name(f"piece_of_{self.pieces[node.id].family}", node.ctx)
        return node


class _Widened(ast.NodeTransformer):
    """The first piece's columns become all columns."""

    def __init__(self, width: int, count: int, values: Mapping[str, int]) -> None:
        self.width, self.count, self.values = width, count, values

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        sizes: list[ast.expr] = []
        if called(node) == "tl.arange":
            sizes = node.args
        elif called(node) in ("tl.zeros", "tl.full") and node.args:
            shape = node.args[0]
            sizes = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else []
        if sizes and number_of(sizes[-1], self.values) == self.width:
            sizes[-1] = ast.BinOp(ast.Constant(self.count), ast.Mult(), sizes[-1])
        return node


def _calls(statement: ast.stmt, names: tuple[str, ...]) -> bool:
    return any(called(inner).startswith(names) for inner in ast.walk(statement))
