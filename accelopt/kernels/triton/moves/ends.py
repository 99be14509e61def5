"""Loops that each query ends at its own last key, written so that one loop can serve several."""

from __future__ import annotations

import ast
import copy
from typing import NamedTuple

from accelopt.kernels.triton.moves.loops import Renamed, fresh_name, is_plain
from accelopt.kernels.triton.moves.masks import hides_from
from accelopt.kernels.triton.moves.source import (
    assigned_in,
    called,
    names_in,
    target_of,
)
from accelopt.parsing import parse_expression, parse_python

LAST = "last_of_all"  # what `Lanes` writes the largest value among the rows for


class CommonEnds(NamedTuple):
    """A kernel whose loops run to ends for all rows, and the names of conditions on positions by
    those that ask the same of a row's own end."""

    node: ast.FunctionDef
    of_all: dict[str, str]


def common_ends(original: ast.FunctionDef) -> CommonEnds | None:
    """Let a loop run to an end that all rows share, and what a row carries be as its own end left it.

    Before: `if end <= 0: tl.store(...); return`, then `for s in range(0, end, B): ...` and stores.
    After: the first stores masked by `end <= 0` and the last ones by its opposite, `range(0,
    last_of_all(end), B)`, and behind the loop what it carries is as before where `end <= 0`. Legal
    where scores past `end` are minus infinity: a step that shows a row nothing then adds nothing to
    what earlier ones gave it. None where no loop ends so.
    """
    node = copy.deepcopy(original)
    of_all: dict[str, str] = {}
    for place, loop in reversed(list(enumerate(node.body))):
        if isinstance(loop, ast.For) and is_plain(loop) and not loop.orelse:
            end = _own_end(loop, node)
            carried = None if end is None else _carried(node.body, place)
            if end is None or carried is None:
                continue
            _share(node, place, end, carried, of_all)
            _without_early_end(node, end)
    return CommonEnds(node, of_all) if of_all else None


def _own_end(loop: ast.For, node: ast.FunctionDef) -> str | None:
    """The name of a loop's end, where scores behind it are hidden."""
    assert isinstance(loop.iter, ast.Call)
    start, end, _ = loop.iter.args
    if ast.unparse(start) != "0" or not isinstance(end, ast.Name):
        return None
    return end.id if hides_from(loop, node, end.id) and end.id not in assigned_in([loop]) else None


def _carried(body: list[ast.stmt], place: int) -> list[str] | None:
    """The names that a loop gives values which are read behind it, with values before it; None
    where one has none."""
    stored, before = assigned_in(body[place].body), assigned_in(body[:place])  # type: ignore[attr-defined]
    read: set[str] = set()
    for statement in reversed(body[place + 1 :]):
        name = target_of(statement)
        read -= {name} if name is not None else set()
        read |= names_in(statement) if name is None else names_in(statement.value)  # type: ignore[attr-defined]
    found = sorted(stored & read)
    return found if set(found) <= before else None


def _share(
    node: ast.FunctionDef, place: int, end: str, carried: list[str], of_all: dict[str, str]
) -> None:
    """Write a loop with an end for all, and what stands before and behind it."""
    loop = node.body[place]
    assert isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)
    last = of_all[end] = fresh_name(f"{end}_of_all", node)
    before = [f"{last} = {LAST}({end})"]
    behind = []
    for name in carried:
        first = fresh_name(f"{name}_before", node)
        before.append(f"{first} = {name}")
        behind.append(f"{name} = tl.where({end} > 0, {name}, {first})")
    loop.iter.args[1] = ast.Name(last, ast.Load())
    written: list[ast.stmt] = []
    for statement in loop.body:
        written.append(statement)
        condition = target_of(statement)
        if condition is None or not isinstance(statement, ast.Assign):
            continue
        if names_in(statement.value) & set(of_all) and _is_condition(statement.value, of_all):
            own = fresh_name(f"{condition}_of_all", node)
            value = renamed(statement.value, of_all)
            of_all[condition] = own
            written += parse_python(f"{own} = {ast.unparse(value)}").body
    loop.body = written
    node.body[place : place + 1] = [
        *parse_python("\n".join(before)).body,
        loop,
        *parse_python("\n".join(behind)).body,
    ]


def _is_condition(value: ast.expr, known: dict[str, str]) -> bool:
    """Whether an expression is a comparison, or joins some by `&`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd):
        return all(_is_condition(side, known) for side in (value.left, value.right))
    if isinstance(value, ast.Subscript):
        return _is_condition(value.value, known)
    return isinstance(value, ast.Compare) or (isinstance(value, ast.Name) and value.id in known)


def renamed(node: ast.expr, names: dict[str, str]) -> ast.expr:
    """An expression with other names in the place of some."""
    new = Renamed(names, {}).visit(copy.deepcopy(node))
    assert isinstance(new, ast.expr)
    return new


def _without_early_end(node: ast.FunctionDef, end: str) -> None:
    """Mask the stores of `if end <= 0: ...; return` and those behind it, in place of returning."""
    for place, statement in enumerate(node.body):
        if not (isinstance(statement, ast.If) and _asks_for_none(statement.test, end)):
            continue
        *inner, last = statement.body
        plain = all(target_of(s) is not None or _is_store(s) for s in inner)
        if statement.orelse or not plain or not isinstance(last, ast.Return) or last.value:
            continue
        names = {name: fresh_name(f"{name}_of_none", node) for name in assigned_in(inner)}
        early = [Renamed(names, {}).visit(s) for s in inner]
        rest = node.body[place + 1 :]
        _mask(early, ast.unparse(statement.test))
        _mask(rest, _opposite(statement.test))
        node.body[place:] = [*early, *rest]
        return


def _asks_for_none(test: ast.expr, end: str) -> bool:
    return ast.unparse(test) in (f"{end} <= 0", f"{end} < 1", f"{end} == 0", f"0 >= {end}")


def _opposite(test: ast.expr) -> str:
    assert isinstance(test, ast.Compare)
    opposites = {ast.LtE: ">", ast.Lt: ">=", ast.Eq: "!=", ast.GtE: "<"}
    sign = opposites[type(test.ops[0])]
    return f"{ast.unparse(test.left)} {sign} {ast.unparse(test.comparators[0])}"


def _is_store(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and called(statement.value) == "tl.store"


def _mask(statements: list[ast.stmt], condition: str) -> None:
    """Let stores be made only where a condition holds."""
    for statement in statements:
        for call in ast.walk(statement):
            if called(call) != "tl.store":
                continue
            assert isinstance(call, ast.Call)
            also = parse_expression(condition)
            mask = next((k for k in call.keywords if k.arg == "mask"), None)
            if mask is not None:
                mask.value = ast.BinOp(mask.value, ast.BitAnd(), also)
            elif len(call.args) > 2:
                call.args[2] = ast.BinOp(call.args[2], ast.BitAnd(), also)
            else:
                call.keywords.append(ast.keyword("mask", also))
