"""Numbers in a Triton solution that may be changed without changing what it computes.

A knob is a `tl.constexpr` parameter that names a tile: something is stepped through a loop by it,
or a program id is multiplied by it. Its value stands as an integer in the launch, in a variable
that the launch passes, in the parameter's default, or in `triton.Config`. `num_warps` and
`num_stages` are knobs of every launch.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from accelopt.kernels.triton.configurations.source import (
    Edit,
    JitFunction,
    Launch,
    Source,
    called,
    grid_questions,
    grid_sizes,
    is_range,
    names_in,
    program_names,
)


class Role(StrEnum):
    """What a tile is cut from: the grid of programs, or a loop inside one."""

    PROGRAM = "program"
    LOOP = "loop"


class Knob(NamedTuple):
    """A tile of a kernel, its present value, and the places where it is written, each with a text
    in which `{}` stands for the value."""

    name: str
    role: Role
    value: int
    places: tuple[Edit, ...]

    def set_to(self, value: int) -> list[Edit]:
        """The edits that write another value."""
        return [place._replace(text=(place.text or "{}").format(value)) for place in self.places]


def tile_roles(kernel: JitFunction) -> dict[str, Role]:
    """The tile parameters of a kernel, in the order of its parameters."""
    roles: dict[str, Role] = {}
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.For) and is_range(node.iter):
            assert isinstance(node.iter, ast.Call)
            for name in _step_names(node.iter, kernel):
                roles.setdefault(name, Role.LOOP)
    for name in _of_programs(kernel, program_names(kernel)):
        roles.setdefault(name, Role.PROGRAM)
    spanned = _spanned(kernel)
    return {
        name: roles[name]
        for name in kernel.parameters
        if name in roles and name in spanned and not _is_dimension(name)
    }


def _of_programs(kernel: JitFunction, programs: set[str]) -> list[str]:
    """Constants by which a program's number is multiplied, or one of the names `programs` that tell it."""
    found = list[str]()
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                own = "program_id" in ast.unparse(one) or names_in(one) & programs
                if own and isinstance(other, ast.Name) and other.id in kernel.constants:
                    found.append(other.id)
    return found


def _is_dimension(name: str) -> bool:
    """Whether a constant names a size of the problem or of the grid rather than of a tile."""
    upper = name.upper()
    words = ("DIM", "HIDDEN", "STRIDE", "WIDTH", "PAGE")
    return upper.startswith("D_") or any(word in upper for word in words)


def _step_names(iterator: ast.Call, kernel: JitFunction) -> list[str]:
    """Constants that a loop steps by: its third argument, or the divisor of its count."""
    if len(iterator.args) == 3 and isinstance(iterator.args[2], ast.Name):
        return [iterator.args[2].id] if iterator.args[2].id in kernel.constants else []
    count = iterator.args[-1]
    if isinstance(count, ast.Name):
        count = _value_of(count.id, kernel) or count
    found = []
    for node in ast.walk(count):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("cdiv"):
            divisor = node.args[-1]
            if isinstance(divisor, ast.Name) and divisor.id in kernel.constants:
                found.append(divisor.id)
        divided = rounded_up(node)
        if divided is not None and divided.divisor in kernel.constants:
            found.append(divided.divisor)
    return found


class Quotient(NamedTuple):
    """What is divided, and the name of what by."""

    dividend: ast.expr
    divisor: str


