"""Turning a loop into a wider tile: several iterations done by one instruction along the free axis."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from accelopt.hardware import TRN1
from accelopt.kernels.nki.moves.reading.legality import dependence, uses_of
from accelopt.kernels.nki.moves.reading.polynomial import ONE, Polynomial, Symbol, ramp
from accelopt.kernels.nki.moves.reading.reader import LoopFacts, Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.signatures import BINARY, DECLARATIONS, UNARY
from accelopt.kernels.nki.moves.reading.source import (
    IllegalMove,
    ParsedKernel,
    SourceLoop,
    SourceNode,
    SourceStatement,
    StatementPath,
    code_of,
    parts,
)
from accelopt.kernels.nki.moves.reading.values import KernelTensor, TensorValue, TileUse
from accelopt.kernels.nki.moves.surgery.loops import inlining, split
from accelopt.kernels.nki.moves.surgery.rewriting import (
    substitute,
    tidy,
    with_expression,
    with_shape,
)

# Instructions that do the same to every element, so that a wider tile is the same work at once.
ELEMENTWISE = frozenset(
    {
        "nl.load",
        "nl.store",
        "nl.copy",
        "nl.where",
        "nisa.activation",
        "nisa.tensor_scalar",
        "nisa.tensor_tensor",
        "nisa.scalar_tensor_tensor",
        "nisa.tensor_copy",
        "nisa.reciprocal",
        *(f"nl.{name}" for name in UNARY | BINARY),
    }
)

# Products: the stationary and the moving operand.
PRODUCTS = {"nisa.nc_matmul": ("stationary", "moving"), "nl.matmul": ("x", "y")}


def widen(kernel: ParsedKernel, variable: str, factor: int) -> ParsedKernel:
    """Make `factor` iterations of a loop one.

    before: for j in nl.affine_range(14): x = nl.load(a[p, j * 512:(j + 1) * 512]); ...
    after:  for j_block in nl.affine_range(7): x = nl.load(a[p, j_block * 1024:(j_block + 1) * 1024])

    Legal when the loop holds elementwise instructions, loads, stores and products whose moving
    operand gets wider, iterations are independent, every tile they touch lies next to the following
    iteration's tile, and PSUM tiles stay within a bank.
    """
    reading = read(kernel)
    facts = reading.loop(variable)
    reason = dependence(reading, facts)
    if reason:
        raise IllegalMove(reason)
    trips = facts.trips.constant if facts.trips is not None else None
    if trips is None or not facts.plain or factor < 2 or trips % factor:
        raise IllegalMove(f"{factor} does not divide the iterations of loop {variable}")
    kernel = tidy(_with_names_inlined(kernel, reading, facts))
    kernel = merge_blocks(kernel, _block_dimensions(kernel, variable))
    if factor < trips:
        kernel, _, variable = split(kernel, variable, factor)
    return tidy(_absorb(kernel, variable, factor))


def merge_blocks(kernel: ParsedKernel, blocks: Mapping[str, int]) -> ParsedKernel:
    """Lay the blocks of buffers side by side in the free axis: for each buffer, of one block axis.

    before: t = nl.ndarray((7, nl.par_dim(128), 512)); t[e, p, 0:512]
    after:  t = nl.ndarray((nl.par_dim(128), 3584));   t[p, e * 512:e * 512 + 512]

    Legal for SBUF buffers with one free axis whose every use takes that axis whole.
    """
    if not blocks:
        return kernel
    reading = read(kernel)
    changes: dict[cst.CSTNode, cst.CSTNode] = {}
    declarations: dict[StatementPath, SourceStatement] = {}
    for name, axis in blocks.items():
        tensor = reading.tensor(name)
        blocked, width = _block_sizes(tensor, axis)
        for _, access in uses_of(reading, tensor):
            whole_width = access.dims is not None and _spans(access.dims[-1], width)
            if access.view or access.style == "whole" or not whole_width:
                raise IllegalMove(f"{name} is not used by whole blocks")
            assert access.dims is not None
            dims = list(access.dims)
            dims[-1] = dims[axis] * Polynomial.number(width) + dims[-1]
            del dims[axis]
            changes[access.node] = indexed(reading, access, dims)
        assert tensor.shape is not None
        shape = list(tensor.shape)
        shape[-1] = Polynomial.number(blocked * width)
        del shape[axis]
        declarations[tensor.path] = _declared_shape(kernel, tensor, shape)
    return _changed(kernel, changes, declarations)


def _block_sizes(tensor: KernelTensor, axis: int) -> tuple[int, int]:
    """How many blocks there are along an axis, and how wide each is."""
    if not tensor.declared or tensor.buffer != "sbuf" or tensor.shape is None:
        raise IllegalMove(f"{tensor.name} is not an SBUF buffer")
    if len(tensor.shape) != tensor.block_rank + 2 or axis >= tensor.block_rank:
        raise IllegalMove(f"{tensor.name} has more than one free axis")
    blocked, width = tensor.shape[axis].constant, tensor.shape[-1].constant
    if blocked is None or width is None:
        raise IllegalMove(f"the size of {tensor.name} is not known")
    return blocked, width


def indexed(reading: Reading, access: TileUse, dims: list[Polynomial]) -> cst.BaseExpression:
    """The access written anew over other index polynomials, in the style it had. Raises IllegalMove
    for anything but a tensor's name with a subscript."""
    name, node = access.tensor.name, access.node
    if not isinstance(node, cst.Subscript) or code_of(node.value) != name:
        raise IllegalMove(f"{name} is not subscripted by its name")
    names = {facts.symbol: facts.node.variable for facts in reading.loops}
    rank = len(access.shape or ())
    parts = []
    for dim in dims:
        if access.style == "basic" and dim.ramps:
            parts.append(_slice_text(dim, names))
        else:
            parts.append(index_text(reading.kernel, dim, names, rank))
    return cst.parse_expression(f"{name}[{', '.join(parts)}]")


