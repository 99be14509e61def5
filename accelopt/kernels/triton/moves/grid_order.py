"""The order in which the programs of a grid run: in groups of tiles."""

from __future__ import annotations

import ast
import copy
import re

from accelopt.kernels.triton.moves.source import JitFunction, called
from accelopt.parsing import parse_python

GROUP = 8


def grouped_order(kernel: JitFunction, group: int = GROUP) -> ast.FunctionDef | None:
    """Let programs that run together share operands: walk the grid in groups of rows.

    Before: `m = tl.program_id(0); n = tl.program_id(1)`. After: the two are renumbered by
    `tl.swizzle2d` over the grid. Legal because the exchange is a bijection of the grid and each
    program's work depends on its ids alone.
    """
    ids = _program_ids(kernel.node)
    if set(ids) != {0, 1} or "swizzle2d" in ast.unparse(kernel.node):
        return None
    if not any(called(n).endswith("tl.dot") for n in ast.walk(kernel.node)):
        return None
    node = copy.deepcopy(kernel.node)
    first, second = ids[0], ids[1]
    later = max(
        index
        for index, statement in enumerate(node.body)
        if ast.unparse(statement).startswith((f"{first} =", f"{second} ="))
    )
    # Programs start with axis 0 running fastest, and swizzle2d numbers its second index so.
    line = (
        f"{second}, {first} = tl.swizzle2d({second}, {first}, tl.num_programs(1), "
        f"tl.num_programs(0), {group})"
    )
    node.body[later + 1 : later + 1] = parse_python(line).body
    return node


def _program_ids(node: ast.FunctionDef) -> dict[int, str]:
    """Variable by grid axis, for plain `name = tl.program_id(axis)` at the kernel's top."""
    found: dict[int, str] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            match = re.fullmatch(
                r"tl\.program_id\((?:axis=)?(\d)\)(?:\.to\(tl\.int64\))?",
                ast.unparse(statement.value),
            )
            if match and isinstance(statement.targets[0], ast.Name):
                found[int(match[1])] = statement.targets[0].id
    return found