def rounded_up(node: ast.AST) -> Quotient | None:
    """`tl.cdiv(n, B)`, also where it is written `(n + B - 1) // B`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("cdiv"):
        if len(node.args) == 2 and isinstance(node.args[1], ast.Name):
            return Quotient(node.args[0], node.args[1].id)
        return None
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)):
        return None
    above, name = node.left, ast.unparse(node.right)
    if not isinstance(above, ast.BinOp) or not isinstance(node.right, ast.Name):
        return None
    if isinstance(above.op, ast.Sub) and ast.unparse(above.right) == "1":
        inner = above.left
        is_sum = isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add)
        if is_sum and ast.unparse(inner.right) == name:  # type: ignore[attr-defined]
            return Quotient(inner.left, name)  # type: ignore[attr-defined]
    if isinstance(above.op, ast.Add) and ast.unparse(above.right) == f"{name} - 1":
        return Quotient(above.left, name)
    return None


def _value_of(name: str, kernel: JitFunction) -> ast.expr | None:
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == [name]:
            return node.value
    return None


def _spanned(kernel: JitFunction) -> set[str]:
    """Names that are the extent of a `tl.arange` or of a block's shape."""
    found: set[str] = set()
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.endswith("arange") and len(node.args) == 2:
                found |= {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            if name.endswith("make_tensor_descriptor") or name.endswith("make_block_ptr"):
                found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found


def find_knobs(source: Source, launch: Launch) -> list[Knob]:
    """The tiles of a launched kernel whose values stand in the text as integers."""
    found = []
    begun = {
        name
        for node in ast.walk(launch.kernel.node)
        if isinstance(node, ast.Assign) and called(node.value) == "tl.program_id"
        for name in names_in(node.targets[0])
    }
    for name, role in tile_roles(launch.kernel).items():
        places, value = _places(source, launch, name)
        if value is not None and (
            role is Role.PROGRAM or name in _of_programs(launch.kernel, begun)
        ):
            in_grid = _in_grid(source, launch, name, value)
            # `row * WIDTH` begins a row that is as wide; the grid counts rows.
            places = [] if in_grid is None else [*places, *in_grid]
        if places and value is not None:
            found.append(Knob(name, role, value, tuple(places)))
    shared = Counter(place for knob in found for place in knob.places)
    return [knob for knob in found if all(shared[place] == 1 for place in knob.places)]


def _in_grid(source: Source, launch: Launch, name: str, value: int) -> list[Edit] | None:
    """Where the grid divides by a tile's value as a number of its own; empty where it follows the tile by
    itself, or where programs take tiles in turn until none is left. None where the number of programs does
    not follow: with another tile some work would be done by nobody, or beyond the end."""
    host = [*ast.walk(launch.function)] if launch.function is not None else []
    read: set[ast.AST] = set(ast.walk(launch.grid))
    known: set[str] = set()
    while more := {n.id for n in read if isinstance(n, ast.Name)} - known:
        known |= more
        read.update(n for one in host if _gives_value_to(one, more) for n in ast.walk(one))
    bound = launch.bound(name)
    words = known | {n.value for n in read if isinstance(n, ast.Constant)}
    if name in words or (isinstance(bound, ast.Name) and bound.id in known):
        return []
    numbers = [
        source.replacing(part, text) for node in read for part, text in _divided(node, value)
    ]
    return numbers or ([] if _in_turn(launch.kernel, name) else None)


def _divided(node: ast.AST, value: int) -> Iterator[tuple[ast.expr, str]]:
    """The numbers of a division by `value`, rounded up in any of the usual ways, and what stands there."""
    if called(node).endswith("cdiv") and isinstance(node, ast.Call):
        yield from ((one, "{}") for one in node.args[1:] if integer(one) == value)
    floor = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
    if isinstance(node, ast.BinOp) and floor and integer(node.right) == value:
        yield node.right, "{}"
        for inner in ast.walk(node.left):
            if isinstance(inner, ast.Constant) and integer(inner) in (value, value - 1):
                yield inner, "{}" if inner.value == value else "({} - 1)"


def with_own_grid(source: Source) -> Source:
    """The solution with each launch's grid counting the tiles that its kernel counts.

    Before: `kernel[(4096,)](..., BLOCK_M=64, BLOCK_N=64)`, where the kernel finds its tile by `tl.cdiv(M,
    BLOCK_M)` and `tl.cdiv(N, BLOCK_N)`. After: as many programs for each such tile as there were, whatever
    the tiles. Legal where the number is a multiple of these tiles; other grids are left alone, and their tiles too.
    """
    edits = []
    for launch in source.launches:
        sizes, kernel, counted = grid_sizes(launch), launch.kernel, dict[str, tuple[str, int]]()
        for name, role in tile_roles(kernel).items():
            value = _places(source, launch, name)[1]
            if role is Role.PROGRAM and value and _in_grid(source, launch, name, value) is None:
                found = {ast.unparse(q.dividend) for n in ast.walk(kernel.node)
                         if (q := rounded_up(n)) is not None and q.divisor == name}  # fmt: skip
                size = found.pop() if len(found) == 1 else ""
                bound = launch.bound(size) if size in kernel.parameters else None
                counted[name] = "" if bound is None else ast.unparse(bound), value
        if sizes is None or len(sizes) != 1 or len(grid_questions(kernel.node)) != 1:
            continue
        if not counted or not all(size for size, _ in counted.values()):
            continue
        was = " * ".join(f"triton.cdiv({size}, {value})" for size, value in counted.values())
        now = " * ".join(
            f'triton.cdiv({size}, META["{name}"])' for name, (size, _) in counted.items()
        )
        grid = f"lambda META: ({ast.unparse(sizes[0])} // ({was}) * {now},)"
        edits.append(source.replacing(launch.grid, grid))
    return Source(source.edited(edits)) if edits else source


def _in_turn(kernel: JitFunction, name: str) -> bool:
    """Whether programs walk over tiles that the kernel counts by the constant `name`: a loop that begins
    at a program's number and ends at a count of tiles, so that any number of programs does all of them."""
    programs = program_names(kernel)
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.For) and is_range(node.iter):
            assert isinstance(node.iter, ast.Call)
            begin = node.iter.args[0]
            own = "program_id" in ast.unparse(begin) or names_in(begin) & programs
            if len(node.iter.args) == 3 and own and name in _counted_by(node.iter.args[1], kernel):
                return True
    return False