def index_text(
    kernel: ParsedKernel, polynomial: Polynomial, names: dict[Symbol, str], rank: int
) -> str:
    """An index expression; ramps become aranges of a given rank."""

    def write(symbol: Symbol) -> str:
        if symbol.kind != "ramp":
            return names.get(symbol, symbol.name)
        assert symbol.size is not None
        size = symbol.size.render(lambda s: s.name)
        axes = ", ".join(":" if axis - rank == symbol.axis else "None" for axis in range(rank))
        return f"{kernel.spelled('nl.arange')}({size})[{axes}]"

    if any(s.mentions for s in polynomial.symbols):
        raise IllegalMove("an index is not a polynomial")
    return polynomial.render(write)


def _slice_text(dim: Polynomial, names: dict[Symbol, str]) -> str:
    ramps = dim.ramps
    if len(ramps) != 1 or dim.factor_of(ramps[0]) != ONE or ramps[0].size is None:
        raise IllegalMove("a slice with a stride")
    if any(s.mentions for s in dim.symbols):
        raise IllegalMove("an index is not a polynomial")

    def write(symbol: Symbol) -> str:
        return names.get(symbol, symbol.name)

    start = dim.without(ramps[0])
    stop = start + ramps[0].size
    return f"{start.render(write)}:{stop.render(write)}"


def _spans(dim: Polynomial, width: int) -> bool:
    ramps = dim.ramps
    return (
        len(ramps) == 1
        and dim == Polynomial.symbol(ramps[0])
        and ramps[0].size == Polynomial.number(width)
    )


def _with_names_inlined(kernel: ParsedKernel, reading: Reading, facts: LoopFacts) -> ParsedKernel:
    texts = inlining(reading, facts)
    body = tuple(substitute(node, texts) for node in facts.node.body)
    return kernel.replaced(facts.path, [SourceLoop(facts.node.node, body, facts.node.number)])


def _block_dimensions(kernel: ParsedKernel, variable: str) -> dict[str, int]:
    """Outer buffers that the loop's variable indexes, each with that block dimension."""
    reading = read(kernel)
    facts = reading.loop(variable)
    found: dict[str, int] = {}
    for statement in reading.inside(facts):
        for access in (*statement.reads, *statement.writes):
            tensor = access.tensor
            for axis in range(tensor.block_rank):
                if access.dims is None or facts.symbol not in access.dims[axis].loops:
                    continue
                if found.setdefault(tensor.name, axis) != axis:
                    raise IllegalMove(f"{tensor.name} has two dimensions that {variable} indexes")
    return found


