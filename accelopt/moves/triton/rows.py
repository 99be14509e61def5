"""Several rows of a tensor in one program: wide accesses where one row is narrow."""

from __future__ import annotations

import ast
import copy

from accelopt.moves.triton.knobs import ROWS
from accelopt.moves.triton.loops import fresh_name
from accelopt.moves.triton.source import (
    Edit,
    Launch,
    Source,
    add_arguments,
    add_parameter,
    called,
    first_line,
    grid_sizes,
    names_in,
)

# What keeps its meaning when a row becomes a line of a tile: everything elementwise.
ELEMENTWISE = {
    "tl.where", "tl.maximum", "tl.minimum", "tl.exp", "tl.exp2", "tl.log", "tl.log2", "tl.sqrt",
    "tl.rsqrt", "tl.abs", "tl.sigmoid", "tl.sin", "tl.cos", "tl.cast", "tl.fma", "tl.cdiv",
    "tl.math.rsqrt", "tl.math.exp", "tl.math.sqrt",
}  # fmt: skip
REDUCTIONS = {"tl.sum", "tl.max", "tl.min"}


def several_rows(source: Source, launch: Launch, rows: int) -> str | None:
    """Let a program that computes one row compute `rows` of them.

    Before: `row = tl.program_id(0); x = tl.load(p + row * stride + tl.arange(0, W))` on a grid of
    (n,). After: the row is a column of `rows` numbers, `tl.arange` lies along the second axis,
    reductions run along it, and accesses are masked at row n. Legal for straight code that is
    elementwise but for reductions over the whole row; None for any other.
    """
    kernel, sizes = launch.kernel, grid_sizes(launch)
    if sizes is None or len(sizes) != 1:
        return None
    if kernel.autotune is not None or not _is_straight(kernel.node):
        return None
    count = ast.unparse(sizes[0])
    node = copy.deepcopy(kernel.node)
    if ROWS in kernel.parameters:
        return None  # done before
    names = {
        word: fresh_name(word, node)
        for word in ("row_count", ROWS, "program_rows", "row_is_inside")
    }
    rewriter = _IntoTile(names, _depending(node))
    node = rewriter.visit(node)
    if rewriter.failed:
        return None
    node.body[:0] = ast.parse(
        f"{names['program_rows']} = tl.program_id(0) * {names[ROWS]} + "
        f"tl.arange(0, {names[ROWS]})[:, None]\n"
        f"{names['row_is_inside']} = {names['program_rows']} < {names['row_count']}"
    ).body
    add_parameter(node.args, names["row_count"], constant=False)
    add_parameter(node.args, names[ROWS], constant=True)
    place = Edit(
        source.line_start(first_line(kernel.node)),
        source.end(kernel.node),
        ast.unparse(ast.fix_missing_locations(node)),
    )
    return source.edited(
        [
            place,
            source.replacing(launch.grid, f"(triton.cdiv({count}, {rows}),)"),
            add_arguments(source, launch, f"{names['row_count']}={count}, {names[ROWS]}={rows}"),
        ]
    )


def _is_straight(node: ast.FunctionDef) -> bool:
    """One row a program, no branches, no loops, nothing but elementwise work and reductions."""
    programs = 0
    for inner in ast.walk(node):
        if isinstance(
            inner, (ast.For, ast.While, ast.If, ast.Subscript, ast.Return, ast.AugAssign)
        ):
            return False
        if isinstance(inner, ast.Call):
            name = called(inner)
            programs += name == "tl.program_id"
            known = name in ELEMENTWISE | REDUCTIONS or name in (
                "tl.program_id", "tl.arange", "tl.load", "tl.store", "float"
            )  # fmt: skip
            if not (known or name.endswith(".to")):
                return False
            if name == "tl.program_id" and ast.unparse(inner) not in (
                "tl.program_id(0)", "tl.program_id(axis=0)"
            ):  # fmt: skip
                return False
    return programs == 1


def _depending(node: ast.FunctionDef) -> set[str]:
    """Names made of the program's number."""
    found: set[str] = set()
    for _ in range(len(node.body)):
        for statement in node.body:
            if isinstance(statement, ast.Assign):
                text = ast.unparse(statement.value)
                if "program_id" in text or names_in(statement.value) & found:
                    found |= {n.id for t in statement.targets for n in ast.walk(t)
                              if isinstance(n, ast.Name)}  # fmt: skip
    return found


class _IntoTile(ast.NodeTransformer):
    """Gives every row vector a second axis and every row number a column."""

    def __init__(self, names: dict[str, str], depending: set[str]) -> None:
        self.names = names
        self.depending = depending
        self.failed = False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = called(node)
        depends = bool(node.args) and bool(
            names_in(node.args[0]) & self.depending or "program_id" in ast.unparse(node.args[0])
        )
        self.generic_visit(node)
        if name == "tl.program_id":
            return ast.Name(self.names["program_rows"], ast.Load())
        if name == "tl.arange":
            return ast.parse(f"{ast.unparse(node)}[None, :]", mode="eval").body
        if name in REDUCTIONS:
            along = [*node.args[1:], *(k.value for k in node.keywords)]
            if any(ast.unparse(value) not in ("0", "-1") for value in along):
                self.failed = True
            text = f"{name}({ast.unparse(node.args[0])}, axis=1, keep_dims=True)"
            return ast.parse(text, mode="eval").body
        if name == "tl.store" and not depends:
            self.failed = True
        if name in ("tl.load", "tl.store") and depends:
            self._mask(node, 1 if name == "tl.load" else 2)
        return node

    def _mask(self, node: ast.Call, place: int) -> None:
        inside = ast.Name(self.names["row_is_inside"], ast.Load())
        if len(node.args) > place:
            node.args[place] = ast.BinOp(node.args[place], ast.BitAnd(), inside)
            return
        for keyword in node.keywords:
            if keyword.arg == "mask":
                keyword.value = ast.BinOp(keyword.value, ast.BitAnd(), inside)
                return
        node.keywords.append(ast.keyword("mask", inside))
