"""Moving values that do not change out of a loop, with buffers for all the tiles that then live on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from accelopt.kernels.nki.moves.reading.legality import uses_of
from accelopt.kernels.nki.moves.reading.polynomial import Polynomial
from accelopt.kernels.nki.moves.reading.reader import LoopFacts, Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.source import (
    IllegalMove,
    ParsedKernel,
    SourceLoop,
    SourceNode,
    SourceStatement,
    StatementPath,
    code_of,
    line,
)
from accelopt.kernels.nki.moves.reading.values import KernelTensor
from accelopt.kernels.nki.moves.surgery.loops import Growth, grow, inlining
from accelopt.kernels.nki.moves.surgery.names import fresh, taken
from accelopt.kernels.nki.moves.surgery.rewriting import reindexed, substitute, tidy, with_shape


@dataclass
class HoistPlan:
    """What leaves a loop: the statements, the loops between that they need, what outlives them:
    `live` tiles made by the statements, and `buffers` from outside the loop that they fill."""

    loop: LoopFacts
    statements: list[ReadStatement]
    kept: list[LoopFacts]
    live: list[KernelTensor] = field(default_factory=list)
    buffers: list[KernelTensor] = field(default_factory=list)
    contracted: list[tuple[KernelTensor, int]] = field(default_factory=list)

    def blocks(self, tensor: KernelTensor) -> list[LoopFacts]:
        """The kept loops around a tensor's binding, outermost first."""
        return [k for k in self.kept if tensor.path[: len(k.path)] == k.path]

    @property
    def kept_values(self) -> list[KernelTensor]:
        """Everything that must now stay in SBUF across the loop."""
        return [*self.live, *self.buffers]

    def resident_bytes(self) -> int | None:
        """SBUF bytes per partition of what is kept across the loop; None when not known."""
        total = 0
        for tensor in self.live:
            size = tensor.bytes_per_partition()
            for loop in self.blocks(tensor):
                trips = loop.trips.constant if loop.trips is not None else None
                if size is None or trips is None:
                    return None
                size *= trips
            if size is None:
                return None
            total += size
        sizes = [self._filled_bytes(tensor) for tensor in self.buffers]
        return None if None in sizes else total + sum(size for size in sizes if size is not None)

    def _filled_bytes(self, tensor: KernelTensor) -> int | None:
        """What one run of the statements fills of a buffer."""
        total = tensor.bytes_per_partition()
        writes = [a for s in self.statements for a in s.writes if a.tensor is tensor]
        if total is None or tensor.shape is None:
            return None
        for axis in range(tensor.block_rank):
            extent = tensor.shape[axis].constant
            moving = {k.symbol for k in self.kept}
            moved = any(a.dims is None or a.dims[axis].loops & moving for a in writes)
            if extent is None:
                return None
            total //= 1 if moved else extent
        return total


def plan_hoist(reading: Reading, variable: str, name: str) -> HoistPlan:
    """What it takes to compute `name` before the loop over `variable`. Raises IllegalMove.

    Legal when every statement in the making of the value is understood, writes on-chip memory only,
    depends on the loop's variable at most through a block dimension that is private to an iteration,
    and reads nothing that the rest of the loop writes.
    """
    loop = reading.loop(variable)
    inside = reading.inside(loop)
    group = _closure(reading, loop, inside, name)
    contracted = _contractible(reading, loop, group)
    dropped = {(tensor, axis) for tensor, axis in contracted}
    for statement in group:
        _check(reading, loop, inside, group, statement, dropped)
    kept = [
        facts
        for facts in reading.loops
        if facts.path[: len(loop.path)] == loop.path
        and facts is not loop
        and any(
            s.path[: len(facts.path)] == facts.path
            and (facts.symbol in s.mentions or s.accumulates or _reduces(s))
            for s in group
        )
    ]
    for facts in kept:
        if facts.trips is None or not facts.plain or loop.symbol in facts.trips.loops:
            raise IllegalMove(f"the range of loop {facts.node.variable} is not known")
    plan = HoistPlan(loop, group, kept, contracted=contracted)
    outside = [s for s in reading.statements if s not in group]
    for statement in group:
        tensor = statement.result
        if tensor is not None and any(tensor in s.touched for s in outside):
            plan.live.append(tensor)
    for tensor in {a.tensor: None for s in group for a in s.writes}:
        inside_loop = tensor.path[: len(loop.path)] == loop.path
        if tensor.declared and not inside_loop and any(tensor in s.touched for s in outside):
            if tensor.buffer == "psum":
                raise IllegalMove(f"{tensor.name} would have to wait in PSUM")
            plan.buffers.append(tensor)
    return plan


