"""The second kernel of split-K, which combines the partial results of all splits."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.loop_state import with_maxima
from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import add_parameter, called
from accelopt.kernels.triton.moves.split_k_parts import (
    LEAST,
    Parts,
    add_parameters,
    places,
    row_extent,
    steps_text,
)
from accelopt.parsing import parse_expression, parse_python

LANES = "LANES_JOINED"
JOINED = "_joined"  # behind the name of a kernel: the one that joins what its programs found
JOINED_TOGETHER = 16  # pieces in one step of joining
JOINING_WARPS = 4


def joined(own: ast.FunctionDef, parts: Parts, axis: int) -> ast.FunctionDef:
    """The kernel that joins the pieces, of one head where a program computes several together."""
    node = copy.deepcopy(own)
    node.name = f"{own.name}{JOINED}"
    names = {
        word: fresh_name(word, node) for word in ("splits_taken", "first_split", "split_is_taken")
    }
    split = fresh_name("split", node)
    call = parts.loops[-1].iter
    assert isinstance(call, ast.Call)
    whole, step = ast.unparse(call.args[1]), ast.unparse(call.args[2])
    lanes, top = row_extent(parts), parts.states.maximum
    by_lane = lanes is not None
    lane = f"tl.program_id({axis})" if by_lane else "0"
    count, first, taken = names.values()
    lines = [
        f"{split} = {first} + tl.arange(0, {JOINED_TOGETHER})",
        f"{taken} = {split} < {count}",
    ]
    for name, at in places(parts, axis, split, lane).items():
        inner = parts.shapes[name][by_lane:]
        mask = f"{taken}[:, None]" if inner else taken
        other = "-float('inf')" if name == top else "0.0"
        lines.append(f"{name}_part = tl.load({at}, mask={mask}, other={other})")
    if top:
        lines += [
            f"{top}_part = tl.where({top}_part > {LEAST}, {top}_part, -float('inf'))",
            f"{top}_next = tl.maximum({top}, tl.max({top}_part, axis=0))",
        ]
    for name, factor in parts.states.sums.items():
        inner = parts.shapes[name][by_lane:]
        own_factor, part_factor = "", ""
        if factor is not None:
            assert top is not None
            own_factor, part_factor = (
                f" * tl.where({m} == {top}_next, 1.0, {with_maxima(factor, m, f'{top}_next')})"
                for m in (top, f"{top}_part")
            )
            own_factor += "[:, None]" if inner and by_lane else ""
            part_factor += "[:, None]" if inner else ""
        row = "[None, :]" if inner and by_lane else ""
        lines.append(f"{name} = {name}{own_factor} + tl.sum({name}_part{part_factor}, axis=0){row}")
    if top:
        lines.append(f"{top} = {top}_next")
    text = f"{count} = tl.cdiv({whole}, {steps_text(whole, step)})\n"
    text += f"for {first} in range(0, {count}, {JOINED_TOGETHER}):\n    " + "\n    ".join(lines)
    around = ast.Module([*copy.deepcopy(parts.before), *copy.deepcopy(parts.after)], [])
    if lanes is not None:
        around = _OneRow(axis, lanes).visit(around)
    behind = len(parts.before)
    node.body = [*around.body[:behind], *parse_python(text).body, *around.body[behind:]]
    add_parameters(node, parts)
    if lanes is not None:
        add_parameter(node.args, LANES, constant=True)
    return ast.fix_missing_locations(node)


def can_be_joined(parts: Parts) -> bool:
    """Whether a head's states are numbers and vectors, the maximum a number."""
    ranks = {
        name: len(shape) - (row_extent(parts) is not None) for name, shape in parts.shapes.items()
    }
    top = parts.states.maximum
    return max(ranks.values()) < 2 and (top is None or not ranks[top])


class _OneRow(ast.NodeTransformer):
    """One of the rows that a program computes together, by a further axis of the grid."""

    def __init__(self, axis: int, lanes: str) -> None:
        self.axis = axis
        self.lanes = lanes

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node) == f"tl.arange(0, {self.lanes})":
            text = f"(tl.program_id({self.axis}) + tl.arange(0, {LANES}))"
            return parse_expression(text)
        if called(node) in ("tl.zeros", "tl.full") and node.args:
            shape = node.args[0]
            if isinstance(shape, (ast.List, ast.Tuple)):
                for place, size in enumerate(shape.elts):
                    if ast.unparse(size) == self.lanes:
                        shape.elts[place] = ast.Name(LANES, ast.Load())
        self.generic_visit(node)
        return node
