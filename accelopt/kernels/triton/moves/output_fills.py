"""Output tensors that host code fills before a launch, filled only where no program stores."""

from __future__ import annotations

import ast
from itertools import pairwise

from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import (
    WORK,
    Edit,
    Launch,
    Source,
    assigned_in,
    called,
    names_in,
    stored_parameters,
)
from accelopt.parsing import parse_expression

MADE = {
    "torch.zeros": "torch.empty",
    "torch.full": "torch.empty",
    "torch.zeros_like": "torch.empty_like",
    "torch.full_like": "torch.empty_like",
}


def filled_where_left(source: Source, launch: Launch) -> str | None:
    """Fill outputs before a launch only if the loop that lists its work left a step out.

    Before: `out = torch.zeros(...)`, then a loop that lists the programs of all steps but the empty
    ones, and their launch. After: `out = torch.empty(...)`, and zeros in it only where the loop took
    fewer steps than there are. Legal where each step stores its whole part and all parts make up
    the tensor, as sequences by their offsets do. That is not proved: the referee leaves NaN in the
    memory that outputs are given.
    """
    if WORK not in launch.kernel.parameters or launch.function is None:
        return None
    place = _listing(launch)
    if place is None:
        return None
    loop, listed, behind = place
    made = _made(launch)
    if not made:
        return None
    taken = fresh_name("steps_taken", launch.function)
    work = ast.unparse(behind.test)
    indent, inner = source.indentation(loop), source.indentation(listed)
    fills = "".join(f"{indent}    {_name(statement)}.{_fill(statement)}\n" for statement in made)
    start, end, here = source.start(loop), source.end(listed), source.start(behind)
    return source.edited(
        [
            *(source.replacing(statement.value, _empty(statement)) for statement in made),
            Edit(start, start, f"{taken} = 0\n{indent}"),
            Edit(end, end, f"\n{inner}{taken} += 1"),
            Edit(
                here,
                here,
                f"if not {work} or {taken} < len({ast.unparse(loop.iter)}):\n{fills}{indent}",
            ),
        ]
    )


def _listing(launch: Launch) -> tuple[ast.For, ast.AugAssign, ast.If] | None:
    """The loop that lists the work, the statement that does, and the launch behind it."""
    assert launch.function is not None
    for node in ast.walk(launch.function):
        body = getattr(node, "body", None)
        for loop, behind in pairwise(body) if isinstance(body, list) else ():
            if not (isinstance(loop, ast.For) and isinstance(behind, ast.If)):
                continue
            if not any(inner is launch.call for inner in ast.walk(behind)):
                continue
            listed = [
                inner
                for inner in ast.walk(loop)
                if isinstance(inner, ast.AugAssign)
                and ast.unparse(inner.target) == ast.unparse(behind.test)
            ]
            return (loop, listed[0], behind) if len(listed) == 1 else None
    return None


def _made(launch: Launch) -> list[ast.Assign]:
    """The statements that make filled tensors which the kernel alone stores to."""
    assert launch.function is not None
    stored = stored_parameters(launch.kernel.node)
    given = {ast.unparse(b) for p in stored if (b := launch.bound(p)) is not None}
    found = []
    for node in ast.walk(launch.function):
        if isinstance(node, ast.Assign) and called(node.value) in MADE:
            name = _name(node)
            times = sum(name in assigned_in([s]) for s in launch.function.body)
            if name in given and not _is_touched(launch, node, name) and times:
                found.append(node)
    return found if len(found) == len(given) else []


def _is_touched(launch: Launch, made: ast.Assign, name: str) -> bool:
    """Whether anything but the launch uses a tensor's values before it."""
    assert launch.function is not None
    until = launch.call.lineno
    for node in ast.walk(launch.function):
        if isinstance(node, ast.stmt) and made.lineno < node.lineno < until:
            uses = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]
            shapes = [
                n
                for n in ast.walk(node)
                if isinstance(n, ast.Attribute) and n.attr in ("device", "shape", "dtype", "stride")
                and name in names_in(n)
            ]  # fmt: skip
            inside = any(inner is launch.call for inner in ast.walk(node))
            if len(uses) > len(shapes) and not inside:
                return True
    return False


def _name(statement: ast.Assign) -> str:
    return ast.unparse(statement.targets[0])


def _empty(statement: ast.Assign) -> str:
    call = statement.value
    assert isinstance(call, ast.Call)
    kept = call.args[:1] if "full" in called(call) else call.args
    words = [k for k in call.keywords if k.arg != "fill_value"]
    return ast.unparse(ast.Call(parse_expression(MADE[called(call)]), kept, words))


def _fill(statement: ast.Assign) -> str:
    call = statement.value
    assert isinstance(call, ast.Call)
    if "zeros" in called(call):
        return "zero_()"
    return f"fill_({ast.unparse(_value(statement))})"


def _value(statement: ast.Assign) -> ast.expr:
    """What a tensor is filled with."""
    call = statement.value
    assert isinstance(call, ast.Call)
    if "zeros" in called(call):
        return ast.Constant(0.0)
    return next((k.value for k in call.keywords if k.arg == "fill_value"), None) or call.args[1]
