"""Longer transfers: one load for the tiles of several iterations, one store for their results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Option, Parameter, Site
from accelopt.kernels.nki.moves.places import path_text
from accelopt.kernels.nki.moves.reading.legality import uses_of
from accelopt.kernels.nki.moves.reading.polynomial import ONE, Polynomial, ramp
from accelopt.kernels.nki.moves.reading.reader import LoopFacts, Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.source import (
    ParsedKernel,
    SourceLoop,
    SourceStatement,
    code_of,
    line,
)
from accelopt.kernels.nki.moves.reading.values import KernelTensor, KnownConstant, TileUse
from accelopt.kernels.nki.moves.reading.work import resident_bytes
from accelopt.kernels.nki.moves.surgery.hoisting import hoist
from accelopt.kernels.nki.moves.surgery.loops import split
from accelopt.kernels.nki.moves.surgery.names import fresh, taken
from accelopt.kernels.nki.moves.surgery.rewriting import tidy, with_expression
from accelopt.kernels.nki.moves.surgery.widening import index_text, indexed

LONGEST_ROW_BYTES = 32 * 1024
EFFICIENT_ROW_BYTES = 4 * 1024  # DMA reaches 97 % of its rate (vendor's size curve)


class MergeLoads:
    """Load a row once for several iterations instead of a tile in each.

    before: for j in 4: t = nl.load(x[p, j * 512:(j + 1) * 512]); f(t)
    after:  t_row = nl.load(x[p, 0:2048])
            for j in 4: f(t_row[0:128, j * 512:(j + 1) * 512])

    Fewer and longer transfers. Legal for an unmasked load into a tile of its own whose iterations
    lie side by side in HBM, when nothing in the loop writes that HBM tensor and the row fits.
    """

    name = "merge_loads"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every load, out of every loop that moves it along its row."""
        for statement, loop, factor in _moving(read(kernel), "nl.load"):
            parameters: dict[str, Parameter] = {
                "value": str(statement.bound),
                "loop": loop.node.variable,
                "factor": factor,
            }
            text = (
                f"Load {statement.bound} (line {statement.line.number}) for {factor} iterations of "
                f"{loop.node.variable} at once, as one row: transfers {factor} times as long."
            )
            made = partial(_merged, kernel, statement, loop, factor, facts)
            yield Option(Site(self.name, parameters, text), made)


