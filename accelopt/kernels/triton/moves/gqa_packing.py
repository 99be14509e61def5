"""GQA packing: one program computes all query heads that read the same keys and values."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import (
    HEADS,
    Launch,
    Source,
    add_parameter,
    called,
    grid_questions,
    grid_sizes,
    relaunched,
    target_of,
)
from accelopt.kernels.triton.moves.vmap import NotMappable, RankedExpression, Vmap
from accelopt.parsing import parse_expression, parse_python


class _Coordinate(NamedTuple):
    """A number that a kernel makes of its program's place in the grid.

    `axis` is the grid's; `program` the name of the place, None where the number is the place
    itself; `extent` the text of how many values it has, None where the grid alone says; `inner`
    whether it runs fastest.
    """

    name: str
    axis: int
    program: str | None
    extent: str | None
    inner: bool


def heads_together(source: Source, launch: Launch) -> str | None:
    """Let a program that computes one head compute all heads that read the same keys and values.

    Before: `s = tl.sum(k * q[None, :], 1)` for one head's q, on a grid with a program for each
    head; heads h with one `h // R`, or all where there is no such quotient, load the same k.
    After: q has a line for each of them, `s = tl.dot(q, tl.trans(k))`, and k is loaded once.
    Legal for straight elementwise code and reductions on what depends on the head, where the
    number of heads is a multiple of R. Numbers are summed by the tensor core, which rounds
    float32 operands to TF32 and takes 16-bit ones as they are. None for any other kernel.
    """
    sizes = grid_sizes(launch)
    if sizes is None or HEADS in launch.kernel.parameters:
        return None
    for coordinate in _coordinates(launch.kernel.node):
        if coordinate.axis < len(sizes):
            text = _packed(source, launch, coordinate, sizes)
            if text is not None:
                return text
    return None


def _coordinates(node: ast.FunctionDef) -> Iterator[_Coordinate]:
    """`h = tl.program_id(a)`, and `p % H` or `p // B` of `p = tl.program_id(a)`."""
    places: dict[str, int] = {}
    stores = Counter(
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    )
    for statement in node.body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        name, value = statement.targets[0].id, statement.value
        if stores[name] > 1:
            continue
        axis = _grid_axis(value)
        if axis is not None:
            places[name] = axis
            yield _Coordinate(name, axis, None, None, True)
        elif isinstance(value, ast.BinOp) and ast.unparse(value.left) in places:
            program = ast.unparse(value.left)
            if isinstance(value.op, ast.Mod):
                extent = ast.unparse(value.right)
                yield _Coordinate(name, places[program], program, extent, True)
            elif isinstance(value.op, ast.FloorDiv):
                yield _Coordinate(name, places[program], program, None, False)


def _grid_axis(node: ast.expr) -> int | None:
    if called(node) != "tl.program_id":
        return None
    assert isinstance(node, ast.Call)
    given = [*node.args, *(k.value for k in node.keywords)]
    axis = given[0].value if len(given) == 1 and isinstance(given[0], ast.Constant) else None
    return axis if isinstance(axis, int) else None


def _packed(source: Source, launch: Launch, head: _Coordinate, sizes: list[ast.expr]) -> str | None:
    node = copy.deepcopy(launch.kernel.node)
    if not _is_asked_once(node, head.axis):
        return None
    if head.program is not None and not _is_split_only(node, head):
        return None
    shared_by = _quotient(node, head)
    count = _number_of_heads(launch, head, shared_by, sizes)
    if count is None:
        return None
    names = {word: fresh_name(word, node) for word in ("head_group", "first_head")}
    known = {head.name: RankedExpression(ast.Name(head.name, ast.Load()), 0, mapped=True)}
    if shared_by is not None:
        group = ast.Name(names["head_group"], ast.Load())
        known[f"{head.name} // {shared_by}"] = RankedExpression(group, 0)
    vmap = Vmap(HEADS, known)
    try:
        node.body = _body(node, head, names, vmap)
    except NotMappable:
        return None
    if not vmap.products:
        return None
    add_parameter(node.args, HEADS, constant=True)
    grid = [ast.unparse(size) for size in sizes]
    grid[head.axis] = _divided(sizes[head.axis], count)
    return relaunched(source, launch, node, f"({', '.join(grid)},)", f"{HEADS}={count}")


def _divided(size: ast.expr, count: str) -> str:
    """How many groups of `count` there are, as text."""
    if ast.unparse(size) == count:
        return "1"
    divisor = parse_expression(count)
    return ast.unparse(ast.BinOp(size, ast.FloorDiv(), divisor))


def _is_asked_once(node: ast.FunctionDef, axis: int) -> bool:
    """Whether one call alone depends on how many programs there are along an axis of the grid."""
    forms = (f"tl.program_id({axis})", f"tl.program_id(axis={axis})")
    asked = grid_questions(node)
    counted = any(question.startswith("tl.num_programs") for question in asked)
    return not counted and sum(question in forms for question in asked) == 1


def _is_split_only(node: ast.FunctionDef, head: _Coordinate) -> bool:
    """Whether the program's place is read in one `%` and one `//` of the same number alone."""
    reads = [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and inner.id == head.program
        and isinstance(inner.ctx, ast.Load)
    ]  # fmt: skip
    splits = [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.BinOp)
        and isinstance(inner.op, (ast.Mod, ast.FloorDiv))
        and ast.unparse(inner.left) == head.program
    ]
    return len(reads) == len(splits) and len({ast.unparse(s.right) for s in splits}) == 1


