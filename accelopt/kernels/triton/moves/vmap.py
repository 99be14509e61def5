"""A kernel's body for several values of one scalar at once, as a new leading axis (as JAX's `vmap`).

What depends on the number gets the axis: a scalar becomes a vector, a vector a tile, and what runs
along a vector runs along the tile's second axis. A sum of products of such a vector with a tile
that all values share becomes a matrix product, which is what the tensor core is for and what makes
one load serve all of them.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from accelopt.kernels.triton.moves.source import called, names_in
from accelopt.parsing import parse_expression

ELEMENTWISE = {
    "tl.where", "tl.maximum", "tl.minimum", "tl.exp", "tl.exp2", "tl.log", "tl.log2", "tl.sqrt",
    "tl.rsqrt", "tl.abs", "tl.sigmoid", "tl.fma", "tl.math.exp", "tl.math.exp2",
    "tl.math.log", "tl.math.log2", "tl.math.sqrt", "tl.math.rsqrt",
}  # fmt: skip
REDUCTIONS = {"tl.sum", "tl.max", "tl.min"}
RANGES = {"range", "tl.range", "tl.static_range"}
NUMBERS = {"tl.program_id", "tl.cdiv", "float", "int", "min", "max", "tl.num_programs"}


class NotMappable(Exception):
    """The body cannot be written for several values at once."""


class RankedExpression(NamedTuple):
    """An expression, the rank it had, and whether it has the new axis.

    `line` is set for a vector with the axis that was given a second one, `x[None, :]` (1) or
    `x[:, None]` (0): it may only be multiplied by a shared tile and summed.
    """

    node: ast.expr
    rank: int
    mapped: bool = False
    line: int | None = None


class Vmap:
    """Rewrites statements; `env` says what is known of each name, until nothing new is found.

    `count` names the length of the axis. `known` maps the text of expressions, the number itself
    and what is made of it in a way of the caller's own, to what takes their place. Counted are the
    `products` made and the `accesses` that differ along the axis.
    """

    def __init__(self, count: str, known: dict[str, RankedExpression]) -> None:
        self.count = count
        self.known = known
        self.env: dict[str, RankedExpression] = {}
        self.products = 0
        self.accesses = 0

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The statements in their new form; raises NotMappable."""
        for _ in range(len(statements) + 8):
            before, self.products, self.accesses = dict(self.env), 0, 0
            written = [self._statement(statement) for statement in statements]
            if {k: v[1:] for k, v in before.items()} == {k: v[1:] for k, v in self.env.items()}:
                return written
        raise NotMappable("the ranks of names do not settle")

    def _statement(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, ast.Assign):
            return self._assign(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            read = ast.Name(node.target.id, ast.Load())
            value = self._value(ast.BinOp(read, node.op, node.value))
            if not value.mapped and not self._is_mapped(node.target.id):
                plain = self._value(node.value)
                return ast.AugAssign(node.target, node.op, plain.node)
            return self._stored(node.target.id, value)
        if isinstance(node, ast.Expr):
            if called(node.value) == "tl.store":
                assert isinstance(node.value, ast.Call)
                return ast.Expr(self._store(node.value))
            return ast.Expr(self._plain(node.value))
        if isinstance(node, ast.If):
            body = [self._statement(s) for s in node.body]
            return ast.If(self._plain(node.test), body, [self._statement(s) for s in node.orelse])
        if isinstance(node, ast.While) and not node.orelse:
            return ast.While(self._plain(node.test), [self._statement(s) for s in node.body], [])
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and not node.orelse:
            if called(node.iter) not in RANGES:
                raise NotMappable(ast.unparse(node.iter))
            assert isinstance(node.iter, ast.Call)
            self._know(node.target.id, 0, False)
            ends = [self._plain(end) for end in node.iter.args]
            steps = ast.Call(node.iter.func, ends, node.iter.keywords)
            body = [self._statement(s) for s in node.body]
            return ast.For(node.target, steps, body, [], lineno=node.lineno)
        if isinstance(node, (ast.Pass, ast.Break, ast.Continue, ast.Return)):
            return node
        raise NotMappable(ast.unparse(node))

    def _assign(self, node: ast.Assign) -> ast.stmt:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in self.known:
                raise NotMappable(f"{name} is stored again")
            return self._stored(name, self._value(node.value))
        raise NotMappable(ast.unparse(node))

    def _stored(self, name: str, value: RankedExpression) -> ast.stmt:
        if value.line is not None:
            raise NotMappable(f"{name} is a tile of its own for every value")
        self._know(name, value.rank, value.mapped)
        written = value.node
        if self._is_mapped(name) and not value.mapped:
            written = self._spread(value)
        return ast.Assign([ast.Name(name, ast.Store())], written, lineno=0)

    def _know(self, name: str, rank: int, mapped: bool) -> None:
        old = self.env.get(name)
        if old is not None and old.rank != rank:
            raise NotMappable(f"{name} has rank {old.rank} and {rank}")
        mapped = mapped or (old is not None and old.mapped)
        self.env[name] = RankedExpression(ast.Name(name, ast.Load()), rank, mapped)

    def _is_mapped(self, name: str) -> bool:
        return name in self.env and self.env[name].mapped

    def _spread(self, value: RankedExpression) -> ast.expr:
        """A value without the axis, where one with it is wanted."""
        node = value.node
        if isinstance(node, ast.Call) and called(node) in ("tl.zeros", "tl.full"):
            shape = node.args[0] if node.args else None
            if isinstance(shape, (ast.Tuple, ast.List)):
                axis = ast.Name(self.count, ast.Load())
                longer = ast.List([axis, *shape.elts], ast.Load())
                return ast.Call(node.func, [longer, *node.args[1:]], node.keywords)
        if value.rank > 1:
            raise NotMappable(f"{ast.unparse(node)} would be a tile for every value")
        if value.rank == 0 and names_in(node) <= {"float"}:
            return _parsed(f"tl.full([{self.count}], {ast.unparse(node)}, dtype=tl.float32)")
        shape_text = f"[{self.count}]" if value.rank == 0 else f"[{self.count}, 1]"
        lined = ast.unparse(self._aligned(value, value.rank))
        return _parsed(f"tl.zeros({shape_text}, dtype=tl.float32) + ({lined})")

    def _plain(self, node: ast.expr) -> ast.expr:
        """An expression that must not depend on the axis."""
        value = self._value(node)
        if value.mapped:
            raise NotMappable(ast.unparse(node))
        return value.node

    def _aligned(self, value: RankedExpression, rank: int) -> ast.expr:
        """The expression as it stands beside values of `rank` that have the axis."""
        if value.line is not None or rank > 1:
            raise NotMappable(ast.unparse(value.node))
        if value.mapped:
            return value.node if value.rank == rank else _indexed(value.node, "[:, None]")
        return _indexed(value.node, "[None, :]") if value.rank == 1 else value.node

    def _together(self, parts: list[RankedExpression]) -> tuple[list[ast.expr], int, bool]:
        """The operands of something elementwise, aligned; its rank; whether it has the axis."""
        rank, mapped = max((p.rank for p in parts), default=0), any(p.mapped for p in parts)
        if not mapped:
            return [p.node for p in parts], rank, False
        return [self._aligned(p, rank) for p in parts], rank, True

    def _value(self, node: ast.expr) -> RankedExpression:
        found = self.known.get(ast.unparse(node))
        if found is not None:
            return found
        if isinstance(node, ast.Name):
            return self.env.get(node.id, RankedExpression(node, 0))
        if isinstance(node, (ast.Constant, ast.Attribute)):
            return RankedExpression(node, 0)
        if isinstance(node, ast.BinOp):
            operands, rank, mapped = self._together(
                [self._value(node.left), self._value(node.right)]
            )
            return RankedExpression(ast.BinOp(operands[0], node.op, operands[1]), rank, mapped)
        if isinstance(node, ast.UnaryOp):
            inner = self._value(node.operand)
            return inner._replace(node=ast.UnaryOp(node.op, inner.node))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            pair = [self._value(node.left), self._value(node.comparators[0])]
            operands, rank, mapped = self._together(pair)
            return RankedExpression(ast.Compare(operands[0], node.ops, operands[1:]), rank, mapped)
        if isinstance(node, ast.BoolOp):
            return RankedExpression(ast.BoolOp(node.op, [self._plain(v) for v in node.values]), 0)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise NotMappable(ast.unparse(node))

    def _subscript(self, node: ast.Subscript) -> RankedExpression:
        inner = self._value(node.value)
        axes = ast.unparse(node.slice).strip("()").replace(" ", "")
        if axes not in ("None,:", ":,None") or inner.rank != 1 or inner.line is not None:
            raise NotMappable(ast.unparse(node))
        if inner.mapped:
            return inner._replace(rank=2, line=1 if axes == "None,:" else 0)
        return RankedExpression(ast.Subscript(inner.node, node.slice, ast.Load()), 2)

    def _call(self, node: ast.Call) -> RankedExpression:
        name = called(node)
        if name in REDUCTIONS:
            return self._reduction(node, name)
        if name == "tl.load":
            return self._load(node)
        if name in ("tl.zeros", "tl.full"):
            shape = node.args[0] if node.args else None
            if not isinstance(shape, (ast.Tuple, ast.List)):
                raise NotMappable(ast.unparse(node))
            return RankedExpression(node, len(shape.elts))
        if name == "tl.arange":
            return RankedExpression(node, 1)
        if name in NUMBERS:
            return RankedExpression(
                ast.Call(node.func, [self._plain(a) for a in node.args], node.keywords), 0
            )
        if name == "tl.trans":
            inner = self._value(node.args[0])
            if inner.mapped or len(node.args) > 1:
                raise NotMappable(ast.unparse(node))
            return inner._replace(node=ast.Call(node.func, [inner.node], []))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            inner = self._value(node.func.value)
            function = ast.Attribute(inner.node, "to", ast.Load())
            return inner._replace(node=ast.Call(function, node.args, node.keywords))
        if name == "tl.cast" and len(node.args) == 2 and not node.keywords:
            inner = self._value(node.args[0])
            to = ast.Attribute(inner.node, "to", ast.Load())
            return inner._replace(node=ast.Call(to, node.args[1:], []))
        if name in ELEMENTWISE:
            if node.keywords:
                raise NotMappable(ast.unparse(node))
            operands, rank, mapped = self._together([self._value(a) for a in node.args])
            return RankedExpression(ast.Call(node.func, operands, []), rank, mapped)
        raise NotMappable(f"the rank of {ast.unparse(node)} is not known")

    def _reduction(self, node: ast.Call, name: str) -> RankedExpression:
        axis = _axis(node)
        factors = _factors(node.args[0]) if name == "tl.sum" else []
        values = [self._value(factor) for factor in factors]
        if any(value.line is not None for value in values):
            return self._product(values, axis)
        inner = self._value(node.args[0])
        if not inner.mapped:
            return RankedExpression(
                ast.Call(node.func, [inner.node, *node.args[1:]], node.keywords),
                0 if axis is None else inner.rank - 1,
            )
        if inner.rank != 1 or inner.line is not None or axis not in (None, 0, -1):
            raise NotMappable(ast.unparse(node))
        return RankedExpression(_parsed(f"{name}({ast.unparse(inner.node)}, axis=1)"), 0, True)

    def _product(self, values: list[RankedExpression], axis: int | None) -> RankedExpression:
        """`sum(tile * x[None, :], 1)` and `sum(tile * x[:, None], 0)`, x with the axis."""
        lines = [v for v in values if v.line is not None]
        tiles = [v for v in values if v.rank == 2 and v.line is None]
        rest = [v for v in values if v.rank < 2]
        if len(lines) != 1 or len(tiles) != 1 or tiles[0].mapped or lines[0].line != axis:
            raise NotMappable("no sum of products over one axis")
        if any(v.rank for v in rest):
            raise NotMappable("a third factor is no number")
        tile, vector = ast.unparse(tiles[0].node), ast.unparse(lines[0].node)
        made = _parsed(f"tl.dot({vector}, {f'tl.trans({tile})' if axis == 1 else tile})")
        self.products += 1
        for factor in rest:
            made = ast.BinOp(made, ast.Mult(), self._aligned(factor, 1))
        return RankedExpression(made, 1, True)

    def _load(self, node: ast.Call) -> RankedExpression:
        pointer, call = self._access(node)
        return RankedExpression(call, pointer.rank, pointer.mapped)

    def _store(self, node: ast.Call) -> ast.expr:
        return self._access(node)[1]

    def _access(self, node: ast.Call) -> tuple[RankedExpression, ast.expr]:
        """The pointer and the call, everything in it in the pointer's shape."""
        pointer = self._value(node.args[0])
        if pointer.mapped and pointer.rank > 1:
            raise NotMappable(f"{ast.unparse(node)} is a tile of its own for every value")
        arguments = [pointer.node, *(self._beside(a, pointer) for a in node.args[1:])]
        keywords = [
            ast.keyword(k.arg, self._beside(k.value, pointer))
            if k.arg in ("mask", "other", "value")
            else k
            for k in node.keywords
        ]
        if pointer.mapped:
            self.accesses += 1
        return pointer, ast.Call(node.func, arguments, keywords)

    def _beside(self, node: ast.expr, pointer: RankedExpression) -> ast.expr:
        """A mask, a value or a default, in the shape of its pointer."""
        value = self._value(node)
        if not pointer.mapped:
            if value.mapped:
                raise NotMappable(f"{ast.unparse(node)} differs where its address does not")
            return value.node
        return self._aligned(value, pointer.rank)


def _axis(node: ast.Call) -> int | None:
    """The axis of a reduction, None for all; raises NotMappable for what else may be asked for."""
    given = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "axis")]
    if len(given) > 1 or any(k.arg != "axis" for k in node.keywords):
        raise NotMappable(ast.unparse(node))
    if not given:
        return None
    try:
        return int(ast.unparse(given[0]))
    except ValueError:
        raise NotMappable(ast.unparse(node)) from None


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _indexed(node: ast.expr, index: str) -> ast.expr:
    return _parsed(f"({ast.unparse(node)}){index}")


def _parsed(text: str) -> ast.expr:
    return parse_expression(text)
