"""Moves on the masks of a loop: out of its main part, and no step that nothing sees."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from accelopt.kernels.triton.moves.loops import bodies, fresh_name, is_plain
from accelopt.kernels.triton.moves.source import JitFunction, assigned_in, called, names_in
from accelopt.parsing import parse_python


class _Bound(NamedTuple):
    """A comparison of the running positions with something fixed: position < `limit`."""

    limit: ast.expr
    vector: bool


def peel_masks(kernel: JitFunction) -> ast.FunctionDef | None:
    """Split a loop in two, the first without the masks that only its last steps need.

    Before: `for s in range(0, end, B): p = s + tl.arange(0, B); x = tl.load(q, mask=p < n)`.
    After: the same body without `p < n` for all s whose block lies below every bound, then the
    original loop for the rest. Legal because a block of B positions that ends below the bounds
    passes every removed comparison. None when no loop has such a mask.
    """
    node = copy.deepcopy(kernel.node)
    changed = False
    for body in bodies(node):
        for index, statement in reversed(list(enumerate(body))):
            if isinstance(statement, ast.For) and is_plain(statement):
                split = _split(statement, kernel)
                if split is not None:
                    body[index : index + 1] = split
                    changed = True
    return node if changed else None


def stop_at_bound(kernel: JitFunction) -> ast.FunctionDef | None:
    """End a loop at the last position that any row can see.

    Before: a loop over all keys whose scores are `tl.where(p[None, :] <= last[:, None], s, -inf)`.
    After: the same loop up to `min(end, max(last) + 1)`. Legal where a block whose scores are all
    minus infinity adds nothing, as in an online softmax.
    """
    node = copy.deepcopy(kernel.node)
    changed = False
    for body in bodies(node):
        for index, statement in reversed(list(enumerate(body))):
            if not (isinstance(statement, ast.For) and is_plain(statement)):
                continue
            if "visible_end" in ast.unparse(statement.iter):
                continue  # done before
            assert isinstance(statement.iter, ast.Call)
            end = ast.unparse(statement.iter.args[1])
            bounds = [b for b in _hiding_bounds(statement, node) if ast.unparse(b.limit) != end]
            available = (
                assigned_in(body[:index]) | set(kernel.parameters) | _earlier(node, statement)
            )
            bounds, setup = _resolve(bounds, statement, available)
            if not bounds:
                continue
            for bound in bounds:
                limit = ast.unparse(bound.limit)
                end = f"tl.minimum({end}, {f'tl.max({limit}, axis=0)' if bound.vector else limit})"
            name = fresh_name("visible_end", node)
            lines = [*setup, *parse_python(f"{name} = {end}").body]
            loop = copy.deepcopy(statement)
            assert isinstance(loop.iter, ast.Call)
            loop.iter.args[1] = ast.Name(name, ast.Load())
            body[index : index + 1] = [*lines, loop]
            changed = True
    return node if changed else None


def _earlier(node: ast.FunctionDef, statement: ast.stmt) -> set[str]:
    """Names stored anywhere above a statement."""
    return {
        n.id
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.lineno < statement.lineno
    }


def _positions(loop: ast.For) -> set[str]:
    """What holds the loop variable plus `tl.arange`, one position a lane: names, and sums as text."""
    assert isinstance(loop.target, ast.Name)
    variable = loop.target.id
    ranges = {
        target.id
        for statement in loop.body
        if isinstance(statement, ast.Assign) and called(statement.value).endswith("arange")
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    found = {
        f"{variable} + {name}{axis}" for name in ranges for axis in ("", "[:, None]", "[None, :]")
    }
    for statement in loop.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
            value = statement.value
            sides = (value.left, value.right)
            if isinstance(value.op, ast.Add) and any(_is_name(s, {variable}) for s in sides):
                other = sides[1] if _is_name(sides[0], {variable}) else sides[0]
                if called(other).endswith("arange") or _is_name(other, ranges):
                    found |= {t.id for t in statement.targets if isinstance(t, ast.Name)}
    return found


def _is_name(node: ast.expr, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _bare(node: ast.expr) -> tuple[ast.expr, bool]:
    """An operand without `[None, :]` or `[:, None]`, and whether it had one."""
    if isinstance(node, ast.Subscript) and "None" in ast.unparse(node.slice):
        return node.value, True
    return node, False


def _bound_of(node: ast.expr, positions: set[str]) -> _Bound | None:
    """The upper bound that a comparison puts on the positions; `_resolve` finds if it is fixed."""
    node, _ = _bare(node)
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1):
        return None
    left, right, operator = node.left, node.comparators[0], node.ops[0]
    if isinstance(operator, (ast.Gt, ast.GtE)):
        left, right = right, left
        operator = ast.Lt() if isinstance(operator, ast.Gt) else ast.LtE()
    if not isinstance(operator, (ast.Lt, ast.LtE)):
        return None
    position, _ = _bare(left)
    limit, vector = _bare(right)
    if ast.unparse(position) not in positions:
        return None
    if isinstance(operator, ast.LtE):
        limit = ast.BinOp(limit, ast.Add(), ast.Constant(1))
    return _Bound(limit, vector)


def is_condition(node: ast.expr) -> bool:
    """A comparison, or several joined by `&`."""
    return isinstance(node, ast.Compare) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd)
    )


def conjuncts(node: ast.expr) -> list[ast.expr]:
    """The conditions that `&` joins."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return conjuncts(node.left) + conjuncts(node.right)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.BinOp):
        parts = conjuncts(node.value)
        if len(parts) > 1:
            return [ast.Subscript(part, node.slice, ast.Load()) for part in parts]
    return [node]


