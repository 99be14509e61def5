"""Tables that the host writes piece by piece, made on the device at once."""

from __future__ import annotations

import ast

from accelopt.kernels.triton.moves.found import tensor_of, unread
from accelopt.kernels.triton.moves.source import Source, called, names_in, target_of


def numbered_on_device(source: Source) -> str | None:
    """Number the pieces between offsets on the device, not by a host loop over them.

    Before: `t = torch.empty(n, ...)`, and for each piece `t[b[i]:b[i + 1]] = i`, with b read to the
    host. After: `t = torch.searchsorted(b[1:], torch.arange(n), right=True)`, which waits for
    nothing and is one operation however many pieces there are. Legal where offsets do not fall and
    t was made without values, so that what no piece covers may hold anything.
    """
    for function in source.functions:
        for loop in ast.walk(function):
            if isinstance(loop, ast.For):
                text = _numbered(source, function, loop)
                if text is not None:
                    return text
    return None


def _numbered(source: Source, function: ast.FunctionDef, loop: ast.For) -> str | None:
    piece = loop.target.id if isinstance(loop.target, ast.Name) else ""
    if called(loop.iter) != "range" or not piece or loop.orelse:
        return None
    assert isinstance(loop.iter, ast.Call)
    table = _table(loop.body, piece, {})
    if table is None or len(loop.iter.args) != 1:
        return None
    name, offsets = table
    made = [s for s in ast.walk(function) if isinstance(s, ast.Assign) and target_of(s) == name]
    if len(made) != 1 or called(made[0].value) != "torch.empty" or made[0] not in function.body:
        return None
    if any(made[0].lineno < s.lineno < loop.lineno and name in names_in(s) for s in function.body):
        return None
    tensor = tensor_of(function, offsets)
    places = f"torch.arange({name}.shape[0], dtype={tensor}.dtype, device={tensor}.device)"
    found = f"torch.searchsorted({tensor}[1:], {places}, right=True)"
    edits = [source.replacing(loop, f"{name} = {found}.to({name}.dtype)")]
    return source.edited([*edits, *unread(source, function, loop)])


def _table(
    body: list[ast.stmt], piece: str, known: dict[str, tuple[str, int]]
) -> tuple[str, str] | None:
    """The names of the table and the offsets where statements only number one piece."""
    for place, statement in enumerate(body):
        name = target_of(statement)
        if name is not None and isinstance(statement, ast.Assign):
            offset = _offset(statement.value, piece)
            if offset is None:
                return None
            known[name] = offset
            continue
        if place != len(body) - 1:
            return None
        if isinstance(statement, ast.If) and _is_length(statement, known):
            return _table(statement.body, piece, known)
        return _filled(statement, piece, known) if isinstance(statement, ast.Assign) else None
    return None


def _is_length(statement: ast.If, known: dict[str, tuple[str, int]]) -> bool:
    """Whether a condition asks if a piece has any length."""
    test = statement.test
    if statement.orelse or not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return False
    sides = [known.get(ast.unparse(side)) for side in (test.left, test.comparators[0])]
    first, last = sides if isinstance(test.ops[0], (ast.Lt, ast.NotEq)) else sides[::-1]
    if not isinstance(test.ops[0], (ast.Lt, ast.Gt, ast.NotEq)) or first is None or last is None:
        return False
    return first[0] == last[0] and (first[1], last[1]) == (0, 1)


def _offset(value: ast.expr, piece: str) -> tuple[str, int] | None:
    """`b[i]` or `b[i + 1]`, as the name and 0 or 1, however its value is read."""
    while isinstance(value, ast.Call):
        if called(value) == "int" and len(value.args) == 1:
            value = value.args[0]
        elif isinstance(value.func, ast.Attribute) and value.func.attr == "item":
            value = value.func.value
        else:
            return None
    if not (isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name)):
        return None
    place = ast.unparse(value.slice)
    steps = {piece: 0, f"{piece} + 1": 1}
    return (value.value.id, steps[place]) if place in steps else None


def _filled(
    statement: ast.Assign, piece: str, known: dict[str, tuple[str, int]]
) -> tuple[str, str] | None:
    """The names of the table and the offsets in `t[b[i]:b[i + 1]] = i`."""
    target = statement.targets[0]
    if not (isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice)):
        return None
    bounds = [
        known.get(ast.unparse(bound)) or _offset(bound, piece)
        for bound in (target.slice.lower, target.slice.upper)
        if bound is not None
    ]
    if ast.unparse(statement.value) != piece or target.slice.step or len(bounds) != 2:
        return None
    first, last = bounds
    if first is None or last is None or first[0] != last[0] or (first[1], last[1]) != (0, 1):
        return None
    return (target.value.id, first[0]) if isinstance(target.value, ast.Name) else None