def hoist(kernel: ParsedKernel, variable: str, name: str) -> ParsedKernel:
    """Compute `name` before the loop over `variable` instead of in every iteration.

    before: for m in M: for k in K: w = nl.load(W[k]); f(m, w)
    after:  w_tiles = nl.ndarray((K, nl.par_dim(P), F), ...)
            for k_1 in K: w_tiles[k_1, 0:P, 0:F] = nl.load(W[k_1])
            for m in M: for k in K: f(m, w_tiles[k, 0:P, 0:F])
    """
    reading = read(kernel)
    plan = plan_hoist(reading, variable, name)
    if plan.contracted:
        tensor, axis = plan.contracted[0]
        return hoist(contract(kernel, tensor.name, axis), variable, name)
    loop = plan.loop
    growths = [
        (tensor, grow(kernel, tensor, [_trips(k) for k in plan.blocks(tensor)]))
        for tensor in plan.live
        if plan.blocks(tensor)
    ]
    texts = inlining(reading, loop)
    paths = {s.path for s in plan.statements}
    remaining = _without(loop.node.body, loop.path, paths)
    used = taken(kernel)
    renamed: dict[str, str] = {}
    for facts in plan.kept:
        renamed[facts.node.variable] = fresh(facts.node.variable, used)
        used.add(renamed[facts.node.variable])
    slice_ = _slice(loop.node.body, loop.path, paths, {k.path for k in plan.kept})
    before: list[SourceNode] = []
    for tensor, growth in growths:
        blocks = [k.node.variable for k in plan.blocks(tensor)]
        before.append(line(growth.declaration, loop.node.number))
        slice_ = [_applied(n, growth, blocks) for n in slice_ if not growth.declares(n)]
        remaining = [growth.applied(n, blocks) for n in remaining]
    slice_ = [_renamed(substitute(n, texts), renamed) for n in slice_]
    rest = [SourceLoop(loop.node.node, tuple(remaining), loop.node.number)] if remaining else []
    return tidy(kernel.replaced(loop.path, [*before, *slice_, *rest]))


def contract(kernel: ParsedKernel, name: str, axis: int) -> ParsedKernel:
    """Drop a block dimension that each iteration uses only its own slice of.

    before: t = nl.ndarray((32, nl.par_dim(128), F)); for i in 32: t[i, p, f] = ...; g(t[i, p, f])
    after:  t = nl.ndarray((nl.par_dim(128), F));     for i in 32: t[p, f] = ...;    g(t[p, f])

    Legal when every use in the kernel takes the same index along that dimension.
    """
    reading = read(kernel)
    tensor = reading.tensor(name)
    uses = uses_of(reading, tensor)
    dims = {a.dims[axis] if a.dims else None for _, a in uses}
    if not tensor.declared or axis >= tensor.block_rank or len(dims) != 1 or None in dims:
        raise IllegalMove(f"dimension {axis} of {name} is used across iterations")
    if any(a.view for _, a in uses) or tensor.shape is None:
        raise IllegalMove(f"{name} is used through a view")
    rank = len(tensor.shape)

    def change(indices: Sequence[str]) -> Sequence[str]:
        if ":" in indices:
            raise IllegalMove(f"{name} is used as a whole")
        return [*indices[:axis], *indices[axis + 1 :]]

    declaration = reading.statement(tensor.path)
    assert declaration.call is not None
    shape = declaration.call.arguments["shape"]
    if not isinstance(shape, (cst.Tuple, cst.List)):
        raise IllegalMove(f"the shape of {name} is not written out")
    sizes = [code_of(element.value) for element in shape.elements]
    del sizes[axis]
    changed = with_shape(declaration, f"({', '.join(sizes)})")

    def visit(nodes: tuple[SourceNode, ...], prefix: StatementPath) -> tuple[SourceNode, ...]:
        result: list[SourceNode] = []
        for position, node in enumerate(nodes):
            path = (*prefix, position)
            if path == tensor.path:
                result.append(changed)
            elif isinstance(node, SourceLoop):
                result.append(SourceLoop(node.node, visit(node.body, path), node.number))
            else:
                result.append(reindexed(node, name, name, change, rank))
        return tuple(result)

    return kernel.with_body(visit(kernel.body, ()))


