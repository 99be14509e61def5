"""Loop surgery: split, interchange, distribute. Each step keeps what the kernel computes or raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from accelopt.kernels.nki.moves.reading.legality import dependence, private_axis, uses_of
from accelopt.kernels.nki.moves.reading.reader import LoopFacts, Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.source import (
    IllegalMove,
    ParsedKernel,
    SourceLoop,
    SourceNode,
    SourceStatement,
    code_of,
    line,
)
from accelopt.kernels.nki.moves.reading.values import KernelTensor
from accelopt.kernels.nki.moves.surgery.names import NUMBER, fresh, taken
from accelopt.kernels.nki.moves.surgery.rewriting import reindexed, substitute, substituted, tidy


def split(kernel: ParsedKernel, variable: str, factor: int) -> tuple[ParsedKernel, str, str]:
    """Run a loop as blocks of `factor` iterations; returns the kernel and the two variables.

    before: for m in nl.affine_range(32): f(m)
    after:  for m_block in nl.affine_range(8):
                for m_in in nl.affine_range(4): f(m_block * 4 + m_in)

    Legal when the range is a plain number of iterations that `factor` divides.
    """
    reading = read(kernel)
    facts = reading.loop(variable)
    trips = facts.trips.constant if facts.trips is not None else None
    if trips is None or not facts.plain:
        raise IllegalMove(f"how often loop {variable} runs is not known")
    if factor < 2 or factor >= trips or trips % factor:
        raise IllegalMove(f"{factor} does not divide the {trips} iterations of loop {variable}")
    used = taken(kernel)
    block = fresh(f"{variable}_block", used)
    inner = fresh(f"{variable}_in", {*used, block})
    node = facts.node
    assert isinstance(node.node.iter, cst.Call)
    call = node.node.iter
    text = code_of(call.args[0].value)
    blocks = (
        str(trips // factor) if text.isdigit() else f"{_factor(call.args[0].value)} // {factor}"
    )
    value = f"{block} * {factor} + {inner}"
    body = tuple(substitute(child, {variable: value}) for child in node.body)
    inner_loop = SourceLoop(_header(node, inner, str(factor)), body, node.number)
    outer_loop = SourceLoop(_header(node, block, blocks), (inner_loop,), node.number)
    return kernel.replaced(facts.path, [outer_loop]), block, inner


def interchange(kernel: ParsedKernel, variable: str) -> ParsedKernel:
    """Swap a loop with the only statement of its body, which is a loop.

    before: for i in A: for j in B: f(i, j)      after: for j in B: for i in A: f(i, j)

    Legal when both loops' iterations are independent and B does not depend on i.
    """
    reading = read(kernel)
    outer = reading.loop(variable)
    if len(outer.node.body) != 1 or not isinstance(outer.node.body[0], SourceLoop):
        raise IllegalMove(f"loop {variable} holds more than one loop")
    inner = reading.loop(outer.node.body[0].variable)
    for facts in (outer, inner):
        reason = dependence(reading, facts)
        if reason:
            raise IllegalMove(reason)
    if inner.trips is None or outer.symbol in inner.trips.loops:
        raise IllegalMove(f"the range of {inner.node.variable} may depend on {variable}")
    swapped = SourceLoop(
        inner.node.node,
        (SourceLoop(outer.node.node, inner.node.body, outer.node.number),),
        inner.node.number,
    )
    return kernel.replaced(outer.path, [swapped])


def distribute(kernel: ParsedKernel, variable: str, position: int) -> tuple[ParsedKernel, str, str]:
    """Cut a loop's body in two loops; returns the kernel and the two variables.

    before: for i in A: t = f(i); g(t, i)
    after:  t_tiles = nl.ndarray((A, nl.par_dim(P), F), ...)
            for i in A: t_tiles[i, 0:P, 0:F] = f(i)
            for i_1 in A: g(t_tiles[i_1, 0:P, 0:F], i_1)

    Legal when iterations are independent and what crosses the cut is either an SBUF tile of known
    shape or a part of a tensor that belongs to one iteration alone.
    """
    reading = read(kernel)
    facts = reading.loop(variable)
    reason = dependence(reading, facts)
    if reason:
        raise IllegalMove(reason)
    if not 0 < position < len(facts.node.body):
        raise IllegalMove("nothing to cut")
    inside = reading.inside(facts)
    depth = len(facts.path)
    first = [s for s in inside if s.path[depth] < position]
    second = [s for s in inside if s.path[depth] >= position]
    crossing = _crossing(reading, facts, first, second)
    if facts.trips is None or not facts.plain:
        raise IllegalMove(f"how often loop {variable} runs is not known")
    trips = _range_text(facts.node)
    later = fresh(variable, taken(kernel))
    declarations: list[SourceNode] = []
    texts = inlining(reading, facts)
    head = list(facts.node.body[:position])
    tail = [substitute(n, texts) for n in facts.node.body[position:]]
    for tensor in crossing:
        growth = grow(kernel, tensor, [trips])
        declarations.append(line(growth.declaration))
        head = [growth.applied(n, [variable]) for n in head if not growth.declares(n)]
        tail = [growth.applied(n, [variable]) for n in tail]
    second_loop = SourceLoop(facts.node.node, tuple(tail), facts.node.number)
    second_loop = SourceLoop(
        second_loop.node.with_changes(target=cst.Name(later)),
        tuple(substitute(n, {variable: later}) for n in second_loop.body),
        facts.node.number,
    )
    first_loop = SourceLoop(facts.node.node, tuple(head), facts.node.number)
    cut = kernel.replaced(facts.path, [*declarations, first_loop, second_loop])
    return tidy(cut), variable, later


@dataclass(frozen=True)
class Growth:
    """A tile that gets leading block dimensions: its new declaration and how uses change."""

    tensor: str
    buffer: str
    sizes: tuple[str, ...]
    block_rank: int
    declaration: str

    def declares(self, node: SourceNode) -> bool:
        """True for the old declaration, which the new one replaces."""
        if not isinstance(node, SourceStatement) or not isinstance(
            node.node, cst.SimpleStatementLine
        ):
            return False
        part = node.node.body[0]
        return (
            isinstance(part, cst.Assign)
            and code_of(part.targets[0].target) == self.tensor
            and isinstance(part.value, cst.Call)
            and code_of(part.value.func).rpartition(".")[2] in {"ndarray", "zeros", "ones", "full"}
        )

    def applied(self, node: SourceNode, blocks: list[str]) -> SourceNode:
        """A node with every use of the tile taking block `blocks`."""

        def change(indices: Sequence[str]) -> Sequence[str]:
            whole = [f"0:{size}" for size in self.sizes]
            return [*blocks, *(w if i == ":" else i for i, w in zip(indices, whole, strict=True))]

        return reindexed(node, self.tensor, self.buffer, change, len(self.sizes))


PLURALS = {"tile": "tiles", "tiles": "blocks"}  # what a tile is called that has become several


def grow(kernel: ParsedKernel, tensor: KernelTensor, trips: list[str]) -> Growth:
    """Plan a tile's block dimensions, one for each of `trips`. Raises IllegalMove when the tile is
    not an SBUF tile of known shape and dtype."""
    if tensor.shape is None or len(tensor.shape) < 2:
        raise IllegalMove(f"the shape of {tensor.name} is not known")
    if tensor.buffer != "sbuf" or (tensor.declared and tensor.fill is not None):
        raise IllegalMove(f"{tensor.name} is not a plain SBUF tile")
    if any(size.loops for size in tensor.shape):
        raise IllegalMove(f"the shape of {tensor.name} changes from iteration to iteration")
    dtype = (
        f"{kernel.spelled('nl.' + tensor.dtype)}" if tensor.dtype else _loaded_dtype(kernel, tensor)
    )
    sizes = tuple(size.render(lambda symbol: symbol.name) for size in tensor.shape)
    stem = NUMBER.sub("", tensor.name)
    plural = PLURALS.get(stem.rpartition("_")[2], "tiles")
    plural = f"{stem.removesuffix('_tile').removesuffix('_tiles')}_{plural}"
    name = fresh(plural, taken(kernel))
    partition = f"{kernel.spelled('nl.par_dim')}({sizes[tensor.block_rank]})"
    dims = [*trips, *sizes[: tensor.block_rank], partition, *sizes[tensor.block_rank + 1 :]]
    declaration = (
        f"{name} = {kernel.spelled('nl.ndarray')}(({', '.join(dims)}), dtype={dtype}, "
        f"buffer={kernel.spelled('nl.sbuf')})"
    )
    return Growth(tensor.name, name, sizes, tensor.block_rank, declaration)


def _loaded_dtype(kernel: ParsedKernel, tensor: KernelTensor) -> str:
    """`x.dtype` for a tile loaded from a parameter x whose dtype is not known here."""
    reading = read(kernel)
    for statement in reading.statements:
        if statement.bound == tensor.name and statement.call and statement.call.name == "nl.load":
            source = statement.call.access("src")
            if source is not None and source.tensor.parameter:
                return f"{source.tensor.name}.dtype"
    raise IllegalMove(f"the dtype of {tensor.name} is not known")


def _crossing(
    reading: Reading, facts: LoopFacts, first: list[ReadStatement], second: list[ReadStatement]
) -> list[KernelTensor]:
    """Tiles made in the first half and used in the second; raises where they cannot be kept."""
    crossing: list[KernelTensor] = []
    made = {a.tensor.storage for s in first for a in s.writes}
    made |= {s.result for s in first if s.result is not None}
    written_later = {a.tensor.storage for s in second for a in s.writes}
    for statement in second:
        for access in (*statement.reads, *statement.writes):
            tensor = access.tensor.storage
            if tensor not in made or tensor in crossing:
                continue
            if tensor.path[: len(facts.path)] == facts.path:
                crossing.append(tensor)
    for statement in first:
        for tensor in statement.touched & (written_later | made):
            if tensor.path[: len(facts.path)] == facts.path:
                continue
            if not any(tensor in s.touched for s in second):
                continue
            uses = [a for s, a in uses_of(reading, tensor) if s in (*first, *second)]
            if private_axis(reading, uses, facts.symbol) is None:
                raise IllegalMove(f"both halves use {tensor.name}")
    return crossing


def inlining(reading: Reading, facts: LoopFacts) -> dict[str, str]:
    """Expressions for the index names and views bound inside a loop, each in terms of names from
    outside the loop and of loop variables."""
    texts: dict[str, str] = {}
    for statement in reading.inside(facts):
        if statement.bound is None or statement.kind not in {"index", "view"}:
            continue
        if statement.bound in reading.shared or statement.value is None:
            continue
        texts[statement.bound] = substituted(statement.value, texts)
    return texts


def _range_text(node: SourceLoop) -> str:
    assert isinstance(node.node.iter, cst.Call)
    return code_of(node.node.iter.args[0].value)


def _factor(node: cst.BaseExpression) -> str:
    """Text that can stand before `// n`."""
    text = code_of(node)
    return (
        text
        if isinstance(node, (cst.Name, cst.Attribute, cst.Call, cst.Subscript))
        else f"({text})"
    )


def _header(loop: SourceLoop, variable: str, trips: str) -> cst.For:
    """The loop's header over another variable and number of iterations, of the same kind."""
    assert isinstance(loop.node.iter, cst.Call)
    argument = loop.node.iter.args[0].with_changes(value=cst.parse_expression(trips))
    call = loop.node.iter.with_changes(args=[argument, *loop.node.iter.args[1:]])
    return loop.node.with_changes(target=cst.Name(variable), iter=call, leading_lines=[])
