"""Programs that find the sequence of a query by themselves, where the host made a table of it."""

from __future__ import annotations

import ast
import copy
from typing import NamedTuple

from accelopt.kernels.triton.moves.loops import bodies, fresh_name
from accelopt.kernels.triton.moves.source import (
    Edit,
    Launch,
    Source,
    add_parameter,
    called,
    first_line,
    names_in,
)
from accelopt.kernels.triton.moves.tables import Table, table_of, unread_statements
from accelopt.parsing import parse_expression, parse_python

PAST_ALL = 2147483647  # larger than every position


def found_sequence(source: Source, launch: Launch) -> str | None:
    """Let programs look for the sequence of a query in the offsets, not in a table of the host's.

    Before: `t = torch.arange(n).repeat_interleave(b[1:] - b[:-1])`, or by `searchsorted`,
    `bucketize`, a comparison with all offsets or a loop, and `s = tl.load(t_ptr + q)`. After: s
    starts at the first sequence and takes steps of a half, a quarter and so on of all as long as
    `tl.load(b_ptr + s + step) <= q`: the last sequence that does not begin behind q, which of
    several with the same offset is the only one that has queries. That are as many loads as n has
    bits, none for one sequence; what made the table, some kernels and often a wait of the host, is
    gone. Legal where the offsets begin with 0 and do not fall and every position of the table is
    one of theirs.
    """
    if launch.function is None:
        return None
    for parameter in launch.kernel.parameters:
        bound = launch.bound(parameter)
        if isinstance(bound, ast.Name) and _looked_up(launch.kernel.node, parameter):
            text = _without_table(source, launch.function, bound.id)
            if text is not None:
                return text
    return None


class _Lookup(NamedTuple):
    """A load from the table: the call, and the position it looks up."""

    call: ast.Call
    position: ast.expr


def _without_table(source: Source, function: ast.FunctionDef, name: str) -> str | None:
    """The source with every launch that is given a table finding its numbers itself."""
    launches = [
        other
        for other in source.launches
        if other.function is function and any(name in names_in(a) for a in _given(other.call))
    ]
    table = table_of(function, name, [other.call for other in launches])
    if table is None:
        return None
    edits: list[Edit] = []
    for other in launches:
        alone = sum(one.kernel.name == other.kernel.name for one in source.launches) == 1
        own = _searching(source, other, name, table) if alone else None
        if own is None:
            return None
        edits += own
    removed = list(table.made)
    removed += unread_statements(function, [*removed])
    return source.edited([*edits, *(_without(source, statement) for statement in removed)])


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _searching(source: Source, launch: Launch, name: str, table: Table) -> list[Edit] | None:
    """The edits that make a kernel search the offsets, and its launch hand them over."""
    kernel = launch.kernel
    parameters = {p: launch.bound(p) for p in kernel.parameters}
    own = [p for p, given in parameters.items() if given is not None and _is(given, name)]
    if len(own) != 1 or own[0] in kernel.constants or len(launch.call.args) > len(parameters):
        return None
    node = copy.deepcopy(kernel.node)
    if not _looked_up(node, own[0]):
        return None
    offsets = [
        p for p, given in parameters.items() if given is not None and _is(given, table.offsets)
    ]
    words = ("sequence_offsets_ptr", "sequence_count", "SEARCH_STEPS")
    pointer, count, steps = (fresh_name(word, node) for word in words)
    new = {
        count: f"{table.offsets}.shape[0] - 1",
        steps: f"({table.offsets}.shape[0] - 2).bit_length()",
    }
    if offsets:
        pointer = offsets[0]
    else:
        new = {pointer: f"{table.offsets}.contiguous()", **new}
    if not _put(node, own[0], (pointer, count, steps)):
        return None
    place = kernel.parameters.index(own[0])
    call = copy.deepcopy(launch.call)
    call.args = [a for i, a in enumerate(call.args) if i != place]
    call.keywords = [k for k in call.keywords if k.arg != own[0]]
    call.keywords += [ast.keyword(p, parse_expression(given)) for p, given in new.items()]
    if not _without_parameter(node.args, own[0]):
        return None
    for parameter in new:
        add_parameter(node.args, parameter, constant=parameter == steps)
    text = ast.unparse(ast.fix_missing_locations(node))
    return [
        source.replacing(launch.call, ast.unparse(call)),
        Edit(source.line_start(first_line(kernel.node)), source.end(kernel.node), text),
    ]


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _without_parameter(arguments: ast.arguments, name: str) -> bool:
    """Whether a positional parameter without a default was taken out."""
    without_default = len(arguments.args) - len(arguments.defaults)
    own = [a for a in arguments.args[:without_default] if a.arg == name]
    if arguments.posonlyargs or not own:
        return False
    arguments.args.remove(own[0])
    return True


