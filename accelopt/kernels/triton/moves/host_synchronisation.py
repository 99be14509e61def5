"""Host code that waits for the device: synchronisation, checks of values, repeated reads."""

from __future__ import annotations

import ast

from accelopt.kernels.triton.moves.loops import bodies
from accelopt.kernels.triton.moves.source import Edit, Source, assigned_in, called, names_in


def without_synchronisation(source: Source) -> str | None:
    """Drop `torch.cuda.synchronize()` from the host code: stream order already gives the order."""
    edits = []
    for function in source.functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Expr) and called(node.value) == "torch.cuda.synchronize":
                edits.append(source.replacing(node, "pass"))
    return source.edited(edits) if edits else None


def values_read_once(source: Source) -> str | None:
    """Read the values of an index tensor to the host once, not one by one.

    Before: `for i in range(n): begin = offsets[i].item()`. After: `offsets_values =
    offsets.tolist()` once, and `offsets_values[i]`. Each reading waits for the device. Legal for
    parameters of the host function: a solution must not change its inputs.
    """
    edits: list[Edit] = []
    for function in source.functions:
        readings = [r for n in ast.walk(function) if (r := _reading(n, function)) is not None]
        for name in dict.fromkeys(name for name, _, _ in readings):
            mine = [(call, index) for other, call, index in readings if other == name]
            place = _first_use(function, name, [call for call, _ in mine])
            if place is None or not (len(mine) > 1 or _in_loop(function, mine[0][0])):
                continue
            start = source.start(place)
            line = f"{name}_values = {name}.tolist()\n{source.indentation(place)}"
            edits.append(Edit(start, start, line))
            for call, index in mine:
                text = f"{name}_values[{ast.unparse(index)}]"
                edits.append(source.replacing(call, text))
    return source.edited(edits) if edits else None


def _reading(node: ast.AST, function: ast.FunctionDef) -> tuple[str, ast.Call, ast.expr] | None:
    """Name, call and index of `name[index].item()` where `name` is a parameter."""
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "item"
        and isinstance(node.func.value, ast.Subscript)
        and isinstance(node.func.value.value, ast.Name)
    ):
        return None
    name, index = node.func.value.value.id, node.func.value.slice
    parameters = {a.arg for a in (*function.args.posonlyargs, *function.args.args)}
    if name not in parameters or isinstance(index, (ast.Slice, ast.Tuple)):
        return None
    return name, node, index


def _first_use(function: ast.FunctionDef, name: str, calls: list[ast.Call]) -> ast.stmt | None:
    """The function's own statement with the first of `calls`; None if `name` is stored after it."""
    for index, statement in enumerate(function.body):
        if any(call in ast.walk(statement) for call in calls):
            return None if name in assigned_in(function.body[index:]) else statement
    return None


def _in_loop(function: ast.FunctionDef, call: ast.Call) -> bool:
    return any(
        isinstance(loop, (ast.For, ast.While)) and call in ast.walk(loop)
        for loop in ast.walk(function)
    )


def without_value_checks(source: Source) -> str | None:
    """Drop checks of the inputs' values that make the host wait for the device.

    Before: `assert indices.shape[0] == offsets[-1].item()`, or a value read only for an `if` that
    raises. After: nothing. Legal on inputs that satisfy the definition's own constraints.
    """
    edits = []
    for function in source.functions:
        for block in bodies(function):
            for statement in block:
                if _is_value_check(statement, function):
                    edits.append(source.replacing(statement, "pass"))
    return source.edited(edits) if edits else None


def _is_value_check(statement: ast.stmt, function: ast.FunctionDef) -> bool:
    if isinstance(statement, ast.Assert):
        return ".item()" in ast.unparse(statement.test)
    if _only_raises(statement):
        return _waits(statement, function)
    return _read_for_checks_alone(statement, function)


def _only_raises(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and not statement.orelse
        and all(isinstance(inner, ast.Raise) for inner in statement.body)
    )


def _waits(check: ast.stmt, function: ast.FunctionDef) -> bool:
    """Whether a check reads a value off the device, itself or through a name."""
    assert isinstance(check, ast.If)
    if ".item()" in ast.unparse(check.test):
        return True
    named = names_in(check.test)
    return any(
        _read_for_checks_alone(statement, function) and assigned_in([statement]) & named
        for statement in function.body
    )


def _read_for_checks_alone(statement: ast.stmt, function: ast.FunctionDef) -> bool:
    """`n = int(t[-1].item())` where every reader of `n` is the test of an `if` that raises."""
    if not (isinstance(statement, ast.Assign) and ".item()" in ast.unparse(statement.value)):
        return False
    names = assigned_in([statement])
    checks = {
        inner
        for check in ast.walk(function)
        if isinstance(check, ast.stmt) and _only_raises(check)
        for inner in ast.walk(check)
    }
    readers = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)
    ]
    return bool(readers) and all(reader in checks for reader in readers)
