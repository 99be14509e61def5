"""Moves on a kernel's arithmetic: the same values by cheaper instructions."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.loops import bodies
from accelopt.kernels.triton.moves.source import (
    JitFunction,
    assigned_in,
    called,
    names_in,
    target_of,
)
from accelopt.parsing import parse_expression

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
LARGEST_SINGLE = 3.4e38


def base_two(kernel: JitFunction) -> ast.FunctionDef | None:
    """Raise two instead of e to a power, the change of base folded into a scale that is there.

    Before: `s = tl.dot(q, k) * scale; m = tl.maximum(m, tl.max(s, 1)); p = tl.exp(s - m[:, None])`.
    After: `s = tl.dot(q, k) * (scale * LOG2_E)`, `p = tl.exp2(s - m[:, None])`, and `m * LN_2`
    wherever else `m` is read. Legal because exp(x) is exp2(x * LOG2_E), and what stands in the
    exponents is made by sums, maxima and selections alone, which a common factor passes through.
    None when there is no scale to fold into: the factor would then cost what it saves.
    """
    node = copy.deepcopy(kernel.node)
    _name_versions_apart(node)
    names = _exponents(node, set(kernel.parameters))
    if not names:
        return None
    rewriter = _InBaseTwo(names, set(kernel.parameters))
    node = rewriter.visit(node)
    return node if rewriter.folded else None


def _is_exp(node: ast.AST) -> bool:
    return called(node) in ("tl.exp", "tl.math.exp") and isinstance(node, ast.Call)


def _name_versions_apart(node: ast.FunctionDef) -> None:
    """Give the first of `x = A; ...; x = x * s` in one block a name of its own."""
    for block in bodies(node):
        for later, statement in enumerate(block):
            if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Mult):
                read = ast.Name(ast.unparse(statement.target), ast.Load())
                value = ast.BinOp(read, ast.Mult(), statement.value)
                statement = ast.Assign([statement.target], value, lineno=statement.lineno)
                block[later] = statement
            name = target_of(statement)
            if name is None or not (
                isinstance(statement, ast.Assign)
                and isinstance(statement.value, ast.BinOp)
                and isinstance(statement.value.op, ast.Mult)
                and name in names_in(statement.value)
            ):
                continue
            first = next((i for i in reversed(range(later)) if target_of(block[i]) == name), None)
            if first is None or not _is_straight(block[first + 1 : later], name):
                continue
            _rename(block[first : later + 1], name, f"{name}_unscaled")


def _is_straight(statements: list[ast.stmt], name: str) -> bool:
    """Whether control passes through, and `name` stays what it is."""
    leaves = (ast.Break, ast.Continue, ast.Return)
    return name not in assigned_in(statements) and not any(
        isinstance(inner, leaves) for statement in statements for inner in ast.walk(statement)
    )


def _rename(statements: list[ast.stmt], name: str, fresh: str) -> None:
    """In all but the last statement everywhere, in the last where it is read."""
    for statement in statements:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Name) and inner.id == name:
                if statement is statements[-1] and isinstance(inner.ctx, ast.Store):
                    continue
                inner.id = fresh


def _exponents(node: ast.FunctionDef, parameters: set[str]) -> set[str]:
    """Every name that a common factor of the exponents passes through; empty if it is stopped."""
    names: set[str] = set()
    for call in ast.walk(node):
        if _is_exp(call):
            assert isinstance(call, ast.Call)
            found = _linear(call.args[0], parameters)
            if found is None:
                return set()
            names |= found
    seen: set[str] = set()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        made = _makings(node, name)
        if name in parameters or not made:
            return set()
        for value in made:
            found = None if value is None else _linear(value, parameters)
            if found is None:
                return set()
            names |= found
    return names


def _makings(node: ast.FunctionDef, name: str) -> list[ast.expr | None]:
    """What is stored to a name: expressions, or None for what is no plain assignment or sum."""
    made: list[ast.expr | None] = []
    plain = 0
    for statement in ast.walk(node):
        if isinstance(statement, ast.Assign) and target_of(statement) == name:
            made.append(statement.value)
            plain += 1
        elif isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) == name:
            made.append(statement.value if isinstance(statement.op, (ast.Add, ast.Sub)) else None)
            plain += 1
    stored = sum(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        for n in ast.walk(node)
    )
    return made if stored == plain else [None]


def _linear(node: ast.expr, parameters: set[str]) -> set[str] | None:
    """The names that a factor passes to; None when `node` is no sum, maximum or selection.

    A product with a scalar parameter takes the factor itself, and constants are multiplied.
    """
    if isinstance(node, ast.Name):
        return {node.id}
    if _is_number(node) or _scale_of(node, parameters) is not None:
        return set()
    found: set[str] = set()
    parts = _parts(node)
    if parts is None:
        return None
    for part in parts:
        inner = _linear(part, parameters)
        if inner is None:
            return None
        found |= inner
    return found


def _parts(node: ast.expr) -> list[ast.expr] | None:
    """The operands of `node` that a factor goes into."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return [node.operand]
    if isinstance(node, ast.Subscript) and "None" in ast.unparse(node.slice):
        return [node.value]
    if not isinstance(node, ast.Call):
        return None
    name, keywords = called(node), {k.arg for k in node.keywords}
    if name == "tl.where" and len(node.args) == 3:
        return node.args[1:]
    if name in ("tl.maximum", "tl.minimum") and len(node.args) == 2:
        return node.args
    if name in ("tl.max", "tl.min") and keywords <= {"axis", "keep_dims"}:
        return node.args[:1]
    if name == "tl.zeros":
        return []
    if name == "tl.full":
        value = next((k.value for k in node.keywords if k.arg == "value"), None)
        return [value] if value is not None else node.args[1:2]
    return None