def _looked_up(node: ast.FunctionDef, parameter: str) -> list[_Lookup]:
    """The loads from a table; none where it is used in any other way."""
    found: list[_Lookup] = []
    pointers = {parameter: None} | {
        s.targets[0].id: s.value
        for s in ast.walk(node)
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
        and parameter in names_in(s.value) and "tl.load" not in ast.unparse(s.value)
    }  # fmt: skip
    known: set[int] = set()
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and called(call) == "tl.load" and call.args):
            continue
        address = call.args[0]
        if isinstance(address, ast.Name) and pointers.get(address.id) is not None:
            known.add(id(address))
            address = pointers[address.id]  # type: ignore[assignment]
        position = _position(address, parameter)
        if position is not None:
            known |= {id(n) for n in ast.walk(address) if _is_name(n, parameter)}
            found.append(_Lookup(call, position))
    stores = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not _is_read(n)]
    if any(stores.count(name) != 1 for name in pointers if name != parameter):
        return []
    uses = [
        n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in pointers and _is_read(n)
    ]
    return found if all(id(n) in known for n in uses) and parameter not in stores else []


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _position(address: ast.expr, parameter: str) -> ast.expr | None:
    """The q of `t + q`."""
    if not (isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add)):
        return None
    for own, other in ((address.left, address.right), (address.right, address.left)):
        if _is_name(own, parameter):
            return None if parameter in names_in(other) else other
    inner = _position(address.left, parameter)
    if inner is None or parameter in names_in(address.right):
        return None
    return ast.BinOp(inner, ast.Add(), address.right)


def _put(node: ast.FunctionDef, parameter: str, names: tuple[str, str, str]) -> bool:
    """Whether each load from the table could be replaced by a search that stands before it."""
    lookups = {id(found.call): found for found in _looked_up(node, parameter)}
    left = set(lookups)
    for body in bodies(node):
        for index in reversed(range(len(body))):
            statement = body[index]
            # What a loop asks is asked again in every step, and inner bodies come by themselves.
            headers = [n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.expr)]
            own = [n for header in headers for n in ast.walk(header) if id(n) in left]
            if not own or isinstance(statement, (ast.While, ast.FunctionDef)):
                continue
            before: list[ast.stmt] = []
            for call in own:
                left.discard(id(call))
                lines, value = _search(node, lookups[id(call)], names)
                before += parse_python(lines).body
                body[index] = _Replaced(call, parse_expression(value)).visit(body[index])
            body[index:index] = before
    if left:
        return False
    for body in bodies(node):  # a pointer into the table, which nothing reads by now
        body[:] = [s for s in body if not (isinstance(s, ast.Assign) and parameter in names_in(s))]
    return parameter not in names_in(node)


def _search(node: ast.FunctionDef, lookup: _Lookup, names: tuple[str, str, str]) -> tuple[str, str]:
    """The search for a position's sequence as statements, and the value that takes the load's place."""
    pointer, count, steps = names
    words = ("sequence_found", "search_step", "later_sequence", "position_looked_up")
    found, step, later, position = (fresh_name(word, node) for word in words)
    lines = f"{position} = {ast.unparse(lookup.position)}\n"
    if isinstance(lookup.position, ast.Name):
        position, lines = lookup.position.id, ""
    begin = f"tl.load({pointer} + {later}, mask={later} < {count}, other={PAST_ALL})"
    lines += (
        f"{found} = {position} * 0\n"
        f"for {step} in tl.static_range({steps}):\n"
        f"    {later} = {found} + (1 << {steps} - 1 - {step})\n"
        f"    {found} = tl.where({begin} <= {position}, {later}, {found})"
    )
    given = dict(zip(("pointer", "mask", "other"), lookup.call.args, strict=False))
    given |= {str(k.arg): k.value for k in lookup.call.keywords}
    mask, other = given.get("mask"), given.get("other")
    if mask is None or other is None or ast.unparse(mask) == "True":
        return lines, found
    return lines, f"tl.where({ast.unparse(mask)}, {found}, {ast.unparse(other)})"


class _Replaced(ast.NodeTransformer):
    """Puts an expression in one call's place."""

    def __init__(self, call: ast.AST, value: ast.expr) -> None:
        self.call = call
        self.value = value

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The expression for that call; everything else as it was."""
        return self.value if node is self.call else self.generic_visit(node)


def _without(source: Source, statement: ast.stmt) -> Edit:
    """The edit that takes a statement out, its lines where it has them for itself."""
    assert statement.end_lineno is not None
    start = source.line_start(statement.lineno)
    lines = source.data.splitlines(keepends=True)
    end = start + sum(map(len, lines[statement.lineno - 1 : statement.end_lineno]))
    around = source.data[start : source.start(statement)] + source.data[source.end(statement) : end]
    if around.split(b"#")[0].strip():
        return source.replacing(statement, "pass")
    return Edit(start, end, "")
