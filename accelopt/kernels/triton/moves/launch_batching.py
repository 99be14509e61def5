"""One launch, with a table of the work, in place of one for each step of a host loop."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import (
    WORK,
    Edit,
    Launch,
    Source,
    add_parameter,
    addressed_parameters,
    assigned_in,
    called,
    first_line,
    grid_sizes,
    is_range,
    names_in,
)
from accelopt.parsing import parse_expression, parse_python

NUMBERS = {"int", "min", "max", "triton.cdiv", "range", "len"}
OTHER_WORK = ("atomic", "num_programs", "make_block_ptr", "make_tensor_descriptor")


def one_launch(source: Source, launch: Launch) -> str | None:
    """Launch a kernel once with a table of its work, not once for each step of a host loop.

    Before: `for i in range(n): begin = b[i]; ...; kernel[(size(i), h)](q, out, i)`. After: the loop
    writes down the programs it would have launched, `(place, i)` for `place in range(size(i))`,
    and one launch of (number of them, h) programs reads place and i from that table. Small steps
    then run side by side, and the host starts one kernel. Legal where what differs from step to
    step are whole numbers, and no step reads what another stores: kernels here load from no
    pointer that they store to. None for any other loop.
    """
    loop, statement = launch_loop(source, launch)
    sizes = grid_sizes(launch)
    if loop is None or statement is None or sizes is None or WORK in launch.kernel.parameters:
        return None
    changing = assigned_in([loop])
    uneven = [place for place, size in enumerate(sizes) if names_in(size) & changing]
    moved = moved_arguments(launch, changing)
    if len(uneven) > 1 or not moved or not _is_whole(loop, set(moved.values())):
        return None
    sure = {ast.unparse(loop.target)} | {name for size in sizes for name in names_in(size)}
    if any(n not in sure and not _counts(launch.kernel.node, p) for p, n in moved.items()):
        return None
    axis = uneven[0] if uneven else 0
    tensor = stored_tensor(launch)
    kernel = _from_table(launch, axis, list(moved))
    if kernel is None or tensor is None or names_in(parse_python(tensor)) & changing:
        return None
    return _with_table(source, launch, loop, statement, kernel, axis, sizes, moved, tensor)


def launch_loop(source: Source, launch: Launch) -> tuple[ast.For | None, ast.stmt | None]:
    """The innermost host loop around a launch, and the launch's statement."""
    loop, statement = None, None
    for node in ast.walk(launch.function) if launch.function is not None else ():
        if not any(inner is launch.call for inner in ast.walk(node)):
            continue
        if isinstance(node, (ast.For, ast.While)):
            loop = node  # `walk` comes to outer nodes first
        if isinstance(node, ast.Expr) and node.value is launch.call:
            statement = node
    if not isinstance(loop, ast.For) or loop.orelse or not isinstance(loop.target, ast.Name):
        return None, None
    for inner in ast.walk(loop):
        if isinstance(inner, ast.stmt) and inner not in (loop, statement):
            if isinstance(inner, ast.Assign):
                if not all(isinstance(target, ast.Name) for target in inner.targets):
                    return None, None
            elif not isinstance(inner, (ast.If, ast.Continue, ast.Pass)):
                return None, None
    launched = sum(other.call in list(ast.walk(loop)) for other in source.launches)
    return (loop, statement) if launched == 1 else (None, None)


def moved_arguments(launch: Launch, changing: set[str]) -> dict[str, str]:
    """Parameters whose arguments differ from step to step, with the names passed for them; empty
    when one of them is a constant, or more than a name."""
    found: dict[str, str] = {}
    for parameter in launch.kernel.parameters:
        argument = launch.bound(parameter)
        if argument is None or not names_in(argument) & changing:
            continue
        if not isinstance(argument, ast.Name) or parameter in launch.kernel.constants:
            return {}
        found[parameter] = argument.id
    return found


def _is_whole(loop: ast.For, names: set[str]) -> bool:
    """Whether names can only hold whole numbers: indices, and what is read and computed of them."""
    assert isinstance(loop.target, ast.Name)
    if called(loop.iter) != "range":
        return False
    seen: set[str] = set()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        if name == loop.target.id:
            continue
        made = [
            inner.value
            for inner in ast.walk(loop)
            if isinstance(inner, ast.Assign) and name in assigned_in([inner])
        ]
        for value in made:
            needed = _whole_parts(value)
            if needed is None:
                return False
            names = names | (needed & assigned_in([loop]))
        if not made:
            return False
    return True


