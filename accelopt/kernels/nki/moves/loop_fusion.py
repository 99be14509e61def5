"""Joining loops that follow each other, so that what one makes the next finds on chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from accelopt.kernels.nki.moves.move import Facts, Option, Site
from accelopt.kernels.nki.moves.reading.legality import dependence, private_axis, uses_of
from accelopt.kernels.nki.moves.reading.polynomial import Polynomial
from accelopt.kernels.nki.moves.reading.reader import LoopFacts, Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.source import (
    ParsedKernel,
    SourceLoop,
    SourceNode,
    SourceStatement,
)
from accelopt.kernels.nki.moves.reading.values import KernelTensor, TileUse
from accelopt.kernels.nki.moves.surgery.rewriting import substitute


class FuseLoops:
    """Run two loops over the same range as one.

    before: for i in A: t[i] = f(i)
            for k in A: g(t[k], k)
    after:  for i in A: t[i] = f(i); g(t[i], i)

    Tiles are used where they are made instead of waiting in SBUF or spilling. Legal when both loops'
    iterations are independent, their ranges are equal, and whatever one writes and both use belongs
    to one iteration alone. Declarations between the loops move before them.
    """

    name = "fuse_loops"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every pair of loops with nothing but declarations between them."""
        reading = read(kernel)
        for first in reading.loops:
            second = _next_loop(reading, first)
            if second is None or _reason(reading, first, second) is not None:
                continue
            text = (
                f"Run the loops over {first.node.variable} (line {first.node.number}) and "
                f"{second.node.variable} (line {second.node.number}) as one, so that what the first "
                "makes is used at once."
            )
            site = Site(self.name, {"loop": first.node.variable}, text)
            yield Option(site, partial(_joined, kernel, first, second))


def _joined(kernel: ParsedKernel, first: LoopFacts, second: LoopFacts) -> ParsedKernel:
    names = {second.node.variable: first.node.variable}
    body = (*first.node.body, *(substitute(node, names) for node in second.node.body))
    fused = SourceLoop(first.node.node, body, first.node.number)
    between = _between(kernel, first, second)
    kernel = kernel.replaced(second.path, [])
    for position in range(second.path[-1] - 1, first.path[-1], -1):
        kernel = kernel.replaced((*second.path[:-1], position), [])
    return kernel.replaced(first.path, [*between, fused])


def _siblings(kernel: ParsedKernel, facts: LoopFacts) -> tuple[SourceNode, ...]:
    if len(facts.path) == 1:
        return kernel.body
    parent = kernel.at(facts.path[:-1])
    assert isinstance(parent, SourceLoop)
    return parent.body


def _between(kernel: ParsedKernel, first: LoopFacts, second: LoopFacts) -> list[SourceNode]:
    return list(_siblings(kernel, first)[first.path[-1] + 1 : second.path[-1]])


def _next_loop(reading: Reading, first: LoopFacts) -> LoopFacts | None:
    """The loop behind a loop, past declarations and index names only."""
    siblings = _siblings(reading.kernel, first)
    for position in range(first.path[-1] + 1, len(siblings)):
        path = (*first.path[:-1], position)
        if isinstance(siblings[position], SourceStatement):
            statement = reading.statement(path)
            if statement.opaque or statement.kind not in {"declare", "index"}:
                return None
            continue
        return next(loop for loop in reading.loops if loop.path == path)
    return None


def _reason(reading: Reading, first: LoopFacts, second: LoopFacts) -> str | None:
    """Why two loops may not run as one."""
    if first.trips is None or first.trips != second.trips or not first.plain or not second.plain:
        return "the loops do not run equally often"
    for facts in (first, second):
        reason = dependence(reading, facts)
        if reason is not None:
            return reason
    before, after = reading.inside(first), reading.inside(second)
    shared = _written(before) & _touched(after) | _touched(before) & _written(after)
    for tensor in shared:
        uses = [a for s, a in uses_of(reading, tensor) if s in before]
        uses += [_moved(a, second, first) for s, a in uses_of(reading, tensor) if s in after]
        if private_axis(reading, uses, first.symbol) is None:
            return f"iterations of one loop need {tensor.name} from other iterations of the other"
    return None


def _written(statements: list[ReadStatement]) -> set[KernelTensor]:
    return {a.tensor.storage for s in statements for a in s.writes}


def _touched(statements: list[ReadStatement]) -> set[KernelTensor]:
    return {tensor for s in statements for tensor in s.touched}


def _moved(access: TileUse, old: LoopFacts, new: LoopFacts) -> TileUse:
    """The access as it will be in the other loop."""
    if access.dims is None:
        return access
    values = {old.symbol: Polynomial.symbol(new.symbol)}
    return replace(access, dims=tuple(dim.substitute(values) for dim in access.dims))
