"""Numbers in a Triton solution that may be changed without changing what it computes.

A knob is a `tl.constexpr` parameter that is a tile's extent: a loop steps by it, or the launch's grid names it,
so that the number of programs follows. Its value stands as an integer in the launch, in a variable that the launch passes, in the
parameter's default, or in `triton.Config`. `num_warps` and `num_stages` are knobs of every launch.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from accelopt.kernels.triton.configurations.source import (
    Edit,
    JitFunction,
    Launch,
    Source,
    called,
    is_range,
    names_in,
)


class Role(StrEnum):
    """What a tile is cut from: the grid of programs, or a loop inside one."""

    PROGRAM = "program"
    LOOP = "loop"


class Knob(NamedTuple):
    """A tile of a kernel, its present value, and the number of the text that says it; None where that
    is one of an autotuned kernel's configurations."""

    name: str
    role: Role
    value: int
    number: ast.expr | None = None


def tiles_in(kernel: JitFunction) -> dict[str, Role]:
    """The constants of a kernel that a tile's extent is made of and that may name one, in the order of its
    parameters, by what a loop steps."""
    loops = (node.iter for node in ast.walk(kernel.node) if isinstance(node, ast.For))
    steps = {name for one in loops if is_range(one) for name in _step_names(one, kernel)}
    spanned = _spanned(kernel)
    return {
        name: Role.LOOP if name in steps else Role.PROGRAM
        for name in kernel.parameters
        if name in kernel.constants & spanned and not _is_dimension(name)
    }


def _is_dimension(name: str) -> bool:
    """Whether a constant names a size of the problem or of the grid rather than of a tile."""
    upper = name.upper()
    words = ("DIM", "HIDDEN", "STRIDE", "WIDTH", "PAGE")
    return upper.startswith("D_") or any(word in upper for word in words)


def _step_names(iterator: ast.expr, kernel: JitFunction) -> list[str]:
    """Constants that a loop steps by: its third argument, or the divisor of its count, as in `tl.cdiv(n, B)`
    and `(n + B - 1) // B`."""
    assert isinstance(iterator, ast.Call)
    if len(iterator.args) == 3:
        return sorted(names_in(iterator.args[2]) & kernel.constants)
    counts: list[ast.AST] = [iterator.args[-1]]
    if isinstance(iterator.args[-1], ast.Name):
        counts += [
            node.value
            for node in ast.walk(kernel.node)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == iterator.args[-1].id
        ]
    found = list[str]()
    for node in (part for count in counts for part in ast.walk(count)):
        divisor: ast.expr | None = None
        if isinstance(node, ast.Call) and called(node).endswith("cdiv"):
            divisor = node.args[-1]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            divisor = node.right if names_in(node.right) <= names_in(node.left) else None
        if isinstance(divisor, ast.Name) and divisor.id in kernel.constants:
            found.append(divisor.id)
    return found


def _spanned(kernel: JitFunction) -> set[str]:
    """Names that are the extent of a `tl.arange` or of a block's shape."""
    found: set[str] = set()
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Call):
            name = called(node)
            if name.endswith("arange") and len(node.args) == 2:
                found |= names_in(node.args[1])
            if name.endswith(("make_tensor_descriptor", "make_block_ptr")):
                found |= names_in(node)
    return found


def find_knobs(source: Source, launch: Launch) -> list[Knob]:
    """The tiles of a launched kernel whose values stand in the text as integers: those that a loop steps by, and
    those that the grid names. With another one of the grid's that it does not, as where `row * WIDTH` begins a row,
    some work would be done by nobody, or beyond the end."""
    found = []
    for name, role in tiles_in(launch.kernel).items():
        number = _number(source, launch, name)
        value = None if number is None else integer(number)
        if value is not None and (role is Role.LOOP or _grid_names(launch, name)):
            found.append(Knob(name, role, value, number))
    shared = Counter(knob.number for knob in found)
    return [knob for knob in found if shared[knob.number] == 1]


def _grid_names(launch: Launch, name: str) -> bool:
    """Whether the grid is made of a tile's size."""
    host = [*ast.walk(launch.function)] if launch.function is not None else []
    read: set[ast.AST] = set(ast.walk(launch.grid))
    known: set[str] = set()
    while more := {n.id for n in read if isinstance(n, ast.Name)} - known:
        known |= more
        read.update(n for one in host if _gives_value_to(one, more) for n in ast.walk(one))
    bound = launch.bound(name)
    words = known | {n.value for n in read if isinstance(n, ast.Constant)}
    return name in words or (isinstance(bound, ast.Name) and bound.id in known)


def _gives_value_to(node: ast.AST, names: set[str]) -> bool:
    """Whether a statement stores to one of `names`, defines it, or calls a method of it."""
    if isinstance(node, ast.FunctionDef):
        return node.name in names
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        own = node.value.func
        return isinstance(own, ast.Attribute) and ast.unparse(own.value) in names
    targets = [*getattr(node, "targets", []), getattr(node, "target", None)]
    is_statement = isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
    return is_statement and any(
        isinstance(n, ast.Name) and n.id in names for t in targets if t for n in ast.walk(t)
    )


def _number(source: Source, launch: Launch, name: str) -> ast.expr | None:
    """Where a parameter's value stands: in the launch, in the only assignment of the variable that it is given,
    or as the default."""
    bound = launch.bound(name) or launch.kernel.default(name)
    if not isinstance(bound, ast.Name):
        return bound
    assigned = _assignments(source, launch, bound.id)
    return assigned[0] if len(assigned) == 1 else None


def integer(node: ast.expr) -> int | None:
    """The value of an integer that stands in the text; True and False are none."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None


def _assignments(source: Source, launch: Launch, name: str) -> list[ast.expr]:
    """What `name` is assigned in the launching function, or else at the top of the module."""
    for body in (launch.function.body if launch.function else [], source.tree.body):
        found: list[ast.expr] = []
        for node in (part for statement in body for part in ast.walk(statement)):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    found += _matched(target, node.value, name)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                found += _matched(node.target, node.value, name)
        if found:
            return found
    return []


def _matched(target: ast.expr, value: ast.expr, name: str) -> list[ast.expr]:
    if isinstance(target, ast.Name) and target.id == name:
        return [value]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        return [item for one, item in pairs if isinstance(one, ast.Name) and one.id == name]
    return []


def set_numbers(source: Source, knobs: list[Knob], values: Mapping[str, int]) -> list[Edit]:
    """The edits that give knobs other values."""
    return [
        source.replacing(knob.number, str(values[knob.name]))
        for knob in knobs
        if knob.number is not None and knob.name in values
    ]


def set_options(source: Source, launch: Launch, options: Mapping[str, int | None]) -> list[Edit]:
    """The edits that give a launch `num_warps`, `num_stages` and the like."""
    edits, added = [], []
    for name, value in options.items():
        present = launch.option(name)
        if present is None:
            added.append(f"{name}={value}")
        else:
            edits.append(source.replacing(present, str(value)))
    if added:
        edits.append(source.adding(launch.call, ", ".join(added)))
    return edits
