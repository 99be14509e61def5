"""Mask conditions that can be dropped: always true, or on rows that no store writes."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.masks import conjuncts, is_condition, is_very_negative
from accelopt.kernels.triton.moves.source import JitFunction, called

REDUCTIONS = ("tl.sum", "tl.max", "tl.min", "tl.argmax", "tl.argmin", "tl.cumsum", "tl.sort")


def fewer_conditions(kernel: JitFunction) -> ast.FunctionDef | None:
    """Leave out of masks what always holds, and out of scores what is asked again at every store.

    Before: `s = tl.where((rows < n)[:, None] & seen, s, -inf)` with every store masked by `rows < n`,
    and `d < D` of `d = tl.arange(0, D)`. After: neither. Legal because a row that is not stored may
    hold anything as long as nothing is reduced across rows; a kernel whose loops reduce along the
    first axis, or all axes, keeps what it asks of rows. None when there is nothing to leave out.
    """
    node = copy.deepcopy(kernel.node)
    definitions = _definitions(node)
    unseen = _asked_at_stores(node, definitions) if _keeps_rows_apart(node) else set[str]()
    remover = _Remover(definitions, unseen)
    node = remover.visit(node)
    return node if remover.removed else None


def _definitions(node: ast.FunctionDef) -> dict[str, ast.expr]:
    """What each name is made of, where all its assignments say the same."""
    found: dict[str, ast.expr | None] = {}
    for statement in ast.walk(node):
        if isinstance(statement, (ast.AugAssign, ast.For)):
            found[ast.unparse(statement.target)] = None
        elif isinstance(statement, ast.Assign):
            name = ast.unparse(statement.targets[0])
            value: ast.expr | None = statement.value
            if name in found and (
                found[name] is None or ast.dump(found[name]) != ast.dump(statement.value)  # type: ignore[arg-type]
            ):
                value = None
            found[name] = value
    return {name: value for name, value in found.items() if value is not None}


def _keeps_rows_apart(node: ast.FunctionDef) -> bool:
    """Whether no loop reduces along the first axis or along all."""
    for loop in ast.walk(node):
        if isinstance(loop, (ast.For, ast.While)):
            for call in ast.walk(loop):
                if called(call) in REDUCTIONS:
                    assert isinstance(call, ast.Call)
                    given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "axis")]
                    if [ast.unparse(axis) for axis in given] != ["1"]:
                        return False
    return True


def _canonical(node: ast.expr, definitions: dict[str, ast.expr]) -> str:
    """A comparison's text with ranges in the place of their names, whatever axis they lie along."""

    class Plain(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            made = definitions.get(name.id)
            return made if made is not None and called(made) == "tl.arange" else name

        def visit_Subscript(self, inner: ast.Subscript) -> ast.expr:
            self.generic_visit(inner)
            return inner.value if "None" in ast.unparse(inner.slice) else inner

    return ast.unparse(Plain().visit(copy.deepcopy(node)))


def _parts(node: ast.expr, definitions: dict[str, ast.expr]) -> list[ast.expr]:
    """The comparisons that a condition joins, its names followed."""
    found = []
    for part in conjuncts(node):
        bare = part.value if isinstance(part, ast.Subscript) else part
        made = definitions.get(bare.id) if isinstance(bare, ast.Name) else None
        if made is None or not is_condition(made):
            found.append(part)
            continue
        for inner in _parts(made, definitions):
            if isinstance(part, ast.Subscript):
                found.append(ast.Subscript(inner, part.slice, ast.Load()))
            else:
                found.append(inner)
    return found


def _asked_at_stores(node: ast.FunctionDef, definitions: dict[str, ast.expr]) -> set[str]:
    """What the masks of all stores ask."""
    asked: set[str] | None = None
    for call in ast.walk(node):
        if called(call).startswith("tl.atomic"):
            return set()
        if called(call) == "tl.store":
            assert isinstance(call, ast.Call)
            masks = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "mask")]
            own = {_canonical(p, definitions) for mask in masks for p in _parts(mask, definitions)}
            asked = own if asked is None else asked & own
    return asked or set()


class _Remover(ast.NodeTransformer):
    """Takes conditions apart and leaves out what need not be asked."""

    def __init__(self, definitions: dict[str, ast.expr], unseen: set[str]) -> None:
        self.definitions = definitions
        self.unseen = unseen
        self.removed = False

    def _kept(self, node: ast.expr, *, hides: bool) -> ast.expr | None:
        """What is left of a condition; None when it always holds."""
        left: ast.expr | None = None
        changed = False
        for part in _parts(node, self.definitions):
            text = _canonical(part, self.definitions)
            if self._always(part) or (hides and text in self.unseen):
                changed = True
                continue
            left = part if left is None else ast.BinOp(left, ast.BitAnd(), part)
        if not changed:
            return node
        self.removed = True
        return copy.deepcopy(left)

    def _always(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Constant):
            return node.value is True
        if isinstance(node, ast.Subscript):
            return self._always(node.value)
        if not (isinstance(node, ast.Compare) and len(node.ops) == 1):
            return False
        bound = ast.unparse(node.comparators[0])
        text = _canonical(node.left, self.definitions)
        return isinstance(node.ops[0], ast.Lt) and text == f"tl.arange(0, {bound})"

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = called(node)
        if name == "tl.where" and len(node.args) == 3 and is_very_negative(node, self.definitions):
            left = self._kept(node.args[0], hides=True)
            if left is None:
                return node.args[1]
            node.args[0] = left
        elif name in ("tl.load", "tl.store"):
            for keyword in node.keywords:
                if keyword.arg == "mask":
                    left = self._kept(keyword.value, hides=False)
                    if left is None:
                        node.keywords = [k for k in node.keywords if k.arg not in ("mask", "other")]
                        break
                    keyword.value = left
        return node