def _quotient(node: ast.FunctionDef, head: _Coordinate) -> str | None:
    """The R of the only `h // R` in the kernel."""
    found = {
        ast.unparse(inner.right)
        for inner in ast.walk(node)
        if isinstance(inner, ast.BinOp)
        and isinstance(inner.op, ast.FloorDiv)
        and ast.unparse(inner.left) == head.name
    }
    return found.pop() if len(found) == 1 else None


def _number_of_heads(
    launch: Launch, head: _Coordinate, shared_by: str | None, sizes: list[ast.expr]
) -> str | None:
    """How many heads a program computes, in the words of the host code."""
    if shared_by is None and head.extent is None:
        return ast.unparse(sizes[head.axis]) if head.program is None else None
    text = shared_by or head.extent
    assert text is not None
    if text.isdigit():
        return text
    return _on_host(parse_expression(text), launch)


def _on_host(node: ast.expr, launch: Launch) -> str | None:
    """An expression of a kernel's parameters, or a name that it gives one, in the host's words."""
    if isinstance(node, ast.Constant):
        return ast.unparse(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mult)):
        sides = [_on_host(side, launch) for side in (node.left, node.right)]
        if None in sides:
            return None
        sign = "*" if isinstance(node.op, ast.Mult) else "//"
        return ast.unparse(parse_expression(f"({sides[0]}) {sign} ({sides[1]})"))
    if not isinstance(node, ast.Name):
        return None
    made = [
        s
        for s in ast.walk(launch.kernel.node)
        if isinstance(s, ast.stmt) and target_of(s) == node.id
    ]
    if node.id not in launch.kernel.parameters:
        [only] = made if len(made) == 1 else [None]
        return _on_host(only.value, launch) if isinstance(only, ast.Assign) else None
    bound = launch.bound(node.id)
    return None if bound is None or made else ast.unparse(bound)


def _body(
    node: ast.FunctionDef, head: _Coordinate, names: dict[str, str], vmap: Vmap
) -> list[ast.stmt]:
    """The kernel's statements with the head's own replaced by a group of heads."""
    group, place = names["head_group"], head.program
    before: list[ast.stmt] = []
    after = list(node.body)
    made = next(i for i, s in enumerate(after) if ast.unparse(s).startswith(f"{head.name} = "))
    before, after = after[:made], after[made + 1 :]
    value = f"tl.program_id({head.axis})"
    if place is not None:
        groups = f"({head.extent} // {HEADS})"
        value = (
            f"{place} % {groups}" if head.inner else ast.unparse(node.body[made]).split(" = ")[1]
        )
        if head.inner:
            row = parse_expression(f"{place} // {groups}")
            vmap.known[f"{place} // {head.extent}"] = RankedExpression(row, 0)
    lines = (
        f"{group} = {value}\n"
        f"{names['first_head']} = {group} * {HEADS}\n"
        f"{head.name} = {names['first_head']} + tl.arange(0, {HEADS})"
    )
    # A guard against heads past the last one asks for the first head of the group instead.
    for statement in after:
        if isinstance(statement, ast.If) and _leaves(statement) and not statement.orelse:
            test = statement.test
            if isinstance(test, ast.Compare) and ast.unparse(test.left) == head.name:
                test.left = ast.Name(names["first_head"], ast.Load())
    written = vmap.body([*before, *after])
    return [*written[:made], *parse_python(lines).body, *written[made:]]


def _leaves(statement: ast.If) -> bool:
    """Whether all that is done is to return."""
    return len(statement.body) == 1 and isinstance(statement.body[0], ast.Return)