def _closure(
    reading: Reading, loop: LoopFacts, inside: list[ReadStatement], name: str
) -> list[ReadStatement]:
    """Statements of the loop that make `name`, and whatever of the loop they need."""
    makers = [s for s in inside if _makes(s, name)]
    if not makers:
        raise IllegalMove(f"{name} is not made in loop {loop.node.variable}")
    group = list(makers)
    pending = list(makers)
    while pending:
        statement = pending.pop()
        needed = {a.tensor for a in (*statement.reads, *statement.writes)}
        for other in inside:
            if other in group or other.kind in {"index", "view", "store"}:
                continue
            makes = other.result in needed or any(a.tensor in needed for a in other.writes)
            if makes:
                group.append(other)
                pending.append(other)
    return sorted(group, key=lambda s: s.path)


def _makes(statement: ReadStatement, name: str) -> bool:
    if statement.bound == name and statement.kind in {"compute", "declare"}:
        return True
    return any(a.tensor.name == name and not a.tensor.parameter for a in statement.writes)


def _contractible(
    reading: Reading, loop: LoopFacts, group: list[ReadStatement]
) -> list[tuple[KernelTensor, int]]:
    """Block dimensions of outer buffers that only tell the loop's iterations apart."""
    found: list[tuple[KernelTensor, int]] = []
    own = Polynomial.symbol(loop.symbol)
    for tensor in {a.tensor: None for s in group for a in s.writes}:
        if tensor.path[: len(loop.path)] == loop.path or tensor.shape is None:
            continue
        uses = uses_of(reading, tensor)
        for axis in range(tensor.block_rank):
            if all(a.dims is not None and a.dims[axis] == own and not a.view for _, a in uses):
                found.append((tensor, axis))
    return found


def _check(
    reading: Reading,
    loop: LoopFacts,
    inside: list[ReadStatement],
    group: list[ReadStatement],
    statement: ReadStatement,
    dropped: set[tuple[KernelTensor, int]],
) -> None:
    number = statement.line.number
    if statement.opaque or statement.kind not in {"compute", "declare"}:
        raise IllegalMove(f"line {number} cannot be moved")
    if loop.symbol in statement.mentions and not _only_dropped(loop, statement, dropped):
        raise IllegalMove(f"line {number} depends on {loop.node.variable}")
    written = {a.tensor.storage for a in statement.writes}
    if any(tensor.buffer == "hbm" for tensor in written):
        raise IllegalMove(f"line {number} writes HBM")
    others = [s for s in inside if s not in group]
    for tensor in statement.touched:
        if any(a.tensor.storage is tensor for s in others for a in s.writes):
            raise IllegalMove(f"the rest of loop {loop.node.variable} writes {tensor.name}")
    for tensor in written:
        _check_written(reading, loop, inside, group, tensor)
    if statement.bound and len([s for s in reading.statements if s.bound == statement.bound]) > 1:
        raise IllegalMove(f"{statement.bound} is bound more than once")


