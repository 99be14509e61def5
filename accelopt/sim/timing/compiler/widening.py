"""Innermost affine loops of tiny instructions become one wide instruction each.

The compiler may run the iterations of an affine loop in any order, also at once: instructions on a
few elements a partition whose operands lie a constant distance apart merge along a new free axis.
That it does so was seen in kernels that ought to be limited by instruction overhead and were not;
where the limit of "tiny" lies is not known, so both outcomes are simulated in the interval.
"""

from __future__ import annotations

from dataclasses import replace

from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.program import Loop, LoopKind, Tensor
from accelopt.sim.timing.bounds import CompilerBounds
from accelopt.sim.timing.stream.operation import Decision, Nest, Operation, Queue

WIDENED = frozenset(
    {
        "activation",
        "copy",
        "memset",
        "reciprocal",
        "select",
        "tensor_reduce",
        "tensor_scalar",
        "tensor_tensor",
    }
)


def widen_tiny_loops(nest: Nest, bounds: CompilerBounds, decisions: list[Decision]) -> Nest:
    """The tree with every such loop replaced by its wide instructions."""
    body: list[Nest | Operation] = []
    declared: list[Tensor] = []
    for node in nest.body:
        if isinstance(node, Operation):
            body.append(node)
            continue
        inner = widen_tiny_loops(node, bounds, decisions)
        wide = _wide_operations(inner, bounds)
        if wide is None:
            body.append(inner)
            continue
        operations, tensors = wide
        body += operations
        declared += tensors
        assert inner.loop is not None
        decisions.append(
            Decision(
                "widen_tiny_loops",
                f"{len(operations)} instructions stand for {inner.loop.variable.trips} iterations",
                operations[0].source,
                inner.loop.variable.trips,
            )
        )
    loop = nest.loop
    if loop is not None and declared:
        loop = replace(loop, tensors=(*loop.tensors, *declared))
    return Nest(loop, tuple(body))


def _wide_operations(
    nest: Nest, bounds: CompilerBounds
) -> tuple[list[Operation], list[Tensor]] | None:
    """The wide instructions of an innermost loop and the tensors that its own became."""
    loop = nest.loop
    if loop is None or loop.kind is not LoopKind.AFFINE or not nest.body:
        return None
    trips = loop.variable.trips
    if trips < 2 or not all(_is_tiny(node, trips, bounds) for node in nest.body):
        return None
    grown = {tensor: _grown(tensor, trips) for tensor in loop.tensors}
    if any(tensor.block_rank for tensor in loop.tensors):
        return None
    result: list[Operation] = []
    for node in nest.body:
        assert isinstance(node, Operation)
        reads = [_stretched(a, loop, grown) for a in node.reads]
        writes = [_stretched(a, loop, grown) for a in node.writes]
        stretched = [a for a in (*reads, *writes) if a is not None]
        if len(stretched) < len(reads) + len(writes) or not _consistent(node, loop, grown):
            return None
        result.append(
            replace(
                node,
                reads=tuple(a for a in reads if a is not None),
                writes=tuple(a for a in writes if a is not None),
            )
        )
    return result, list(grown.values())


def _is_tiny(node: Nest | Operation, trips: int, bounds: CompilerBounds) -> bool:
    if not isinstance(node, Operation) or node.opcode not in WIDENED:
        return False
    if node.queue in (Queue.DMA, Queue.TENSOR) or len(node.writes) != 1:
        return False
    if node.instruction is not None and node.instruction.mask.constraints:
        return False
    n = max(access.free_elements for access in (*node.reads, *node.writes))
    return n <= bounds.tiny_elements and n * trips <= bounds.widest_elements


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
    if node.opcode in ("activation", "tensor_scalar"):
        for column in node.reads[1:]:
            moves = column.tensor in grown or _step(column, loop.variable) != 0
            if column.free_elements == 1 and moves:
                return False
    return True
