"""One multiplication by a number where a step of a loop has two."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from accelopt.kernels.triton.moves.loops import bodies
from accelopt.kernels.triton.moves.masks import named_numbers
from accelopt.kernels.triton.moves.source import (
    JitFunction,
    assigned_in,
    names_in,
    read_first,
    target_of,
)

LOOPS = (ast.For, ast.While)


def one_scale(kernel: JitFunction) -> ast.FunctionDef | None:
    """Multiply a tile once by the product of two numbers, in a loop.

    Before: `s = s * scale; z = s * 1.44`. After: `z = s * (scale * 1.44)`, whose right side is made
    once. Legal where the first product is read by the second alone and both factors are numbers
    that the loop does not store; results differ by a rounding. None when there is no such pair.
    """
    node = copy.deepcopy(kernel.node)
    changed = False
    for loop in ast.walk(node):
        if isinstance(loop, LOOPS):
            for body in bodies(loop):
                while _joined(body, loop, node, set(kernel.parameters)):
                    changed = True
    return node if changed else None


def _joined(body: list[ast.stmt], loop: ast.stmt, node: ast.FunctionDef, known: set[str]) -> bool:
    """Whether two products of a body became one."""
    numbers = named_numbers(node)
    for place, statement in enumerate(body):
        first = _product(statement, known - assigned_in([node]), numbers)
        if first is None:
            continue
        name, tile, factor = first
        readers = [i for i, s in enumerate(body) if i > place and name in names_in(s)]
        if not readers or name in read_first(body[readers[0] + 1 :]):
            continue
        second = _product(body[readers[0]], known - assigned_in([node]), numbers)
        between = assigned_in(body[place + 1 : readers[0]])
        if second is None or ast.unparse(second[1]) != name or between & names_in(tile):
            continue
        if _is_read_elsewhere(name, loop, node, body, place):
            continue
        joined = ast.BinOp(tile, ast.Mult(), ast.BinOp(factor, ast.Mult(), second[2]))
        made = body[readers[0]]
        assert isinstance(made, ast.Assign)
        made.value = joined
        del body[place]
        return True
    return False


def _is_read_elsewhere(
    name: str, loop: ast.stmt, node: ast.FunctionDef, body: list[ast.stmt], place: int
) -> bool:
    """Whether a name is read behind its loop, or by a step before the step stores it."""
    inside = {id(n) for n in ast.walk(loop)}
    outside = any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
        and id(n) not in inside
        for n in ast.walk(node)
    )  # fmt: skip
    first = body[: place + 1]
    return outside or name in read_first(first) or body is not getattr(loop, "body", None)


def _product(
    statement: ast.stmt, parameters: set[str], numbers: Mapping[str, ast.expr]
) -> tuple[str, ast.expr, ast.expr] | None:
    """The name, the tile and the number of `name = tile * number`."""
    name = target_of(statement)
    if name is None or not isinstance(statement, ast.Assign):
        return None
    value = statement.value
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)):
        return None
    for tile, factor in ((value.left, value.right), (value.right, value.left)):
        if _is_number(factor, parameters, numbers) and not _is_number(tile, parameters, numbers):
            return name, tile, factor
    return None


def _is_number(node: ast.expr, parameters: set[str], numbers: Mapping[str, ast.expr]) -> bool:
    """Whether an expression is a number that stays the same: constants and arguments."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    if isinstance(node, ast.Name):
        made = numbers.get(node.id)
        return node.id in parameters or isinstance(made, ast.Constant)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return all(_is_number(side, parameters, numbers) for side in (node.left, node.right))
    return False
