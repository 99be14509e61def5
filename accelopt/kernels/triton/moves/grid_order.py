"""The order in which the programs of a grid run: the most work first."""

from __future__ import annotations

import ast
import copy
import re

from accelopt.hardware.gpus import DEFAULT_GPU, GPUS
from accelopt.kernels.triton.moves.source import (
    WORK,
    Edit,
    Launch,
    Source,
    add_parameter,
    called,
    grid_questions,
    grid_sizes,
    relaunched,
)
from accelopt.parsing import parse_expression

OUTERMOST = "BLOCKS_OUTERMOST"


def most_work_first(source: Source, launch: Launch) -> str | None:
    """Start the programs with the most work first: the first grid axis from its end, outermost.

    For causal attention the last block of queries sees the most keys. Programs start with axis 0
    running fastest, so where the grid has further axes, blocks become its last: the long programs of
    all heads and sequences start before any short one. Legal as a bijection of the grid, whose axes
    stay as they were where there are more blocks than a last axis may have. Work that stands in a
    table of (block, step) is sorted there.
    """
    kernel = launch.kernel
    questions = grid_questions(kernel.node)
    if not any(called(n) == "tl.where" for n in ast.walk(kernel.node)):
        return None
    if WORK in kernel.parameters:
        return _sorted_table(source, launch)
    asked = [axis for axis in map(_axis_of, questions) if axis is not None]
    if 0 not in asked or len(asked) < len(questions):
        return None
    sizes = grid_sizes(launch) or []
    while sizes and isinstance(sizes[-1], ast.Constant) and sizes[-1].value == 1:
        sizes = sizes[:-1]
    last = len(sizes) - 1
    if last < 1:
        node = _Answers(["tl.num_programs(0) - 1 - tl.program_id(0)"]).visit(
            copy.deepcopy(kernel.node)
        )
        return source.with_kernel(kernel, node)
    if kernel.node.args.defaults or OUTERMOST in kernel.parameters or max(asked) > last:
        return None
    answers = [
        f"tl.num_programs({last}) - 1 - tl.program_id({last}) if {OUTERMOST} else tl.program_id(0)"
    ]
    answers += [
        f"tl.program_id({axis - 1}) if {OUTERMOST} else tl.program_id({axis})"
        for axis in range(1, last + 1)
    ]
    node = _Answers(answers).visit(copy.deepcopy(kernel.node))
    add_parameter(node.args, OUTERMOST, constant=True)
    blocks, *others = (ast.unparse(size) for size in sizes)
    few = ast.unparse(parse_expression(f"({blocks}) <= {GPUS[DEFAULT_GPU].grid_limit}"))
    grid = f"({', '.join([*others, blocks])}) if {few} else ({', '.join([blocks, *others])})"
    return relaunched(source, launch, node, grid, f"{OUTERMOST}={few}")


def _axis_of(question: str) -> int | None:
    """The axis that `tl.program_id(axis)` asks for; None for any other question."""
    match = re.fullmatch(r"tl\.program_id\((?:axis=)?(\d)\)", question)
    return int(match[1]) if match else None


class _Answers(ast.NodeTransformer):
    """Puts an expression in the place of `tl.program_id(axis)`, by axis."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = answers

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        axis = _axis_of(ast.unparse(node))
        if axis is None or axis >= len(self.answers):
            return node
        return parse_expression(self.answers[axis])


def _sorted_table(source: Source, launch: Launch) -> str | None:
    """The host code with its table of (block, step) sorted, later blocks first."""
    table = launch.bound(WORK)
    if table is None or launch.function is None:
        return None
    for statement in ast.walk(launch.function):
        if (
            isinstance(statement, ast.Assign)
            and ast.unparse(statement.targets[0]) == ast.unparse(table)
            and isinstance(statement.value, ast.Call)
            and isinstance(statement.value.args[0], ast.Name)
        ):
            line = f"{statement.value.args[0].id}.sort(key=lambda one: -one[0])"
            start = source.start(statement)
            text = f"{line}\n{source.indentation(statement)}"
            return None if line in source.text else source.edited([Edit(start, start, text)])
    return None
