"""Kernels spelled the one way that the rest of this package reads."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from accelopt.kernels.triton.moves.gluon.shapes import NotWritten, Shapes, new_axis
from accelopt.kernels.triton.moves.loops import Renamed, bodies, fresh_name
from accelopt.kernels.triton.moves.source import (
    assigned_in,
    called,
    names_in,
    read_first,
    target_of,
)
from accelopt.parsing import parse_expression, parse_python


def spelled(node: ast.FunctionDef) -> ast.FunctionDef:
    """A kernel with each product in a statement `x = x + tl.dot(a, b)`, and each tile of keys
    loaded by rows, in one expression; raises NotWritten where something has no such form."""
    node = _Sums().visit(node)
    for body in bodies(node):
        _one_branch(body, node)
        _inline_products(body, node)
    for body in bodies(node):
        for place in reversed(range(len(body))):
            body[place : place + 1] = _apart(body[place], node)
    for loop in [
        n for n in ast.walk(node) if isinstance(n, ast.For) and "tl.dot" in ast.unparse(n)
    ]:
        _inline_addresses(loop, node)
        _by_rows(loop, node)
    return node


def _one_branch(body: list[ast.stmt], node: ast.FunctionDef) -> None:
    """`if c: store(p, v) else: store(p, o)` as `store(p, where(c, v, o))`: addresses are made once.

    Where nothing that the branch makes is read behind it, it may be made in any case.
    """
    for place, statement in reversed(list(enumerate(body))):
        if not (isinstance(statement, ast.If) and statement.orelse and _is_alike(statement)):
            continue
        other = dict(found for s in statement.orelse if (found := _stored(s)) is not None)
        if not _read_behind(statement, node) & assigned_in(statement.body):
            body[place : place + 1] = [_chosen(s, statement.test, other) for s in statement.body]


def _is_alike(statement: ast.If) -> bool:
    """Whether both branches store to the same places, and the first makes all that the second one
    makes, in the same way; nothing is loaded, and what one makes is not read by the other."""
    stores = [
        sorted(found[0] for s in part if (found := _stored(s)) is not None)
        for part in (statement.body, statement.orelse)
    ]
    both = [*statement.body, *statement.orelse]
    rest = [s for s in both if _stored(s) is None]
    if stores[0] != stores[1] or len(set(stores[0])) != len(stores[0]):
        return False
    if any(target_of(s) is None for s in rest) or any("tl.load" in ast.unparse(s) for s in both):
        return False
    shared = assigned_in(statement.orelse)
    texts = {ast.unparse(s) for s in rest if target_of(s) in shared}
    first_read = read_first(statement.body) | read_first(statement.orelse)
    values = [found[1] for s in statement.orelse if (found := _stored(s)) is not None]
    return not (
        len(texts) != len(shared)
        or shared - assigned_in(statement.body)
        or shared & first_read
        or any(names_in(parse_expression(value)) & shared for value in values)
        or {n for s in statement.orelse for n in names_in(s)} & assigned_in(statement.body) - shared
        or names_in(statement.test) & assigned_in(both)
    )


def _read_behind(statement: ast.stmt, node: ast.FunctionDef) -> set[str]:
    """Names that are read behind a statement, as they were before it or as it made them."""
    read = set[str]()
    for part in bodies(node):
        for place, one in enumerate(part):
            if any(inner is statement for inner in ast.walk(one)):
                read |= read_first(part[place + 1 :])
                read |= read_first(one.body) if isinstance(one, (ast.For, ast.While)) else set()
    return read


def _chosen(statement: ast.stmt, test: ast.expr, other: Mapping[str, str]) -> ast.stmt:
    """A store of one value or the other; what else a branch does as it is."""
    found = _stored(statement)
    if found is not None:
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        chosen = f"tl.where({ast.unparse(test)}, {found[1]}, {other[found[0]]})"
        statement.value.args[1] = parse_expression(chosen)
    return statement


def _stored(statement: ast.stmt) -> tuple[str, str] | None:
    """Where a store stores to, with its mask, and what, as text."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(call, ast.Call) and called(call) == "tl.store" and len(call.args) == 2):
        return None
    masks = ", ".join(f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords)
    return f"{ast.unparse(call.args[0])}, {masks}", ast.unparse(call.args[1])