def _check_written(
    reading: Reading,
    loop: LoopFacts,
    inside: list[ReadStatement],
    group: list[ReadStatement],
    tensor: KernelTensor,
) -> None:
    """A buffer from outside the loop: made anew by the group, all of it before anything reads it, so
    that making it once leaves what making it again would."""
    if tensor.path[: len(loop.path)] == loop.path:
        return
    writers = [s for s in group if any(a.tensor.storage is tensor for a in s.writes)]
    uninitialised = tensor.fill is None or tensor.buffer == "psum"
    if any(s.accumulates for s in writers) and not uninitialised:
        raise IllegalMove(f"{tensor.name} is summed up over loop {loop.node.variable}")
    if any(s.accumulates for s in writers) and not any(
        (tensor, axis) for axis in range(tensor.block_rank) if _private(reading, loop, tensor, axis)
    ):
        raise IllegalMove(f"{tensor.name} is summed up over loop {loop.node.variable}")
    last = max(s.path for s in writers)
    for statement in inside:
        reads = any(a.tensor.storage is tensor for a in statement.reads)
        if reads and statement.path <= last and not statement.accumulates:
            raise IllegalMove(f"{tensor.name} is read before it is made")


def _private(reading: Reading, loop: LoopFacts, tensor: KernelTensor, axis: int) -> bool:
    own = Polynomial.symbol(loop.symbol)
    return all(a.dims is not None and a.dims[axis] == own for _, a in uses_of(reading, tensor))


def _only_dropped(
    loop: LoopFacts, statement: ReadStatement, dropped: set[tuple[KernelTensor, int]]
) -> bool:
    """True when the loop shows up in nothing but block dimensions that will go."""
    for access in (*statement.reads, *statement.writes):
        if access.dims is None:
            return False
        for axis, dim in enumerate(access.dims):
            if loop.symbol in dim.loops and (access.tensor, axis) not in dropped:
                return False
    return statement.call is None or "mask" not in {
        key
        for key, value in statement.call.values.items()
        if any(loop.symbol in c.loops for c in getattr(value, "conditions", ()))
    }


def _reduces(statement: ReadStatement) -> bool:
    return statement.call is not None and statement.call.name == "nl.loop_reduce"


def _trips(loop: LoopFacts) -> str:
    assert isinstance(loop.node.node.iter, cst.Call)
    return code_of(loop.node.node.iter.args[0].value)


def _without(
    nodes: tuple[SourceNode, ...], prefix: StatementPath, paths: set[StatementPath]
) -> list[SourceNode]:
    kept: list[SourceNode] = []
    for position, node in enumerate(nodes):
        path = (*prefix, position)
        if isinstance(node, SourceLoop):
            inner = _without(node.body, path, paths)
            if inner:
                kept.append(SourceLoop(node.node, tuple(inner), node.number))
        elif path not in paths:
            kept.append(node)
    return kept


def _slice(
    nodes: tuple[SourceNode, ...],
    prefix: StatementPath,
    paths: set[StatementPath],
    kept: set[StatementPath],
) -> list[SourceNode]:
    """The statements at `paths` with the kept loops around them."""
    result: list[SourceNode] = []
    for position, node in enumerate(nodes):
        path = (*prefix, position)
        if isinstance(node, SourceStatement):
            if path in paths:
                result.append(node)
            continue
        inner = _slice(node.body, path, paths, kept)
        if inner and path in kept:
            result.append(SourceLoop(node.node, tuple(inner), node.number))
        else:
            result += inner
    return result


def _applied(node: SourceNode, growth: Growth, blocks: list[str]) -> SourceNode:
    if isinstance(node, SourceLoop):
        body = [_applied(n, growth, blocks) for n in node.body if not growth.declares(n)]
        return SourceLoop(node.node, tuple(body), node.number)
    return growth.applied(node, blocks)


def _renamed(node: SourceNode, names: dict[str, str]) -> SourceNode:
    """Kept loops over their new variables."""
    node = substitute(node, names)

    def visit(inner: SourceNode) -> SourceNode:
        if isinstance(inner, SourceStatement):
            return inner
        variable = names.get(inner.variable, inner.variable)
        header = inner.node.with_changes(target=cst.Name(variable), leading_lines=[])
        return SourceLoop(header, tuple(visit(child) for child in inner.body), inner.number)

    return visit(node)
