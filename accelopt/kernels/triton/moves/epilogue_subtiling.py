"""Epilogue subtiling: a product's tile is stored in two halves, with half the shared memory."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.source import Edit, Launch, Source, called, first_line
from accelopt.parsing import parse_python

DESCRIPTOR = "TensorDescriptor.from_tensor"


def stored_in_halves(source: Source, launch: Launch) -> str | None:
    """Store a tile of results through its descriptor as a left and a right half.

    Before: `c.store([m, n], acc)`. After: the tile split along its columns and stored by two calls,
    from a buffer half as wide, which leaves room for another stage of loads. Legal for a tile with
    an even number of columns. None where nothing is stored through a descriptor that is not read.
    """
    node = copy.deepcopy(launch.kernel.node)
    stores = _stores(node)
    if len(stores) != 1 or "tl.split" in ast.unparse(node):
        return None
    pointer = stores[0]
    bound = launch.bound(pointer) if pointer in launch.kernel.parameters else None
    if called(bound or node) != DESCRIPTOR or f"{pointer}.load(" in ast.unparse(node):
        return None
    assert isinstance(bound, ast.Call)
    shape = bound.args[1]
    if not (isinstance(shape, ast.List) and len(shape.elts) == 2):
        return None
    names = [ast.unparse(extent) for extent in shape.elts]
    inside = [_parameter(launch, name) for name in names]
    if None in inside:
        return None
    rows, columns = (str(name) for name in inside)
    node = _Halved(pointer, rows, columns).visit(node)
    own = launch.kernel.node
    text = ast.unparse(ast.fix_missing_locations(node))
    return source.edited(
        [
            Edit(source.line_start(first_line(own)), source.end(own), text),
            source.replacing(shape, f"[{names[0]}, {names[1]} // 2]"),
        ]
    )


def _stores(node: ast.FunctionDef) -> list[str]:
    """The names that something is stored through by a method."""
    return [
        call.func.value.id
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "store"
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id != "tl"
    ]


def _parameter(launch: Launch, argument: str) -> str | None:
    """The constant that a launch gives this argument to."""
    for name in launch.kernel.constants:
        bound = launch.bound(name)
        if bound is not None and ast.unparse(bound) == argument:
            return name
    return None


class _Halved(ast.NodeTransformer):
    def __init__(self, pointer: str, rows: str, columns: str) -> None:
        self.pointer = pointer
        self.rows = rows
        self.columns = columns

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        call = node.value
        if not (isinstance(call, ast.Call) and called(call) == f"{self.pointer}.store"):
            return node
        first, second = (ast.unparse(at) for at in call.args[0].elts)  # type: ignore[attr-defined]
        halves = f"tl.permute(tl.reshape({ast.unparse(call.args[1])}, ({self.rows}, 2, {self.columns} // 2)), (0, 2, 1))"
        return parse_python(
            f"left_half, right_half = tl.split({halves})\n"
            f"{self.pointer}.store([{first}, {second}], left_half)\n"
            f"{self.pointer}.store([{first}, {second} + {self.columns} // 2], right_half)"
        ).body
