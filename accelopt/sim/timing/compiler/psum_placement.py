"""Results that go to PSUM, and operands that are read from it, because that is cheaper.

A Vector instruction on two operands takes N cycles when one lies in PSUM, 2N when both lie in SBUF.
Which results the compiler places there is not documented; the rules are those that the counters of
NKIBench show.
"""

from __future__ import annotations

from dataclasses import replace

from accelopt.hardware import TRN1
from accelopt.sim.access import Access
from accelopt.sim.isa.opcode import Cost
from accelopt.sim.program import Buffer, Tensor
from accelopt.sim.timing.compiler.lowering import rewrite, walk, with_declarations
from accelopt.sim.timing.stream.operation import Decisions, Nest, Operation, Queue


def read_psum_directly(nest: Nest, decisions: Decisions) -> Nest:
    """A Vector instruction that reads what a plain copy has just brought from PSUM reads PSUM
    itself: bmm_softmax (NKIBench) reads its scores from PSUM twice, for the copy and the maximum."""
    body: list[Nest | Operation] = []
    copied: dict[Tensor, Operation] = {}
    copies: dict[Tensor, list[Tensor]] = {}  # by what they were copied from
    for node in nest.body:
        if isinstance(node, Nest):
            copied.clear()
            copies.clear()
            body.append(read_psum_directly(node, decisions))
            continue
        if node.queue is Queue.VECTOR and "axes" in node.opcode.attributes:
            maker = copied.get(node.reads[0].tensor)
            if maker and maker.writes[0].same_elements(node.reads[0]):
                node = replace(node, reads=(maker.reads[0], *node.reads[1:]))
                decisions.add("the operand is read from PSUM", node.source)
        for access in node.writes:
            copied.pop(access.tensor, None)
            for tensor in copies.pop(access.tensor, ()):
                if tensor in copied and copied[tensor].reads[0].tensor is access.tensor:
                    del copied[tensor]
        if _is_eviction(node):
            copied[node.writes[0].tensor] = node
            copies.setdefault(node.reads[0].tensor, []).append(node.writes[0].tensor)
        body.append(node)
    return Nest(nest.loop, tuple(body))


def _is_eviction(operation: Operation) -> bool:
    return (
        bool(operation.opcode.copied)
        and operation.reads[0].tensor.buffer is Buffer.PSUM
        and operation.writes[0].tensor.buffer is Buffer.SBUF
        and operation.reads[0].shape == operation.writes[0].shape
        and operation.reads[0].dtype == operation.writes[0].dtype
    )


def place_in_psum(nest: Nest, decisions: Decisions) -> Nest:
    """A Scalar engine result that only one two-tensor Vector instruction reads goes to PSUM, where
    reading it costs N cycles in place of 2N.

    Only for elementwise work on freshly loaded data, at most a bank wide: adamw's Vector engine is
    active for just the eight N that this gives its six two-tensor instructions.
    """
    scalar = [operation for _, operation in walk(nest) if _is_on_scalar_engine(operation)]
    readers: dict[Tensor, list[Operation]] = {
        operation.writes[0].tensor: [] for operation in scalar
    }
    writers: dict[Tensor, list[Operation]] = {tensor: [] for tensor in readers}
    writers |= {operation.reads[0].tensor: [] for operation in scalar}
    for _, operation in walk(nest):
        for access in operation.reads:
            if access.tensor in readers:
                readers[access.tensor].append(operation)
        for access in operation.writes:
            if access.tensor in writers:
                writers[access.tensor].append(operation)
    siblings = _bodies(nest)
    moved: dict[Tensor, Tensor] = {}
    for operation in scalar:
        tensor = _psum_candidate(operation, readers, writers, siblings, moved)
        if tensor is None:
            continue
        moved[tensor] = replace(tensor, buffer=Buffer.PSUM)
        decisions.add("the result goes to PSUM for its one reader", operation.source)

    def moved_access(access: Access) -> Access:
        return replace(access, tensor=moved[access.tensor]) if access.tensor in moved else access

    def change(operation: Operation) -> tuple[Operation, ...]:
        if not [a for a in operation.accesses if a.tensor in moved]:
            return (operation,)
        return (
            replace(
                operation,
                reads=tuple(map(moved_access, operation.reads)),
                writes=tuple(map(moved_access, operation.writes)),
            ),
        )

    def declared(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(moved.get(tensor, tensor) for tensor in tensors)

    return with_declarations(rewrite(nest, change), declared) if moved else nest


def _bodies(nest: Nest) -> dict[Operation, int]:
    """The loop body each operation stands in, as a number."""
    found: dict[Operation, int] = {}

    def visit(node: Nest) -> None:
        for child in node.body:
            if isinstance(child, Nest):
                visit(child)
            else:
                found[child] = id(node)

    visit(nest)
    return found


def _is_on_scalar_engine(operation: Operation) -> bool:
    one_result = len(operation.writes) == 1 and bool(operation.reads)
    return operation.queue is Queue.SCALAR and one_result


def _psum_candidate(
    operation: Operation,
    readers: dict[Tensor, list[Operation]],
    writers: dict[Tensor, list[Operation]],
    bodies: dict[Operation, int],
    moved: dict[Tensor, Tensor],
) -> Tensor | None:
    """The tensor that this Scalar engine operation may write to PSUM."""
    result, data = operation.writes[0], operation.reads[0]
    tensor = result.tensor
    if tensor.buffer is not Buffer.SBUF or tensor.placement is not None or tensor in moved:
        return None
    if len(writers[tensor]) != 1 or len(readers[tensor]) != 1:
        return None
    reader = readers[tensor][0]
    if reader.opcode.cost is not Cost.TWO_TILES or reader.queue is not Queue.VECTOR:
        return None
    if bodies[reader] != bodies[operation]:
        return None
    if result.free_elements * result.dtype.itemsize > TRN1.psum_bank_bytes:
        return None
    if any(a.tensor.buffer is Buffer.PSUM or a.tensor in moved for a in reader.reads):
        return None
    makers = writers[data.tensor]
    return tensor if makers and all(maker.is_dma for maker in makers) else None