def _conditions(loop: ast.For) -> dict[str, ast.expr]:
    """Conditions that the loop's body gives a name."""
    return {
        target.id: statement.value
        for statement in loop.body
        if isinstance(statement, ast.Assign)
        and is_condition(statement.value)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }  # fmt: skip


def _hiding_bounds(loop: ast.For, kernel: ast.FunctionDef) -> list[_Bound]:
    """Bounds of conditions that hide scores: `tl.where(condition, scores, very negative)`."""
    positions = _positions(loop)
    named = _named_numbers(kernel)
    conditions = _conditions(loop)
    found = []
    for node in ast.walk(loop):
        if called(node) == "tl.where" and is_very_negative(node, named):
            assert isinstance(node, ast.Call)
            for part in _expanded(node.args[0], conditions):
                bound = _bound_of(part, positions)
                if bound is not None:
                    found.append(bound)
    return found


def _named_numbers(kernel: ast.FunctionDef) -> dict[str, ast.expr]:
    """The values of names that are stored as one and the same expression everywhere."""
    found: dict[str, set[str]] = {}
    values: dict[str, ast.expr] = {}
    for statement in ast.walk(kernel):
        if isinstance(statement, ast.Assign):
            name = ast.unparse(statement.targets[0])
            found.setdefault(name, set()).add(ast.unparse(statement.value))
            values[name] = statement.value
    return {name: values[name] for name, texts in found.items() if len(texts) == 1}


def is_very_negative(node: ast.AST, named: Mapping[str, ast.expr]) -> bool:
    """Whether a `tl.where` puts a very negative number where its condition fails; `named` are names'
    values."""
    assert isinstance(node, ast.Call)
    if len(node.args) != 3:
        return False
    other = node.args[2]
    if isinstance(other, ast.Name):
        other = named.get(other.id, other)
    if called(other) == "tl.full" and isinstance(other, ast.Call) and len(other.args) > 1:
        other = other.args[1]
    text = ast.unparse(other).replace(" ", "").replace("'", '"')
    if "inf" in text and text.startswith("-"):
        return True
    try:
        return float(text) <= -1e6
    except ValueError:
        return False


def _expanded(node: ast.expr, conditions: dict[str, ast.expr]) -> list[ast.expr]:
    parts: list[ast.expr] = []
    for part in conjuncts(node):
        bare, _ = _bare(part)
        if isinstance(bare, ast.Name) and bare.id in conditions:
            parts += _expanded(conditions[bare.id], conditions)
        else:
            parts.append(part)
    return parts


def _resolve(
    bounds: Sequence[_Bound], loop: ast.For, available: set[str]
) -> tuple[list[_Bound], list[ast.stmt]]:
    """The bounds whose limits are known before the loop, and copies of what defines them."""
    usable: list[_Bound] = []
    setup: list[ast.stmt] = []
    inside = assigned_in(loop.body)
    seen: set[str] = set()
    for bound in bounds:
        needed = _fixed_definitions(names_in(bound.limit) & inside, loop, available, inside)
        text = ast.unparse(bound.limit)
        if needed is None or text in seen:
            continue
        seen.add(text)
        usable.append(bound)
        for statement in needed:
            if ast.unparse(statement) not in {ast.unparse(s) for s in setup}:
                setup.append(copy.deepcopy(statement))
    return usable, setup