class PackStores:
    """Collect the results of several iterations in one row and store it once.

    before: for j in 4: y = f(j); nl.store(out[p, j * 512:(j + 1) * 512], value=y)
    after:  y_row = nl.ndarray((nl.par_dim(128), 2048), ...)
            for j in 4: y_row[0:128, j * 512:j * 512 + 512] = f(j)
            nl.store(out[p, 0:2048], value=y_row)

    Fewer and longer transfers. Legal for an unmasked store of a tile that only the store reads,
    whose iterations lie side by side in HBM, when the loop does not otherwise touch that HBM tensor.
    """

    name = "pack_stores"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every store that ends an iteration of the loop that moves it along its row."""
        reading = read(kernel)
        for statement, loop, factor in _moving(reading, "nl.store"):
            if statement.loops[-1] is not loop or _producer(reading, statement) is None:
                continue
            parameters: dict[str, Parameter] = {
                "at": path_text(statement.path),
                "loop": loop.node.variable,
                "factor": factor,
            }
            text = (
                f"Collect the results of {factor} iterations of {loop.node.variable} in one row and "
                f"store it once (line {statement.line.number}): transfers {factor} times as long."
            )
            made = partial(_collected, kernel, reading, statement, loop, factor)
            yield Option(Site(self.name, parameters, text), made)


def _merged(
    kernel: ParsedKernel, load: ReadStatement, loop: LoopFacts, factor: int, facts: Facts
) -> ParsedKernel:
    """One load for `factor` iterations. Raises IllegalMove when the row does not fit."""
    variable, name = loop.node.variable, str(load.bound)
    if factor < _trips(loop):
        kernel, _, variable = split(kernel, variable, factor)
    reading = read(kernel)
    loop = reading.loop(variable)
    loads = [s for s in reading.inside(loop) if s.bound == name and s.kind == "compute"]
    if len(loads) != 1:
        raise IllegalMove(f"{name} is not loaded in loop {variable}")
    kernel, row = _row_load(kernel, reading, loads[0], loop, factor)
    kernel = hoist(kernel, variable, row)
    if resident_bytes(read(kernel)) > facts.sbuf_bytes:
        raise IllegalMove(f"{row} does not fit into SBUF")
    return kernel


def _collected(
    kernel: ParsedKernel, reading: Reading, statement: ReadStatement, loop: LoopFacts, factor: int
) -> ParsedKernel:
    """One store for `factor` iterations."""
    producer = _producer(reading, statement)
    if producer is None or producer.result is None:
        raise IllegalMove(f"line {statement.line.number} does not store a tile of its own")
    name, variable = producer.result.name, loop.node.variable
    if factor < _trips(loop):
        kernel, _, variable = split(kernel, variable, factor)
        reading = read(kernel)
    store = next(s for s in reading.statements if s.kind == "store" and _stores(reading, s, name))
    return tidy(_packed(kernel, reading, store, reading.loop(variable), factor))


def _moving(reading: Reading, instruction: str) -> list[tuple[ReadStatement, LoopFacts, int]]:
    """Transfers that a loop moves along their row, with every number of iterations to join."""
    found = []
    for statement in reading.statements:
        if statement.call is None or statement.call.name != instruction or statement.opaque:
            continue
        for loop in statement.loops:
            trips = loop.trips.constant if loop.trips is not None else None
            width = _side_by_side(statement, loop)
            if trips is None or width is None or not loop.plain:
                continue
            for factor in _worthwhile(trips, width * 4):
                found.append((statement, loop, factor))
    return found


def _worthwhile(trips: int, row_bytes: int) -> list[int]:
    """The divisor that just makes transfers efficient, and the one for the longest row allowed."""
    factors = [
        f for f in range(2, trips + 1) if trips % f == 0 and row_bytes * f <= LONGEST_ROW_BYTES
    ]
    efficient = [f for f in factors if row_bytes * f >= EFFICIENT_ROW_BYTES]
    return sorted({efficient[0], efficient[-1]} if efficient else set(factors[-1:]))


def _side_by_side(statement: ReadStatement, loop: LoopFacts) -> int | None:
    """The tile's width, when iterations of the loop lie next to each other in HBM."""
    access = _transfer(statement)
    call = statement.call
    if access is None or access.dims is None or access.view or not access.dims or call is None:
        return None
    if call.values.get("mask", KnownConstant(None)) != KnownConstant(None):
        return None
    last = access.dims[-1]
    if any(loop.symbol in dim.loops for dim in access.dims[:-1]) or len(last.ramps) != 1:
        return None
    size = last.ramps[0].size
    if size is None or last.ramps[0].axis != -1 or last.factor_of(last.ramps[0]) != ONE:
        return None
    if last.factor_of(loop.symbol) != size or len(access.shape or ()) != 2:
        return None
    return size.constant


def _transfer(statement: ReadStatement) -> TileUse | None:
    call = statement.call
    if call is None or statement.value is not call.node:
        return None
    access = call.access("src" if call.name == "nl.load" else "dst")
    return access if access is not None and access.tensor.buffer == "hbm" else None


def _row_load(
    kernel: ParsedKernel, reading: Reading, load: ReadStatement, loop: LoopFacts, trips: int
) -> tuple[ParsedKernel, str]:
    """With the load made as wide as all iterations, and its users reading their part."""
    access, tile = _transfer(load), load.result
    if _side_by_side(load, loop) is None or access is None or tile is None or access.dims is None:
        raise IllegalMove(f"iterations of {loop.node.variable} do not lie side by side")
    if any(a in s.writes for s, a in uses_of(reading, access.tensor)):
        raise IllegalMove(f"{access.tensor.name} is written in the kernel")
    if any(a in s.writes for s, a in uses_of(reading, tile)):
        raise IllegalMove(f"{tile.name} is written after it is loaded")
    row = fresh(f"{tile.name.removesuffix('_tile')}_row", taken(kernel))
    width = access.dims[-1].ramps[0].size
    assert width is not None
    wide = [*access.dims[:-1], _widened(access.dims[-1], loop, trips)]
    changes: dict[tuple[int, ...], SourceStatement] = {}
    target = _target(load)
    edits: dict[cst.CSTNode, cst.CSTNode] = {
        access.node: indexed(reading, access, wide),
        target: cst.Name(row),
    }
    changes[load.path] = with_expression(load.line, edits)
    for statement in reading.readers(tile):
        nodes: dict[cst.CSTNode, cst.CSTNode] = {
            a.node: _part(reading, a, row, width, loop) for a in statement.reads if a.tensor is tile
        }
        changes[statement.path] = with_expression(statement.line, nodes)
    for path, changed in changes.items():
        kernel = kernel.replaced(path, [changed])
    return kernel, row


def _widened(dim: Polynomial, loop: LoopFacts, trips: int) -> Polynomial:
    only = dim.ramps[0]
    assert only.size is not None
    return dim.without(loop.symbol, only) + ramp(only.size * Polynomial.number(trips), -1)