def _is_number(node: ast.expr) -> bool:
    text = ast.unparse(node).replace(" ", "").replace("'", '"')
    if text in ('float("-inf")', '-float("inf")'):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _scale_of(node: ast.expr, parameters: set[str]) -> ast.Name | None:
    """The scalar parameter that a product is scaled by."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for side in (node.right, node.left):
            if isinstance(side, ast.Name) and side.id in parameters:
                return side
    return None


class _InBaseTwo(ast.NodeTransformer):
    """Multiplies what makes the exponents by log2(e), and other readers of them by ln(2)."""

    def __init__(self, names: set[str], parameters: set[str]) -> None:
        self.names = names
        self.parameters = parameters
        self.folded = False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if _is_exp(node):
            function = parse_expression("tl.exp2")
            return ast.Call(function, [self._scaled(node.args[0])], [])
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if target_of(node) in self.names:
            node.value = self._scaled(node.value)
        else:
            self.generic_visit(node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if ast.unparse(node.target) in self.names:
            node.value = self._scaled(node.value)
        else:
            self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.names and isinstance(node.ctx, ast.Load):
            return ast.BinOp(node, ast.Mult(), ast.Constant(LN_2))
        return node

    def _scaled(self, node: ast.expr) -> ast.expr:
        """`node` times log2(e)."""
        if isinstance(node, ast.Name):
            return node
        if _is_number(node):
            return _scaled_number(node)
        scale = _scale_of(node, self.parameters)
        if scale is not None:
            assert isinstance(node, ast.BinOp)
            self.folded = True
            factor = ast.BinOp(scale, ast.Mult(), ast.Constant(LOG2_E))
            other = node.left if node.right is scale else node.right
            return ast.BinOp(self.visit(other), ast.Mult(), factor)
        parts = _parts(node) or []
        places = {id(part) for part in parts}
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, [self._part(item, places) for item in value])
            elif isinstance(value, ast.AST):
                setattr(node, field, self._part(value, places))
        return node

    def _part(self, node: ast.AST, places: set[int]) -> ast.AST:
        if id(node) in places:
            assert isinstance(node, ast.expr)
            return self._scaled(node)
        if isinstance(node, ast.keyword) and id(node.value) in places:
            node.value = self._scaled(node.value)
            return node
        changed = self.visit(node)
        assert isinstance(changed, ast.AST)
        return changed


def _scaled_number(node: ast.expr) -> ast.expr:
    """A constant times log2(e); infinities, and what would become one, stay as they are."""
    text = ast.unparse(node)
    if "inf" in text or abs(float(text) * LOG2_E) >= LARGEST_SINGLE:
        return node
    return parse_expression(repr(float(text) * LOG2_E))


def own_precision_dots(kernel: JitFunction) -> ast.FunctionDef | None:
    """Multiply tiles in the 16-bit format they are stored in, not widened to float32.

    Before: `a = tl.load(p).to(tl.float32); tl.dot(a, b)`. After: the load as it is, and computed
    operands cast to the other operand's format. Products of 16-bit numbers are exact in float32
    and are summed in it; only an operand that was computed is rounded, as flash attention does.
    """
    node = copy.deepcopy(kernel.node)
    used = _dot_operands(node)
    loaded: set[str] = set()
    for statement in ast.walk(node):
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        name, value = statement.targets[0].id, statement.value
        inner = _widened(value)
        if name in used and inner is not None and called(inner) == "tl.load":
            statement.value = inner
            loaded.add(name)
    if not loaded:
        return None
    for call in ast.walk(node):
        if called(call).endswith("tl.dot"):
            assert isinstance(call, ast.Call)
            operands = [_operand_name(a) for a in call.args[:2]]
            for index, name in enumerate(operands):
                other = operands[1 - index]
                if name not in loaded and other in loaded:
                    text = f"({ast.unparse(call.args[index])}).to({other}.dtype)"
                    call.args[index] = parse_expression(text)
    return node


def _dot_operands(node: ast.AST) -> set[str]:
    """Names whose only use is as an operand of `tl.dot`."""
    inside: dict[str, int] = {}
    everywhere: dict[str, int] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            everywhere[inner.id] = everywhere.get(inner.id, 0) + 1
        if called(inner).endswith("tl.dot"):
            assert isinstance(inner, ast.Call)
            for argument in inner.args[:2]:
                name = _operand_name(argument)
                inside[name] = inside.get(name, 0) + 1
    return {name for name, count in inside.items() if name and everywhere.get(name) == count}


def _operand_name(node: ast.expr) -> str:
    if called(node) in ("tl.trans",) and isinstance(node, ast.Call):
        return _operand_name(node.args[0])
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return _operand_name(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def _widened(node: ast.expr) -> ast.expr | None:
    """The expression under `.to(tl.float32)` or `.to(dtype=tl.float32)`."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
        and [ast.unparse(a) for a in (*node.args, *(k.value for k in node.keywords))]
        == ["tl.float32"]
    ):
        return node.func.value
    return None