def _whole_parts(node: ast.expr) -> set[str] | None:
    """The names that a whole number is computed of; None when it need not be one."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Constant):
        return set() if isinstance(node.value, int) else None
    if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Div, ast.Pow)):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and called(node) in NUMBERS:
        parts = node.args
    elif isinstance(node, ast.Call) and called(node).endswith(".item"):
        return set()  # of an index tensor, as what `_counts` finds of its use says
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return set()  # of such a tensor's values as a list
    else:
        return None
    found: set[str] = set()
    for part in parts:
        inner = _whole_parts(part)
        if inner is None:
            return None
        found |= inner
    return found


def _counts(node: ast.FunctionDef, parameter: str) -> bool:
    """Whether a parameter takes part in an address or in the range of a loop, which no number but
    a whole one can."""
    made_of = {parameter}
    for _ in node.body:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign) and names_in(inner.value) & made_of:
                made_of |= assigned_in([inner])
    places = [
        place
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call)
        for place in (inner.args[:1] if called(inner) in ("tl.load", "tl.store") else inner.args)
        if called(inner) in ("tl.load", "tl.store") or is_range(inner)
    ]
    return any(names_in(place) & made_of for place in places)


def stored_tensor(launch: Launch) -> str | None:
    """The argument for a pointer that the kernel stores to."""
    stored = addressed_parameters(launch.kernel.node, "tl.store") or set()
    for parameter in launch.kernel.parameters:
        argument = launch.bound(parameter) if parameter in stored else None
        if isinstance(argument, ast.Name):
            return argument.id
    return None


def _from_table(launch: Launch, axis: int, moved: list[str]) -> ast.FunctionDef | None:
    """The kernel reading its place on `axis` and the `moved` parameters from the table."""
    node = copy.deepcopy(launch.kernel.node)
    if any(word in ast.unparse(node) for word in OTHER_WORK):
        return None
    loaded, stored = addressed_parameters(node, "tl.load"), addressed_parameters(node, "tl.store")
    if loaded is None or stored is None:
        return None
    if {ast.dump(a) for a in map(launch.bound, loaded) if a is not None} & {
        ast.dump(a) for a in map(launch.bound, stored) if a is not None
    }:
        return None
    row = f"{WORK} + tl.program_id({axis}) * {len(moved) + 1}"
    node = PlaceOfProgram(axis, f"tl.load({row})").visit(node)
    lines = [f"{name} = tl.load({row} + {place + 1})" for place, name in enumerate(moved)]
    node.body[:0] = parse_python("\n".join(lines)).body
    node.args.args = [a for a in node.args.args if a.arg not in moved]
    add_parameter(node.args, WORK, constant=False)
    return node if not node.args.defaults else None


class PlaceOfProgram(ast.NodeTransformer):
    """Says by an expression where on one axis of the grid a program is, in place of asking."""

    def __init__(self, axis: int, place: str) -> None:
        self.axis = axis
        self.place = place

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """The expression for that axis; everything else as it was."""
        self.generic_visit(node)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if called(node) == "tl.program_id" and ast.unparse(given[0]) == str(self.axis):
            return parse_expression(self.place)
        return node


def _with_table(
    source: Source,
    launch: Launch,
    loop: ast.For,
    statement: ast.stmt,
    kernel: ast.FunctionDef,
    axis: int,
    sizes: list[ast.expr],
    moved: dict[str, str],
    tensor: str,
) -> str:
    """The host's loop writing the table, the launch behind it, and the new kernel."""
    assert launch.function is not None
    work, place, table = (
        fresh_name(name, launch.function) for name in ("work", "place", "work_table")
    )
    row = ", ".join([place, *moved.values()])
    note = f"{work} += [({row}) for {place} in range({ast.unparse(sizes[axis])})]"
    grid = [f"len({work})" if i == axis else ast.unparse(s) for i, s in enumerate(sizes)]
    call = copy.deepcopy(launch.call)
    parameters = launch.kernel.parameters
    kept = [a for name, a in zip(parameters, call.args, strict=False) if name not in moved]
    call.args = kept
    call.keywords = [k for k in call.keywords if k.arg not in moved]
    call.keywords.append(ast.keyword(WORK, ast.Name(table, ast.Load())))
    assert isinstance(call.func, ast.Subscript)
    call.func.slice = parse_expression(f"({', '.join(grid)},)")
    indent = source.indentation(loop)
    behind = (
        f"\n{indent}if {work}:"
        f"\n{indent}    {table} = torch.tensor({work}, dtype=torch.int32, device={tensor}.device)"
        f"\n{indent}    {ast.unparse(call)}"
    )
    start, end, own = source.start(loop), source.end(loop), launch.kernel.node
    return source.edited(
        [
            Edit(start, start, f"{work} = []\n{indent}"),
            source.replacing(statement, note),
            Edit(end, end, behind),
            Edit(
                source.line_start(first_line(own)),
                source.end(own),
                ast.unparse(ast.fix_missing_locations(kernel)),
            ),
        ]
    )
