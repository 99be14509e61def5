"""One load where a loop loads the same tile twice, and before it what every step loads again."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.knobs import constant_value
from accelopt.kernels.triton.moves.loops import Renamed, bodies, is_plain
from accelopt.kernels.triton.moves.source import (
    Launch,
    Source,
    assigned_in,
    called,
    names_in,
    read_first,
    target_of,
)

MOST_COPIES = 8
WRITES = ("tl.store", "tl.atomic", "tl.debug_barrier")


def shared_loads(source: Source, launch: Launch) -> str | None:
    """Load each tile once in a step of a loop, and what all steps load once before it.

    Before: `for d in tl.static_range(0, D, B): s += tl.dot(q_d, k_d)`, both loaded there, and k's
    pieces loaded again for the second product. After: the inner loop written out, each piece of k
    a name that both products use, and q loaded before the loop. Legal where the loop stores nothing:
    loads of one address give one value. Only what is found by program ids and arguments alone is
    loaded before the loop, for a loop without steps would not have loaded it. None where nothing is
    loaded twice.
    """
    node = copy.deepcopy(launch.kernel.node)
    values = {
        name: value
        for name in launch.kernel.constants
        if (value := constant_value(source, launch, name)) is not None
    }
    changed = False
    for body in bodies(node):
        for index, loop in reversed(list(enumerate(body))):
            if isinstance(loop, ast.For) and is_plain(loop) and not _writes(loop):
                loop.body = _written_out(loop.body, values, names_in(node))
                once = _Once(values, loop, node)
                changed |= once.share()
                before = _unchanging(loop, node)
                changed |= any("tl.load" in ast.unparse(s) for s in before)
                body[index:index] = before
    return source.with_kernel(launch.kernel, node) if changed else None


def _writes(loop: ast.For) -> bool:
    return any(called(inner).startswith(WRITES) for inner in ast.walk(loop))


def _written_out(body: list[ast.stmt], values: dict[str, int], taken: set[str]) -> list[ast.stmt]:
    """Statements with the static loops among them unrolled, where their bounds are known."""
    found: list[ast.stmt] = []
    for place, statement in enumerate(body):
        copies = None
        if isinstance(statement, ast.For) and called(statement.iter) == "tl.static_range":
            copies = _copies(statement, values, body[place + 1 :], taken)
        found += [statement] if copies is None else copies
    return found


def _copies(
    loop: ast.For, values: dict[str, int], after: list[ast.stmt], taken: set[str]
) -> list[ast.stmt] | None:
    assert isinstance(loop.iter, ast.Call)
    bounds = [_folded(argument, values) for argument in loop.iter.args]
    numbers = [b.value for b in bounds if isinstance(b, ast.Constant) and type(b.value) is int]
    if len(numbers) != len(bounds) or not isinstance(loop.target, ast.Name) or loop.iter.keywords:
        return None
    steps = range(*numbers)
    own = _local_names(loop.body)
    if not 0 < len(steps) <= MOST_COPIES or read_first(after) & (own | {loop.target.id}):
        return None
    if any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in ast.walk(loop)):
        return None
    found: list[ast.stmt] = []
    for number in steps:
        names = {name: _untaken(f"{name}_at_{number}", taken) for name in sorted(own)}
        renamed = Renamed(names, {loop.target.id: ast.Constant(number)})
        found += [renamed.visit(copy.deepcopy(statement)) for statement in loop.body]
    return found


def _untaken(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _local_names(body: list[ast.stmt]) -> set[str]:
    """Names that a step stores before it reads them."""
    return assigned_in(body) - read_first(body)


class _Folder(ast.NodeTransformer):
    """Computes with whole numbers that are known."""

    def __init__(self, values: dict[str, int]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.values.get(node.id)
        return node if value is None else ast.Constant(value)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        sides = [
            s.value if isinstance(s, ast.Constant) and type(s.value) is int else None
            for s in (node.left, node.right)
        ]
        left, right = sides
        if left is not None and right is not None:
            if isinstance(node.op, ast.Add):
                return ast.Constant(left + right)
            if isinstance(node.op, ast.Mult):
                return ast.Constant(left * right)
        if isinstance(node.op, ast.Add):
            if left == 0:
                return node.right
            if right == 0:
                return node.left
        return node


def _folded(node: ast.expr, values: dict[str, int]) -> ast.expr:
    found = _Folder(values).visit(copy.deepcopy(node))
    assert isinstance(found, ast.expr)
    return found


class _Once:
    """Gives equal loads of one step one name."""

    def __init__(self, values: dict[str, int], loop: ast.For, kernel: ast.FunctionDef) -> None:
        self.values = values
        self.loop = loop
        self.kernel = kernel
        self.stores: dict[str, int] = {}
        for statement in loop.body:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    self.stores[inner.id] = self.stores.get(inner.id, 0) + 1

    def share(self) -> bool:
        """Whether a load was left out."""
        known = self._columns()
        loaded: dict[str, str] = {}
        names: dict[str, str] = {}
        body: list[ast.stmt] = []
        versions: dict[str, int] = {}
        changed = False
        for statement in self.loop.body:
            statement = Renamed(names, {}).visit(statement)
            name = target_of(statement)
            if name is None:
                for other in assigned_in([statement]):
                    versions[other] = versions.get(other, 0) + 1
                    known[other] = ast.Name(f"{other}#{versions[other]}", ast.Load())
                body.append(statement)
                continue
            assert isinstance(statement, ast.Assign)
            whole = _folded(Renamed({}, known).visit(copy.deepcopy(statement.value)), self.values)
            text = ast.unparse(whole)
            if "tl.load(" in text and text in loaded and self._is_local(name):
                names[name] = loaded[text]
                changed = True
                continue
            if "tl.load(" in text and self.stores.get(name) == 1:
                loaded[text] = name
            versions[name] = versions.get(name, 0) + 1
            known[name] = (
                whole
                if self.stores.get(name) == 1
                else ast.Name(f"{name}#{versions[name]}", ast.Load())
            )
            body.append(statement)
        self.loop.body = body
        return changed

    def _columns(self) -> dict[str, ast.expr]:
        """What the kernel names once, outside of the loop, and makes of constants by `tl.arange`."""
        made: dict[str, list[ast.expr]] = {}
        for inner in ast.walk(self.kernel):
            if isinstance(inner, ast.Assign) and (name := target_of(inner)) is not None:
                made.setdefault(name, []).append(inner.value)
        found: dict[str, ast.expr] = {}
        for name, values in made.items():
            stores = sum(
                isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
                for n in ast.walk(self.kernel)
            )
            if name in self.stores or stores != 1:
                continue
            calls = {called(n) for n in ast.walk(values[0])} - {""}
            if calls == {"tl.arange"} and names_in(values[0]) <= {"tl", *self.values}:
                found[name] = _folded(values[0], self.values)
        return found

    def _is_local(self, name: str) -> bool:
        inside = sum(1 for n in ast.walk(self.loop) if isinstance(n, ast.Name) and n.id == name)
        everywhere = sum(
            1 for n in ast.walk(self.kernel) if isinstance(n, ast.Name) and n.id == name
        )
        return self.stores.get(name) == 1 and inside == everywhere


def _unchanging(loop: ast.For, kernel: ast.FunctionDef) -> list[ast.stmt]:
    """Takes out of a loop the statements that do the same in every step, and returns them."""
    assert isinstance(loop.target, ast.Name)
    changing = assigned_in(loop.body) | {loop.target.id}
    first = read_first(loop.body)
    found: list[ast.stmt] = []
    kept: list[ast.stmt] = []
    counts: dict[str, int] = {}
    for inner in ast.walk(loop):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            counts[inner.id] = counts.get(inner.id, 0) + 1
    for statement in loop.body:
        name = target_of(statement)
        if (
            name is not None
            and counts[name] == 1
            and name not in first
            and isinstance(statement, ast.Assign)
            and not names_in(statement.value) & changing
            and _is_found_by_place(statement.value, kernel)
        ):
            changing.discard(name)
            found.append(statement)
        else:
            kept.append(statement)
    loop.body = kept
    return found if kept else []


def _is_found_by_place(node: ast.expr, kernel: ast.FunctionDef) -> bool:
    """Whether no address in an expression is made of what was loaded."""
    made: dict[str, list[ast.expr]] = {}
    for statement in ast.walk(kernel):
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            made.setdefault(ast.unparse(target), []).append(statement.value)
    for call in ast.walk(node):
        if called(call) != "tl.load":
            continue
        assert isinstance(call, ast.Call)
        waiting, seen = [call.args[0]], set[str]()
        while waiting:
            part = waiting.pop()
            if "tl.load" in ast.unparse(part):
                return False
            for name in names_in(part) - seen:
                seen.add(name)
                waiting += made.get(name, [])
    return True
