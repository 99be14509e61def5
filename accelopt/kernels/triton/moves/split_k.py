"""Split-K for attention: several programs share the keys of one, and a second kernel reduces."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.loop_state import NotJoined
from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import (
    Edit,
    Launch,
    Source,
    address_of,
    assigned_in,
    called,
    first_line,
    grid_sizes,
)
from accelopt.kernels.triton.moves.split_k_parts import (
    IS_SPLIT,
    LEAST,
    SPLITS,
    STEPS,
    Parts,
    add_parameters,
    parts_of,
    places,
    row_extent,
    steps_text,
)
from accelopt.kernels.triton.moves.split_k_reduction import (
    JOINED,
    JOINING_WARPS,
    LANES,
    can_be_joined,
    joined,
)
from accelopt.parsing import parse_expression, parse_python

MOST_AXES = 3  # of a grid

HOW_TO_SPLIT = '''


def how_to_split(programs, steps, tensor):
    """Among how many programs at most to share the loop of each of `programs`, which take `steps`
    together (0 where nobody knows), and how many steps each of them takes at least."""
    processors = 1
    if tensor.is_cuda:
        processors = torch.cuda.get_device_properties(tensor.device).multi_processor_count
    wanted = {waves} * processors
    splits = -(-wanted // max(1, programs))
    if splits < 2 or not steps:
        return splits, 1
    return min({uneven} * splits, steps), max(1, steps // wanted)'''
UNEVEN = 4  # so much more work than the average one may have a program, and be shared evenly


def split_loop(source: Source, launch: Launch, waves: int) -> str | None:
    """Share the loop of a program among several where there are too few to fill the device.

    Before: a loop over all keys, `m, l, acc` carried, then the store. After: programs along a
    further axis of the grid take pieces of the loop and store what they carry, and a second kernel
    joins it and does what followed the loop. How many is decided at each call: none where there
    are programs enough, when the kernel is as it was. Legal where sums and a running maximum are
    all that is carried, as in an online softmax: sums are taken in another order. `waves` programs
    for each multiprocessor are aimed at.
    """
    sizes, kernel = grid_sizes(launch), launch.kernel
    statement = _statement(launch)
    if sizes is None or statement is None or kernel.autotune is not None:
        return None
    if len(sizes) >= MOST_AXES or SPLITS in kernel.parameters or kernel.node.args.defaults:
        return None
    if any(name.endswith(JOINED) for name in source.kernels) or not _has_torch(source):
        return None
    try:
        parts = parts_of(kernel.node)
    except NotJoined:
        return None
    stored = _stored_tensor(launch)
    if parts is None or stored is None or not can_be_joined(parts):
        return None
    axis = len(sizes)
    shared = _shared(kernel.node, parts, axis)
    joining = joined(kernel.node, parts, axis)
    host = _host(launch, statement, parts, sizes, stored)
    if host is None:
        return None
    text = f"{ast.unparse(shared)}\n\n\n{ast.unparse(joining)}"
    own = kernel.node
    last = max(
        source.end(n) for n in source.tree.body if isinstance(n, (ast.Import, ast.ImportFrom))
    )
    return source.edited(
        [
            Edit(last, last, HOW_TO_SPLIT.format(waves=waves, uneven=UNEVEN)),
            Edit(source.line_start(first_line(own)), source.end(own), text),
            source.replacing(statement, f"\n{source.indentation(statement)}".join(host)),
        ]
    )


def _has_torch(source: Source) -> bool:
    return any(
        isinstance(n, ast.Import) and any(a.name == "torch" and not a.asname for a in n.names)
        for n in source.tree.body
    )


def _statement(launch: Launch) -> ast.Expr | None:
    """The launch as a statement of its own."""
    for node in ast.walk(launch.function) if launch.function is not None else ():
        if isinstance(node, ast.Expr) and node.value is launch.call:
            return node
    return None


def _stored_tensor(launch: Launch) -> str | None:
    """The argument for a pointer that the kernel stores to."""
    for call in ast.walk(launch.kernel.node):
        if called(call) == "tl.store":
            assert isinstance(call, ast.Call)
            for name in launch.kernel.parameters:
                bound = launch.bound(name) if name in address_of(launch, call.args[0]) else None
                if isinstance(bound, (ast.Name, ast.Subscript)):
                    return ast.unparse(bound)
    return None


def _shared(own: ast.FunctionDef, parts: Parts, axis: int) -> ast.FunctionDef:
    """The kernel for a piece of the loop."""
    node = copy.deepcopy(own)
    split, count, begin, end = (
        fresh_name(word, node) for word in ("split", "split_steps", "split_begin", "split_end")
    )
    loops = copy.deepcopy(parts.loops)
    calls = [loop.iter for loop in loops]
    step = ast.unparse(calls[0].args[2])  # type: ignore[attr-defined]
    whole = ast.unparse(calls[-1].args[1])  # type: ignore[attr-defined]
    lines = (
        f"{split} = tl.program_id({axis})\n"
        f"{count} = {steps_text(whole, step)}\n"
        f"{begin} = {split} * {count}\n"
        f"{end} = tl.minimum({whole}, {begin} + {count})"
    )
    if parts.states.maximum:
        name = parts.states.maximum
        lines += f"\nif {IS_SPLIT}:\n    {name} = tl.maximum({name}, {LEAST})"
    for place, call in enumerate(calls):
        assert isinstance(call, ast.Call)
        start, stop = (ast.unparse(a) for a in call.args[:2])
        start = begin if place == 0 else f"tl.maximum({begin}, {start})"
        stop = end if place == len(calls) - 1 else f"tl.minimum({end}, {stop})"
        call.args[:2] = [parse_expression(text) for text in (start, stop)]
    kept = places(parts, axis, split)
    stores = "\n".join(f"tl.store({at}, {name})" for name, at in kept.items())
    some = f"if {begin} < {whole}:\n    " + stores.replace("\n", "\n    ")
    chosen = ast.If(
        ast.Name(IS_SPLIT, ast.Load()), parse_python(some).body, copy.deepcopy(parts.after)
    )
    node.body = [*copy.deepcopy(parts.before), *parse_python(lines).body, *loops, chosen]
    add_parameters(node, parts)
    return ast.fix_missing_locations(node)


def _host(
    launch: Launch, statement: ast.Expr, parts: Parts, sizes: list[ast.expr], tensor: str
) -> list[str] | None:
    """The launch of both kernels, line by line."""
    assert launch.function is not None
    splits, programs, steps = (
        fresh_name(word, launch.function) for word in ("splits", "programs", "steps_of_split")
    )
    grid = [ast.unparse(size) for size in sizes]
    most = _all_steps(launch, parts)
    lines = [
        f"{programs} = {' * '.join(f'({size})' for size in grid)}",
        f"{splits}, {steps} = how_to_split({programs}, {most}, {tensor})",
    ]
    call = copy.deepcopy(launch.call)
    lines += _named_constants(launch, call)
    for name, shape in parts.shapes.items():
        numbers = []
        for size in shape:
            bound = launch.bound(size) if size in launch.kernel.parameters else None
            if bound is None and not size.isdigit():
                return None
            numbers.append(size if bound is None else ast.unparse(bound))
        extents = "".join(f", {number}" for number in numbers)
        part = fresh_name(f"{name}_parts", launch.function)
        lines.append(
            f"{part} = torch.empty(({splits} if {splits} > 1 else 0, {programs}{extents}), "
            f"dtype=torch.float32, device={tensor}.device)"
        )
        call.keywords.append(ast.keyword(f"{name}_parts", ast.Name(part, ast.Load())))
    call.keywords.append(ast.keyword(SPLITS, ast.Name(splits, ast.Load())))
    call.keywords.append(ast.keyword(STEPS, ast.Name(steps, ast.Load())))
    call.keywords.append(ast.keyword(IS_SPLIT, parse_expression(f"{splits} > 1")))
    assert isinstance(call.func, ast.Subscript)
    joining = copy.deepcopy(call)
    assert isinstance(joining.func, ast.Subscript)
    call.func.slice = parse_expression(f"({', '.join(grid)}, {splits})")
    lanes = row_extent(parts)
    if lanes is not None:
        rows = lanes if lanes.isdigit() else launch.bound(lanes)
        if rows is None:
            return None
        joining.keywords.append(ast.keyword(LANES, ast.Constant(1)))
        grid.append(rows if isinstance(rows, str) else ast.unparse(rows))
    for keyword in joining.keywords:
        if keyword.arg == "num_warps":
            keyword.value = ast.Constant(JOINING_WARPS)
    joining.func.slice = parse_expression(f"({', '.join(grid)},)")
    joining.func.value = ast.Name(f"{launch.kernel.name}{JOINED}", ast.Load())
    return [*lines, ast.unparse(call), f"if {splits} > 1:", f"    {ast.unparse(joining)}"]


def _named_constants(launch: Launch, call: ast.Call) -> list[str]:
    """Gives numbers that a call passes for constants names, so that both kernels get one value,
    whoever sets it later; the lines that make them."""
    assert launch.function is not None
    lines = []
    for name in launch.kernel.parameters:
        bound = launch.bound(name) if name in launch.kernel.constants else None
        if not (isinstance(bound, ast.Constant) and type(bound.value) is int):
            continue
        own = fresh_name(name.lower(), launch.function)
        lines.append(f"{own} = {bound.value}")
        for keyword in call.keywords:
            if keyword.arg == name:
                keyword.value = ast.Name(own, ast.Load())
        place = launch.kernel.parameters.index(name)
        if place < len(call.args) and not any(k.arg == name for k in call.keywords):
            call.args[place] = ast.Name(own, ast.Load())
    return lines


def _all_steps(launch: Launch, parts: Parts) -> str:
    """How many steps all programs take together, as far as the host can know: a tensor that is read
    along the loop's position without a stride has as many elements as steps times their width."""
    loop = parts.loops[-1]
    assert isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call)
    step = launch.bound(ast.unparse(loop.iter.args[2]))
    made = {loop.target.id}
    for statement in loop.body:
        if isinstance(statement, ast.Assign) and _is_plain_sum(statement.value, made):
            made |= assigned_in([statement])
    for call in ast.walk(loop):
        if called(call) == "tl.load" and step is not None:
            assert isinstance(call, ast.Call)
            first = address_of(launch, call.args[0])
            bound = (
                launch.bound(first[0]) if first and first[0] in launch.kernel.parameters else None
            )
            if isinstance(bound, ast.Name) and _is_plain_sum(call.args[0], made):
                return f"triton.cdiv({bound.id}.numel(), {ast.unparse(step)})"
    return "0"


def _is_plain_sum(node: ast.expr, names: set[str]) -> bool:
    """A sum of plain terms that one of `names` is in."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = (node.left, node.right)
        plain = all(isinstance(p, (ast.Name, ast.Call, ast.Constant, ast.BinOp)) for p in parts)
        return plain and any(_is_plain_sum(p, names) for p in parts)
    return isinstance(node, ast.Name) and node.id in names
