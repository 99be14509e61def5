"""Several rows of a tensor in one program: wide accesses where one row is narrow."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.lanes import Lanes, NotLaned, RankedExpression
from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import (
    ROWS,
    Launch,
    Source,
    add_parameter,
    grid_questions,
    grid_sizes,
    relaunched,
)
from accelopt.parsing import parse_python

PLACES = ("tl.program_id(0)", "tl.program_id(axis=0)")


def several_rows(source: Source, launch: Launch, rows: int) -> str | None:
    """Let a program that computes one row compute `rows` of them.

    Before: `row = tl.program_id(0); x = tl.load(p + row * stride + tl.arange(0, W))` on a grid of
    (n,). After: the row is a vector of `rows` numbers, a row vector a tile, reductions run along
    its second axis, and accesses are masked at row n. Legal for what is elementwise but for
    reductions over the whole row, with no branch on a row's own data; None for any other.
    """
    kernel, sizes = launch.kernel, grid_sizes(launch)
    if sizes is None or len(sizes) != 1 or kernel.autotune is not None:
        return None
    if ROWS in kernel.parameters or not _is_alone(kernel.node):
        return None
    node = copy.deepcopy(kernel.node)
    names = {
        word: fresh_name(word, node) for word in ("row_count", "program_rows", "row_is_inside")
    }
    number = RankedExpression(ast.Name(names["program_rows"], ast.Load()), 0, laned=True)
    lanes = Lanes(ROWS, dict.fromkeys(PLACES, number), inside=names["row_is_inside"])
    try:
        body = lanes.body(node.body)
    except NotLaned:
        return None
    if not lanes.accesses:
        return None
    lines = (
        f"{names['program_rows']} = tl.program_id(0) * {ROWS} + tl.arange(0, {ROWS})\n"
        f"{names['row_is_inside']} = {names['program_rows']} < {names['row_count']}"
    )
    node.body = [*parse_python(lines).body, *body]
    add_parameter(node.args, names["row_count"], constant=False)
    add_parameter(node.args, ROWS, constant=True)
    count = ast.unparse(sizes[0])
    grid = f"(triton.cdiv({count}, {rows}),)"
    arguments = f"{names['row_count']}={count}, {ROWS}={rows}"
    return relaunched(source, launch, node, grid, arguments)


def _is_alone(node: ast.FunctionDef) -> bool:
    """Whether a program asks for its row once and for nothing else of the grid."""
    asked = grid_questions(node)
    return len(asked) == 1 and asked[0] in PLACES