def _absorb(kernel: ParsedKernel, variable: str, trips: int) -> ParsedKernel:
    """The loop's body once, on tiles `trips` times as wide."""
    reading = read(kernel)
    facts = reading.loop(variable)
    wide: set[KernelTensor] = set()
    changes: dict[cst.CSTNode, cst.CSTNode] = {}
    declarations: dict[StatementPath, SourceStatement] = {}
    for statement in reading.inside(facts):
        if statement.opaque:
            raise IllegalMove(f"line {statement.line.number} is not understood")
        if statement.kind == "declare":
            assert statement.result is not None
            declarations[statement.path] = _wider(kernel, statement.result, trips)
            wide.add(statement.result)
            continue
        accesses = [*statement.reads, *statement.writes]
        grown = {a: _wide_dims(a, facts.symbol, trips, wide) for a in accesses}
        if not any(grown.values()):
            _check_invariant(statement, facts)
            continue
        _check(reading, statement)
        stationary = _stationary(reading, statement)
        for access, dims in grown.items():
            if access.node is stationary:
                if dims is not None:
                    raise IllegalMove(f"line {statement.line.number} widens the stationary operand")
            elif dims is None and not _narrow(access):
                raise IllegalMove(f"line {statement.line.number} uses a tile that stays narrow")
            elif dims is not None and isinstance(access.node, cst.Subscript):
                changes[access.node] = indexed(reading, access, dims)
        if statement.result is not None:
            if statement.result.buffer == "psum":
                _check_bank(statement.result, trips)
            wide.add(statement.result)
        changes.update(_masks(reading, statement, facts.symbol, trips))
    changed = _changed(kernel, changes, declarations)
    loop = changed.at(facts.path)
    assert isinstance(loop, SourceLoop)
    return changed.replaced(facts.path, loop.body)


def _check(reading: Reading, statement: ReadStatement) -> None:
    number = statement.line.number
    if statement.kind not in {"compute", "store"}:
        raise IllegalMove(f"line {number} is not elementwise")
    product = _stationary(reading, statement) is not None
    if statement.accumulates and not product:
        raise IllegalMove(f"line {number} sums up")

    for part in parts(statement.line.node):
        call = reading.calls.get(part)
        if call is None and _names_its_shape(part):
            raise IllegalMove(f"line {number} gives a shape itself")
        if call is None or call.name in DECLARATIONS:
            continue
        if call.name in PRODUCTS and statement.call is call:
            continue
        if call.name not in ELEMENTWISE or "reduce_res" in call.values:
            raise IllegalMove(f"{call.name} in line {number} is not elementwise")


def _names_its_shape(part: cst.CSTNode) -> bool:
    """`tile.broadcast_to((128, 512))` would not grow with its tile."""
    if not isinstance(part, cst.Call) or not isinstance(part.func, cst.Attribute):
        return False
    return part.func.attr.value in {"broadcast_to", "reshape"}


def _check_invariant(statement: ReadStatement, facts: LoopFacts) -> None:
    """What every iteration computes alike may be computed fewer times."""
    if facts.symbol in statement.mentions or statement.accumulates or statement.kind == "store":
        raise IllegalMove(f"line {statement.line.number} cannot be done for several iterations")


def _stationary(reading: Reading, statement: ReadStatement) -> cst.BaseExpression | None:
    """The operand of a product that its width does not touch."""
    call = statement.call
    if call is None or call.name not in PRODUCTS:
        return None
    name, moving = PRODUCTS[call.name]
    if not all(isinstance(call.values.get(n), TensorValue) for n in (name, moving)):
        raise IllegalMove(f"line {statement.line.number} multiplies what is not a plain tile")
    return call.arguments[name]


def _check_bank(tensor: KernelTensor, trips: int) -> None:
    width = tensor.shape[-1].constant if tensor.shape else None
    if width is None or width * trips * 4 > TRN1.psum_bank_bytes:
        raise IllegalMove(f"{tensor.name} would not fit into a PSUM bank")


