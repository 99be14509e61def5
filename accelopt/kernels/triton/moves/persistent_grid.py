"""Persistent grid: one program a multiprocessor, each of which loops over tiles."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import (
    Edit,
    Launch,
    Source,
    add_parameter,
    called,
    first_line,
    grid_questions,
    grid_sizes,
)
from accelopt.parsing import parse_expression, parse_python

PLACES = "PLACES"  # behind a number: how many places the grid had along an axis
AXES = 2


def persistent_programs(source: Source, launch: Launch) -> str | None:
    """Launch as many programs as there are multiprocessors; each walks over places of the grid.

    Before: a grid of (m, n) programs. After: the same body in a loop over the m * n places, so that
    the loads for one place begin while the one before is stored. Legal where a place's work depends
    on nothing but the place: no early return, and no state but what it stores.
    """
    sizes, kernel = grid_sizes(launch), launch.kernel
    node = copy.deepcopy(kernel.node)
    if sizes is None or not 0 < len(sizes) <= AXES or kernel.autotune is not None:
        return None
    if f"{PLACES}_0" in kernel.parameters or node.args.defaults or not _has_dot_loop(node):
        return None
    if any(isinstance(n, (ast.Return, ast.While)) for n in ast.walk(node)):
        return None
    own = fresh_name("place", node)
    questions = _Questions(own, len(sizes))
    node = questions.visit(node)
    if questions.failed or not grid_questions(kernel.node):
        return None
    total = " * ".join(f"{PLACES}_{axis}" for axis in range(len(sizes)))
    line = f"for {own} in tl.range(tl.program_id(0), {total}, tl.num_programs(0), flatten=True):\n    pass"
    loop = parse_python(line).body[0]
    assert isinstance(loop, ast.For)
    said = node.body[:1] if isinstance(node.body[0], ast.Expr) else []
    loop.body = node.body[len(said) :]
    node.body = [*said, loop]
    for axis in range(len(sizes)):
        add_parameter(node.args, f"{PLACES}_{axis}", constant=False)
    grid = [ast.unparse(size) for size in sizes]
    given = ", ".join(f"{PLACES}_{axis}={size}" for axis, size in enumerate(grid))
    whole = " * ".join(f"({size})" for size in grid)
    device = "torch.cuda.get_device_properties(torch.cuda.current_device())"
    processors = f"{device}.multi_processor_count if torch.cuda.is_available() else 1"
    text = ast.unparse(ast.fix_missing_locations(node))
    return source.edited(
        [
            Edit(source.line_start(first_line(kernel.node)), source.end(kernel.node), text),
            source.replacing(launch.grid, f"(min({processors}, {whole}),)"),
            source.adding(launch.call, given),
        ]
    )


def _has_dot_loop(node: ast.FunctionDef) -> bool:
    return any(
        isinstance(loop, ast.For) and any(called(n) == "tl.dot" for n in ast.walk(loop))
        for loop in node.body
    )


class _Questions(ast.NodeTransformer):
    """Answers what a body asks of the grid from its place; the first axis runs fastest."""

    def __init__(self, place: str, axes: int) -> None:
        self.place = place
        self.axes = axes
        self.failed = False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = called(node)
        if name not in ("tl.program_id", "tl.num_programs"):
            return node
        given = [*node.args, *(k.value for k in node.keywords)]
        axis = given[0].value if len(given) == 1 and isinstance(given[0], ast.Constant) else None
        if not isinstance(axis, int) or not 0 <= axis < self.axes:
            self.failed = True
            return node
        text = f"{PLACES}_{axis}"
        if name == "tl.program_id":
            text = f"{self.place} % {text}" if axis == 0 else f"{self.place} // {PLACES}_0"
            text = f"{self.place}" if self.axes == 1 else text
        return parse_expression(text)
