"""Several rows of a tensor a program, for wide accesses where one row is narrow."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.knobs import constant_value
from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import (
    ROWS,
    Launch,
    Source,
    add_parameter,
    called,
    grid_questions,
    grid_sizes,
    relaunched,
)
from accelopt.kernels.triton.moves.vmap import NotMappable, RankedExpression, Vmap
from accelopt.parsing import parse_python

MOST_ELEMENTS = 8192  # of a tile: 64 registers of each thread of four warps
PLACES = ("tl.program_id(0)", "tl.program_id(axis=0)")


def several_rows(source: Source, launch: Launch, rows: int) -> str | None:
    """Let a program that computes one row compute `rows` of them.

    Before: `row = tl.program_id(0); x = tl.load(p + row * stride + tl.arange(0, W))` on a grid of
    (n,). After: the row is a vector of `rows` numbers, a row vector a tile, reductions run along
    its second axis, and accesses are masked at row n. Legal for what is elementwise but for
    reductions over the whole row, with no branch on a row's own data; None for any other, and where
    so many rows do not stay in registers. Where the host code works the width out, it works out how many
    do, `rows` at most.
    """
    kernel, sizes = launch.kernel, grid_sizes(launch)
    if sizes is None or len(sizes) != 1 or kernel.autotune is not None:
        return None
    if ROWS in kernel.parameters or not _is_alone(kernel.node):
        return None
    together = str(rows)
    for width in widths(source, launch):
        if isinstance(width, str):
            together = f"min({rows}, triton.cdiv({MOST_ELEMENTS}, {width}))"
        elif rows * width > MOST_ELEMENTS:
            return None
    node = copy.deepcopy(kernel.node)
    names = {
        word: fresh_name(word, node) for word in ("row_count", "program_rows", "row_is_inside")
    }
    number = RankedExpression(ast.Name(names["program_rows"], ast.Load()), 0, mapped=True)
    vmap = Vmap(ROWS, dict.fromkeys(PLACES, number), inside=names["row_is_inside"])
    try:
        body = vmap.body(node.body)
    except NotMappable:
        return None
    if not vmap.accesses:
        return None
    lines = (
        f"{names['program_rows']} = tl.program_id(0) * {ROWS} + tl.arange(0, {ROWS})\n"
        f"{names['row_is_inside']} = {names['program_rows']} < {names['row_count']}"
    )
    node.body = [*parse_python(lines).body, *body]
    add_parameter(node.args, names["row_count"], constant=False)
    add_parameter(node.args, ROWS, constant=True)
    count = ast.unparse(sizes[0])
    grid = f"(triton.cdiv({count}, {together}),)"
    arguments = f"{names['row_count']}={count}, {ROWS}={together}"
    return relaunched(source, launch, node, grid, arguments)


def widths(source: Source, launch: Launch) -> set[int | str]:
    """The sizes of a program's vectors: numbers that stand in the text, and what the launch gives where
    the host code works them out."""
    found: set[int | str] = set()
    for call in ast.walk(launch.kernel.node):
        if not (isinstance(call, ast.Call) and called(call) == "tl.arange" and len(call.args) == 2):
            continue
        end = call.args[1]
        if isinstance(end, ast.Constant) and isinstance(end.value, int):
            found.add(end.value)
        if isinstance(end, ast.Name) and end.id in launch.kernel.parameters:
            size, given = constant_value(source, launch, end.id), launch.bound(end.id)
            if size is not None:
                found.add(size)
            elif given is not None:
                found.add(ast.unparse(given))
    return found


def _is_alone(node: ast.FunctionDef) -> bool:
    """Whether a program asks for its row once and for nothing else of the grid."""
    asked = grid_questions(node)
    return len(asked) == 1 and asked[0] in PLACES