def _wide_dims(
    access: TileUse, symbol: Symbol, trips: int, wide: set[KernelTensor]
) -> list[Polynomial] | None:
    """The index of the wide tile; None when the access does not grow. Raises when it cannot."""
    if access.dims is None:
        raise IllegalMove(f"how {access.tensor.name} is indexed is not understood")
    if access.tensor in wide:
        if not access.whole:
            raise IllegalMove(f"only a part of {access.tensor.name} is used")
        size = access.dims[-1].ramps[0].size
        assert size is not None
        return [*access.dims[:-1], ramp(size * Polynomial.number(trips), -1)]
    moving = [axis for axis, dim in enumerate(access.dims) if symbol in dim.loops]
    if not moving:
        return None
    last = len(access.dims) - 1
    if moving != [last] or access.view:
        raise IllegalMove(f"iterations do not lie side by side in {access.tensor.name}")
    dim = access.dims[last]
    ramps = dim.ramps
    if len(ramps) != 1 or ramps[0].axis != -1 or ramps[0].size is None:
        raise IllegalMove(f"{access.tensor.name} is not a plain tile")
    if dim.factor_of(ramps[0]) != ONE or dim.factor_of(symbol) != ramps[0].size:
        raise IllegalMove(f"iterations do not lie side by side in {access.tensor.name}")
    size = ramps[0].size * Polynomial.number(trips)
    return [*access.dims[:last], dim.without(symbol, ramps[0]) + ramp(size, -1)]


def _narrow(access: TileUse) -> bool:
    """True for a column, which serves a tile of any width."""
    shape = access.shape
    return shape is not None and len(shape) == 2 and shape[1] == ONE


def _masks(
    reading: Reading, statement: ReadStatement, symbol: Symbol, trips: int
) -> dict[cst.CSTNode, cst.CSTNode]:
    call = statement.call
    mask = call.values.get("mask") if call is not None else None
    conditions = getattr(mask, "conditions", ())
    if call is None or not conditions:
        return {}
    names = {facts.symbol: facts.node.variable for facts in reading.loops}
    texts = []
    for condition in conditions:
        if symbol in condition.loops:
            ramps = [r for r in condition.ramps if r.axis == -1]
            if len(ramps) != 1 or ramps[0].size is None:
                raise IllegalMove("a mask that the loop moves but not the tile")
            factor = condition.factor_of(ramps[0])
            if condition.factor_of(symbol) != factor * ramps[0].size:
                raise IllegalMove("a mask that does not move with the tile")
            size = ramps[0].size * Polynomial.number(trips)
            condition = condition.without(symbol, ramps[0]) + factor * ramp(size, -1)
        elif any(r.axis == -1 for r in condition.ramps):
            raise IllegalMove("a mask over the free axis that the loop does not move")
        texts.append(f"({index_text(reading.kernel, condition, names, 2)} >= 0)")
    return {call.arguments["mask"]: cst.parse_expression(" & ".join(texts))}


def _wider(kernel: ParsedKernel, tensor: KernelTensor, trips: int) -> SourceStatement:
    if tensor.shape is None or tensor.block_rank or len(tensor.shape) != 2:
        raise IllegalMove(f"{tensor.name} is not a plain tile")
    if tensor.buffer == "psum":
        _check_bank(tensor, trips)
    elif tensor.buffer != "sbuf":
        raise IllegalMove(f"{tensor.name} is not on chip")
    shape = [tensor.shape[0], tensor.shape[1] * Polynomial.number(trips)]
    return _declared_shape(kernel, tensor, shape)


def _declared_shape(
    kernel: ParsedKernel, tensor: KernelTensor, shape: list[Polynomial]
) -> SourceStatement:
    """The tensor's declaration with another shape."""
    texts = [size.render(lambda symbol: symbol.name) for size in shape]
    position = len(shape) - 2
    texts[position] = f"{kernel.spelled('nl.par_dim')}({texts[position]})"
    return with_shape(read(kernel).statement(tensor.path), f"({', '.join(texts)})")


def _changed(
    kernel: ParsedKernel,
    changes: dict[cst.CSTNode, cst.CSTNode],
    declarations: dict[StatementPath, SourceStatement],
) -> ParsedKernel:
    def visit(nodes: tuple[SourceNode, ...], prefix: StatementPath) -> tuple[SourceNode, ...]:
        result: list[SourceNode] = []
        for position, node in enumerate(nodes):
            path = (*prefix, position)
            if path in declarations:
                result.append(declarations[path])
            elif isinstance(node, SourceStatement):
                result.append(with_expression(node, changes))
            else:
                result.append(SourceLoop(node.node, visit(node.body, path), node.number))
        return tuple(result)

    return kernel.with_body(visit(kernel.body, ()))