def _counted_by(count: ast.expr, kernel: JitFunction) -> set[str]:
    """The constants by which a count of tiles is divided, through the names that it is made of."""
    seen, left, found = set[str](), [count], set[str]()
    while left:
        node = left.pop()
        found |= {q.divisor for n in ast.walk(node) if (q := rounded_up(n)) is not None}
        for name in names_in(node) - seen:
            seen.add(name)
            value = _value_of(name, kernel)
            left += [] if value is None else [value]
    return found


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


def _places(source: Source, launch: Launch, name: str) -> tuple[list[Edit], int | None]:
    bound = launch.bound(name)
    if bound is None:
        bound = _default(launch.kernel, name)
    if bound is None:
        return [], None
    if (value := integer(bound)) is not None:
        return [source.replacing(bound, "")], value
    if isinstance(bound, ast.Name):
        constants = _assignments(source, launch, bound.id)
        if len(constants) == 1 and (value := integer(constants[0])) is not None:
            return [source.replacing(constants[0], "")], value
    return [], None


def _default(kernel: JitFunction, name: str) -> ast.expr | None:
    arguments = kernel.node.args
    named = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(
        zip(reversed([a.arg for a in named]), reversed(arguments.defaults), strict=False)
    )
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            defaults[argument.arg] = default
    return defaults.get(name)


def integer(node: ast.expr) -> int | None:
    """The value of an integer that stands in the text; True and False are none."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None


def _assignments(source: Source, launch: Launch, name: str) -> list[ast.expr]:
    """What `name` is assigned in the launching function, or else at the top of the module."""
    for body in (launch.function.body if launch.function else [], source.tree.body):
        found: list[ast.expr] = []
        for statement in body:
            for node in ast.walk(statement):
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
        return [
            item
            for one, item in zip(target.elts, value.elts, strict=False)
            if isinstance(one, ast.Name) and one.id == name
        ]
    return []


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