def _part(
    reading: Reading, access: TileUse, row: str, width: Polynomial, loop: LoopFacts
) -> cst.BaseExpression:
    """This iteration's part of a row, in the style of the access to the tile."""
    if access.dims is None or access.view or len(access.dims) != 2:
        raise IllegalMove(f"{access.tensor.name} is not used as a plain tile")
    moved = [access.dims[0], access.dims[1] + width * Polynomial.symbol(loop.symbol)]
    names = {facts.symbol: facts.node.variable for facts in reading.loops}
    parts = []
    for dim in moved:
        if access.style != "advanced" and dim.ramps:
            start = index_text(reading.kernel, dim.without(*dim.ramps), names, 2)
            stop = dim.without(*dim.ramps) + (dim.ramps[0].size or ONE)
            parts.append(f"{start}:{index_text(reading.kernel, stop, names, 2)}")
        else:
            parts.append(index_text(reading.kernel, dim, names, len(access.shape or (0, 0))))
    return cst.parse_expression(f"{row}[{', '.join(parts)}]")


def _producer(reading: Reading, store: ReadStatement) -> ReadStatement | None:
    """What makes the stored tile, when it does so for the store alone and in the same loops."""
    value = store.call.access("value") if store.call is not None else None
    if value is None or value.view or not value.whole:
        return None
    tile = value.tensor
    makers = reading.writers(tile)
    if tile.declared or tile.parameter or len(makers) != 1 or reading.readers(tile) != [store]:
        return None
    maker = makers[0]
    same = maker.loops == store.loops and maker.result is tile and not maker.opaque
    return maker if same and tile.shape is not None and tile.buffer == "sbuf" else None


def _stores(reading: Reading, statement: ReadStatement, name: str) -> bool:
    value = statement.call.access("value") if statement.call is not None else None
    return value is not None and value.tensor.name == name


def _packed(
    kernel: ParsedKernel, reading: Reading, store: ReadStatement, loop: LoopFacts, trips: int
) -> ParsedKernel:
    access, producer = _transfer(store), _producer(reading, store)
    if access is None or producer is None or _side_by_side(store, loop) is None:
        raise IllegalMove(f"iterations of {loop.node.variable} do not lie side by side")
    if store.loops[-1] is not loop:
        raise IllegalMove(f"line {store.line.number} is not in loop {loop.node.variable}")
    if len(uses_of(reading, access.tensor)) > 2 or any(
        s in reading.inside(loop) and s is not store for s, _ in uses_of(reading, access.tensor)
    ):
        raise IllegalMove(f"{access.tensor.name} is used elsewhere too")
    tile = producer.result
    assert tile is not None and tile.shape is not None and access.dims is not None
    row = fresh(f"{tile.name.removesuffix('_tile')}_row", taken(kernel))
    declaration = _declaration(kernel, tile, row, trips)
    size = tile.shape[1]
    whole = TileUse(tile, (ramp(tile.shape[0], -2), ramp(size, -1)), tile.shape, cst.Name(row))
    part = _part(reading, whole, row, size, loop)
    wide = [*access.dims[:-1], _widened(access.dims[-1], loop, trips)]
    changed = with_expression(producer.line, {_target(producer): part})
    destination = code_of(indexed(reading, access, wide))
    last = line(f"{kernel.spelled('nl.store')}({destination}, value={row})", store.line.number)
    body = kernel.replaced(store.path, []).replaced(producer.path, [changed])
    node = body.at(loop.path)
    assert isinstance(node, SourceLoop)
    return body.replaced(loop.path, [line(declaration), node, last])


def _declaration(kernel: ParsedKernel, tile: KernelTensor, row: str, trips: int) -> str:
    assert tile.shape is not None
    partitions, width = tile.shape[0].constant, tile.shape[1].constant
    if partitions is None or width is None or tile.dtype is None:
        raise IllegalMove(f"the shape or dtype of {tile.name} is not known")
    spelled = kernel.spelled
    return (
        f"{row} = {spelled('nl.ndarray')}(({spelled('nl.par_dim')}({partitions}), "
        f"{width * trips}), dtype={spelled('nl.' + tile.dtype)}, buffer={spelled('nl.sbuf')})"
    )


def _target(statement: ReadStatement) -> cst.CSTNode:
    part = statement.line.node.body[0]  # type: ignore[index]
    if not isinstance(part, cst.Assign):
        raise IllegalMove(f"line {statement.line.number} binds no name")
    return part.targets[0].target


def _trips(loop: LoopFacts) -> int:
    constant = loop.trips.constant if loop.trips is not None else None
    if constant is None:
        raise IllegalMove(f"how often loop {loop.node.variable} runs is not known")
    return constant
