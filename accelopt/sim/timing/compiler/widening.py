"""Tiny instructions of innermost affine loops become one wide instruction each.

The compiler may run the iterations of an affine loop in any order, also at once: instructions on a
few elements a partition whose operands lie a constant distance apart merge along a new free axis, each
by itself, when all its results fit a PSUM bank; the others stay in a loop. conv1d's timings
(trn1_variants.csv) tell the three outcomes apart: s06, 64 rounds, all become wide; s04, 512 rounds, the
sums do and the products, three results each, do not; s00 and s05, 2,048 rounds, none does. Where the
limit of "tiny" lies is not known, so the other outcome is in the interval.
"""

from __future__ import annotations

from dataclasses import replace

from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.program import Loop, LoopKind, Tensor
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.stream.operation import Decisions, Nest, Operation, Queue


def widen_tiny_loops(nest: Nest, bounds: CompilerBounds, decisions: Decisions) -> Nest:
    """The tree with such loops replaced by wide instructions, and by a loop of those that stay."""
    body: list[Nest | Operation] = []
    declared: list[Tensor] = []
    for node in nest.body:
        if isinstance(node, Operation):
            body.append(node)
            continue
        inner = widen_tiny_loops(node, bounds, decisions)
        split = _split(inner, bounds)
        if split is None:
            body.append(inner)
            continue
        nodes, tensors = split
        body += nodes
        declared += tensors
        wide = [one for one in nodes if isinstance(one, Operation)]
        assert inner.loop is not None
        decisions.add(
            f"{len(wide)} instructions stand for {inner.loop.variable.trips} iterations",
            wide[0].source,
            inner.loop.variable.trips,
        )
    loop = nest.loop
    if loop is not None and declared:
        loop = replace(loop, tensors=(*loop.tensors, *declared))
    return Nest(loop, tuple(body))


def _split(
    nest: Nest, bounds: CompilerBounds
) -> tuple[list[Nest | Operation], list[Tensor]] | None:
    """What an innermost loop becomes, and the tensors that its own became; None when it stays."""
    loop = nest.loop
    if loop is None or loop.kind is not LoopKind.AFFINE or not nest.body:
        return None
    trips = loop.variable.trips
    operations = [node for node in nest.body if isinstance(node, Operation)]
    if trips < 2 or len(operations) < len(nest.body):
        return None
    if not all(_is_tiny(one, bounds) for one in operations):
        return None
    if loop.variable.step != 1 or any(tensor.block_rank for tensor in loop.tensors):
        return None
    grown = {tensor: _grown(tensor, trips) for tensor in loop.tensors}
    wide = [_widened(one, loop, grown) for one in operations]
    if any(one is None for one in wide):
        return None
    nodes: list[Nest | Operation] = []
    waiting: list[Nest | Operation] = []  # what stays in a loop of its own
    for narrow, one in zip(operations, wide, strict=True):
        assert one is not None
        if one.writes[0].free_elements > bounds.widest_elements:
            waiting.append(_placed(narrow, loop, grown))
            continue
        if waiting:
            nodes.append(Nest(replace(loop, tensors=()), tuple(waiting)))
            waiting = []
        nodes.append(one)
    if len(waiting) == len(operations):
        return None
    if waiting:
        nodes.append(Nest(replace(loop, tensors=()), tuple(waiting)))
    return nodes, list(grown.values())


def _is_tiny(node: Operation, bounds: CompilerBounds) -> bool:
    if not node.opcode.widened or len(node.writes) != 1:
        return False
    if node.queue in (Queue.DMA, Queue.TENSOR):
        return False
    if node.instruction is not None and node.instruction.mask.constraints:
        return False
    n = max(access.free_elements for access in node.accesses)
    return n <= bounds.tiny_elements


def _widened(node: Operation, loop: Loop, grown: dict[Tensor, Tensor]) -> Operation | None:
    """All iterations of an instruction as one."""
    reads = [_stretched(access, loop, grown) for access in node.reads]
    writes = [_stretched(access, loop, grown) for access in node.writes]
    if None in reads or None in writes or not _consistent(node, loop, grown):
        return None
    return replace(
        node,
        reads=tuple(access for access in reads if access is not None),
        writes=tuple(access for access in writes if access is not None),
    )


def _placed(node: Operation, loop: Loop, grown: dict[Tensor, Tensor]) -> Operation:
    """An instruction that stays in the loop, on its iteration's part of what the loop declared."""

    def part(access: Access) -> Access:
        whole = _stretched(access, loop, grown)
        if access.tensor not in grown or whole is None:
            return access
        step, variable = whole.strides[1], loop.variable
        return replace(
            whole,
            shape=access.shape,
            offset=whole.offset + Affine(-step * variable.start, ((variable, step),)),
            strides=(whole.strides[0], *whole.strides[2:]),
        )

    return replace(node, reads=tuple(map(part, node.reads)), writes=tuple(map(part, node.writes)))


def _grown(tensor: Tensor, trips: int) -> Tensor:
    """Room for all iterations of a tensor that the loop declared."""
    partition, *free = tensor.shape
    return replace(tensor, shape=(partition, trips, *free))


def _step(access: Access, variable: LoopVariable) -> int | None:
    """Elements from one iteration to the next; None when the partition or the block moves."""
    if any(variable in index.loop_variables for index in access.block) or access.indirect:
        return None
    if variable not in access.offset.loop_variables:
        return 0
    coefficient = access.offset.coefficient(variable)
    step = coefficient * variable.step
    if variable in (access.offset - Affine(0, ((variable, coefficient),))).loop_variables:
        return None  # inside of a division or a remainder
    row = 1
    for length in access.tensor.tile_shape[1:]:
        row *= length
    if access.tensor.buffer.on_chip and abs(step) * variable.trips > row:
        return None
    return step


def _stretched(access: Access, loop: Loop, grown: dict[Tensor, Tensor]) -> Access | None:
    """The access of all iterations at once, along a new first free axis."""
    variable = loop.variable
    tensor = grown.get(access.tensor)
    if tensor is None:
        step = _step(access, variable)
        if step is None:
            return None
        start = access.offset.substitute({variable: Affine(variable.start)})
        strides = (access.strides[0], step, *access.strides[1:])
    else:
        if not access.offset.is_constant:
            return None
        row = 1
        for length in access.tensor.tile_shape[1:]:
            row *= length
        tensor_row = row * variable.trips
        partition, within = divmod(access.offset.constant, row)
        start = Affine(partition * tensor_row + within)
        first = access.strides[0] // row * tensor_row if access.strides else 0
        strides = (first, row, *access.strides[1:])
    return replace(
        access,
        tensor=tensor or access.tensor,
        shape=(access.shape[0], variable.trips, *access.shape[1:]),
        offset=start,
        strides=strides,
    )


def _consistent(node: Operation, loop: Loop, grown: dict[Tensor, Tensor]) -> bool:
    """Every iteration writes elements of its own; column operands are the same in all of them."""
    target = node.writes[0]
    if target.tensor not in grown:
        step = _step(target, loop.variable)
        if step is None or abs(step) < 1:
            return False
    if node.opcode.cost.two_tiles:
        return True
    for column in node.reads[1:]:
        moves = column.tensor in grown or _step(column, loop.variable) != 0
        if column.free_elements == 1 and moves:
            return False
    return True