def _fixed_definitions(
    names: set[str], loop: ast.For, available: set[str], inside: set[str]
) -> list[ast.stmt] | None:
    """The statements of the body that define `names` from things fixed before the loop."""
    assert isinstance(loop.target, ast.Name)
    wanted, found = set(names), []
    for statement in reversed(loop.body):
        stored = assigned_in([statement])
        if stored & wanted:
            if not isinstance(statement, ast.Assign) or loop.target.id in names_in(statement.value):
                return None
            found.append(statement)
            wanted -= stored
            wanted |= names_in(statement.value) & inside
    return None if wanted else list(reversed(found))


def _split(loop: ast.For, kernel: JitFunction) -> list[ast.stmt] | None:
    positions = _positions(loop)
    assert isinstance(loop.iter, ast.Call)
    start, end, step = loop.iter.args
    if not (isinstance(start, ast.Constant) and start.value == 0) or not positions:
        return None
    candidates = [
        bound
        for node in ast.walk(loop)
        if isinstance(node, ast.Compare) and (bound := _bound_of(node, positions)) is not None
    ]
    available = _earlier(kernel.node, loop) | set(kernel.parameters)
    bounds, setup = _resolve(candidates, loop, available)
    if not bounds:
        return None
    limits = {ast.unparse(bound.limit) for bound in bounds}
    main = copy.deepcopy(loop)
    remover = _MaskRemover(positions, limits)
    main = remover.visit(main)
    if not remover.removed:
        return None
    smallest = ast.unparse(end)
    for bound in bounds:
        limit = ast.unparse(bound.limit)
        if limit == ast.unparse(end):
            continue
        smallest = (
            f"tl.minimum({smallest}, {f'tl.min({limit}, axis=0)' if bound.vector else limit})"
        )
    name = fresh_name("unmasked_end", kernel.node)
    count = f"tl.maximum({smallest}, 0) // {ast.unparse(step)} * {ast.unparse(step)}"
    assert isinstance(main.iter, ast.Call)
    main.iter.args[1] = ast.Name(name, ast.Load())
    rest = copy.deepcopy(loop)
    assert isinstance(rest.iter, ast.Call)
    rest.iter.args[0] = ast.Name(name, ast.Load())
    return [*setup, *parse_python(f"{name} = {count}").body, main, rest]


class _MaskRemover(ast.NodeTransformer):
    """Takes out comparisons that hold in the main loop; a condition that always holds goes whole."""

    def __init__(self, positions: set[str], limits: set[str]) -> None:
        self.positions = positions
        self.limits = limits
        self.true: set[str] = set()
        self.removed = False

    def _simplify(self, node: ast.expr) -> ast.expr | None:
        """What is left of a condition; None when it always holds."""
        kept = []
        for part in conjuncts(node):
            bound = _bound_of(part, self.positions)
            bare, _ = _bare(part)
            always = _is_name(bare, self.true) or (
                bound is not None and ast.unparse(bound.limit) in self.limits
            )
            if always:
                self.removed = True
            else:
                kept.append(part)
        if not kept:
            return None
        left = kept[0]
        for part in kept[1:]:
            left = ast.BinOp(left, ast.BitAnd(), part)
        return left

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        value = node.value
        if is_condition(value) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            left = self._simplify(value)
            if left is None:
                self.true.add(node.targets[0].id)
                return None
            node.value = left
            return node
        self.generic_visit(node)
        same = ast.unparse(node.targets[0]) == ast.unparse(node.value)
        return None if same else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = called(node)
        if name == "tl.where" and len(node.args) == 3:
            left = self._simplify(node.args[0])
            if left is None:
                return node.args[1]
            node.args[0] = left
        elif name in ("tl.load", "tl.store"):
            for keyword in list(node.keywords):
                if keyword.arg == "mask":
                    left = self._simplify(keyword.value)
                    if left is None:
                        node.keywords = [k for k in node.keywords if k.arg not in ("mask", "other")]
                    else:
                        keyword.value = left
        return node