def queries_first(node: ast.FunctionDef) -> None:
    """Loads the tiles that the turns of a loop over sequences have in common before anything else.

    `queries_together` makes rows anew in each turn, with `tl.minimum(turns, 0)` that no compiler
    knows to be 0, for Triton would keep the addresses of all loads in registers. Here they are made
    once, and the copies of queries need not wait until the first sequence is found.
    """
    for loop in [s for s in node.body if isinstance(s, ast.While)]:
        _Zeros({f"tl.minimum({name}, 0)" for name in _counters(node, loop)}).visit(loop)
        for statement in list(loop.body):
            name = target_of(statement)
            if name is None or _mentions(loop, name) != 2 or not isinstance(statement, ast.Assign):
                continue
            if called(statement.value) != "tl.load" or f"tl.dot({name}, " not in ast.unparse(loop):
                continue
            value = _opened(statement.value, statement, loop)
            if names_in(value) & assigned_in([loop]):
                continue
            loop.body.remove(statement)
            end = node.body.index(loop)
            while end and not _must_precede(node.body[end - 1], names_in(value)):
                end -= 1
            node.body.insert(end, ast.Assign(statement.targets, value, lineno=0))


def _must_precede(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement makes what is read, or may leave the kernel, or is such a load itself."""
    leaves = any(isinstance(n, ast.Return) for n in ast.walk(statement))
    is_tile = isinstance(statement, ast.Assign) and called(statement.value) == "tl.load"
    return leaves or is_tile or bool(assigned_in([statement]) & names)


def _counters(node: ast.FunctionDef, loop: ast.While) -> set[str]:
    """Names that begin with 0 and of which one more is made in each turn, no more."""
    made: dict[str, set[str]] = {}
    for statement in ast.walk(node):
        if isinstance(statement, ast.Assign) and (name := target_of(statement)) is not None:
            made.setdefault(name, set()).add(ast.unparse(statement.value))
    return {
        name
        for name, values in made.items()
        if values == {"0", f"{name} + 1"} and name in assigned_in(loop.body)
    }


def _opened(value: ast.expr, at: ast.stmt, loop: ast.While) -> ast.expr:
    """An expression with what a turn made before it in the place of its names."""
    value = copy.deepcopy(value)
    for statement in reversed(loop.body[: loop.body.index(at)]):
        name = target_of(statement)
        if name in names_in(value) and isinstance(statement, ast.Assign):
            value = Renamed({}, {str(name): statement.value}).visit(value)
    return value


class _Zeros(ast.NodeTransformer):
    """Leaves out what is added and known to be 0."""

    def __init__(self, zeros: set[str]) -> None:
        self.zeros = zeros

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        is_zero = isinstance(node.op, ast.Add) and ast.unparse(node.right) in self.zeros
        return node.left if is_zero else node


class _Sums(ast.NodeTransformer):
    """Writes `x += y` as `x = x + y`, `x = tl.dot(a, b, x)` as `x = x + tl.dot(a, b)`, and leaves
    out the mask of a load or a store that is None."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if called(node) in ("tl.load", "tl.store"):
            node.keywords = [k for k in node.keywords if ast.unparse(k.value) != "None"]
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            raise NotWritten(ast.unparse(node))
        read = ast.Name(node.target.id, ast.Load())
        return self.visit_Assign(
            ast.Assign([node.target], ast.BinOp(read, node.op, node.value), lineno=0)
        )

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        value = node.value
        if called(value) == "tl.dot" and isinstance(value, ast.Call):
            added = [*value.args[2:], *(k.value for k in value.keywords if k.arg == "acc")]
            if len(added) == 1 and len(value.args) + len(value.keywords) == 3:
                value.args, value.keywords = value.args[:2], []
                node.value = ast.BinOp(added[0], ast.Add(), value)
        return node


def _inline_products(body: list[ast.stmt], node: ast.FunctionDef) -> None:
    """`y = tl.dot(a, b); x = x + y` as `x = x + tl.dot(a, b)`, where nothing else reads y."""
    for place, statement in reversed(list(enumerate(body))):
        name = target_of(statement)
        if name is None or not isinstance(statement, ast.Assign):
            continue
        if called(statement.value) != "tl.dot" or _mentions(node, name) != 2:
            continue
        for later_place, later in enumerate(body[place + 1 :], place + 1):
            if name in names_in(later):
                value = later.value if isinstance(later, ast.Assign) else None
                between = assigned_in(body[place + 1 : later_place])
                if isinstance(value, ast.BinOp) and not between & names_in(statement.value):
                    Renamed({}, {name: statement.value}).visit(value)
                    del body[place]
                break


def _apart(statement: ast.stmt, node: ast.FunctionDef) -> list[ast.stmt]:
    """`x = e + tl.dot(a, b)` as `x = e; x = x + tl.dot(a, b)`, and what else is made of a product
    as a sum of its own, added to zeros, and the rest."""
    name = target_of(statement)
    if name is None or not isinstance(statement, ast.Assign):
        return [statement]
    products = [n for n in ast.walk(statement.value) if called(n) == "tl.dot"]
    if not products:
        return [statement]
    if len(products) > 1:
        raise NotWritten(ast.unparse(statement))
    value, product = statement.value, products[0]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        first = value.right if value.left is product else value.left
        if product in (value.left, value.right) and name not in names_in(product):
            text = ast.unparse(product)
            added = parse_python(f"{name} = {name} + {text}").body
            is_plain = isinstance(first, ast.Name) and first.id == name
            return added if is_plain else [ast.Assign(statement.targets, first, lineno=0), *added]
    rows, columns = Shapes(node).of(product).axes  # type: ignore[arg-type]
    total = name if value is product and name not in names_in(product) else fresh_name(
        f"{name}_product", node
    )  # fmt: skip
    sums = parse_python(
        f"{total} = tl.zeros([{rows}, {columns}], dtype=tl.float32)\n"
        f"{total} = {total} + {ast.unparse(product)}"
    ).body
    if total == name:
        return sums
    statement.value = _replaced(value, product, ast.Name(total, ast.Load()))
    return [*sums, statement]


def _inline_addresses(loop: ast.For, node: ast.FunctionDef) -> None:
    """Puts tiles of addresses and of conditions where a load reads them by name."""
    shapes, carried = Shapes(node), read_first(loop.body)
    made: dict[str, ast.expr] = {}
    for statement in loop.body:
        name = target_of(statement)
        if name is None or not isinstance(statement, ast.Assign):
            made = _still_made(made, assigned_in([statement]))
            continue
        for call in ast.walk(statement.value):
            if isinstance(call, ast.Call) and called(call) == "tl.load":
                call.args = [Renamed({}, made).visit(argument) for argument in call.args]
                for keyword in call.keywords:
                    keyword.value = Renamed({}, made).visit(keyword.value)
        is_tile = len(shapes.of_names[name].axes) == 2 and name not in carried
        value = Renamed({}, made).visit(copy.deepcopy(statement.value))
        made = _still_made(made, {name})
        if is_tile and not {"tl.dot", "tl.load"} & {called(n) for n in ast.walk(value)}:
            made[name] = value
    for name in reversed(made):
        own = [s for s in loop.body if target_of(s) == name]
        if sum(_mentions(s, name) for s in own) == _mentions(node, name):
            loop.body[:] = [s for s in loop.body if target_of(s) != name]


def _still_made(made: Mapping[str, ast.expr], stored: set[str]) -> dict[str, ast.expr]:
    """The expressions, by name, that are the same once other names get new values."""
    return {name: value for name, value in made.items() if not stored & {name, *names_in(value)}}


def _by_rows(loop: ast.For, node: ast.FunctionDef) -> None:
    """Loads tiles of keys by rows where a kernel loads them by columns."""
    if not (isinstance(loop.iter, ast.Call) and loop.iter.args):
        raise NotWritten(ast.unparse(loop.iter))
    shapes, keys = Shapes(node), ast.unparse(loop.iter.args[-1])
    turned: set[str] = set()
    for statement in loop.body:
        name = target_of(statement)
        if name is None or not isinstance(statement, ast.Assign):
            continue
        value = shapes.of_names[name]
        if called(statement.value) == "tl.load" and len(value.axes) == 2 and value.axes[1] == keys:
            statement.value = _Turned().visit(statement.value)
            turned.add(name)
    if turned:
        for statement in loop.body:
            _TurnedUses(turned).visit(statement)


class _Turned(ast.NodeTransformer):
    """Exchanges rows and columns: `x[:, None]` and `x[None, :]`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        text = "x[None, :]" if new_axis(node) == 1 else "x[:, None]"
        turned = parse_expression(text)
        assert isinstance(turned, ast.Subscript)
        return ast.Subscript(node.value, turned.slice, ast.Load())


class _TurnedUses(ast.NodeTransformer):
    """Reads tiles that are loaded by rows as their columns were read."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if called(node) == "tl.trans" and len(node.args) == 1:
            inner = node.args[0]
            if isinstance(inner, ast.Name) and inner.id in self.names:
                return inner
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.names and isinstance(node.ctx, ast.Load):
            return parse_expression(f"tl.trans({node.id})")
        return node


def _replaced(node: ast.expr, old: ast.AST, new: ast.expr) -> ast.expr:
    class Put(ast.NodeTransformer):
        def visit_Call(self, call: ast.Call) -> ast.expr:
            if call is old:
                return new
            self.generic_visit(call)
            return call

    written = Put().visit(node)
    assert isinstance(written, ast.expr)
    return written


def _mentions(node: ast.AST, name: str) -> int:
    return sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))
