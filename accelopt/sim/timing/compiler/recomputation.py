"""Two results of one activation, each made from its own copy of all that they are made from.

`nisa.activation` with `reduce_res` writes its result and the sum of it. The newer compiler makes the two
one by one, and for the second everything up to the loads again. gqa_full_v7b (trn2_kernels.csv) differs
from v7a in nothing but that, and counts 13,056 products, 4,672 instructions that read PSUM and 50.4 MB of
loads more: all 12,288 products of the scores, the transposes of q and of k (512, 256), what evicts those
(512, 64), all 4,096 exponentials, q and k once more (33.6 and 16.8 MB).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from accelopt.sim.access import Access
from accelopt.sim.program import Tensor
from accelopt.sim.timing.compiler.lowering import rewrite, walk, with_declarations
from accelopt.sim.timing.stream.operation import Decisions, Nest, Operation, Queue


def make_results_apart(nest: Nest, decisions: Decisions) -> Nest:
    """The tree with what such activations are made from written twice. One that works on its own
    results, as running sums do, stays as it is, and so does all if a tile's place is the kernel's."""
    operations = [operation for _, operation in walk(nest)]
    read = {access.tensor for operation in operations for access in operation.reads}
    both = {operation for operation in operations if _has_two_results(operation, read)}
    makers = _makers(operations, both)
    copied = {access.tensor for maker in makers for access in maker.writes}
    if not both or both & makers or any(tensor.placement for tensor in copied):
        return nest
    twins = {tensor: replace(tensor) for tensor in copied}

    def change(operation: Operation) -> tuple[Operation, ...]:
        if operation in both:
            decisions.add("the sum is made from the start", operation.source)
            return _result(operation), _again(operation, operation.writes[1:], twins)
        if operation in makers:
            return operation, _again(operation, operation.writes, twins)
        return (operation,)

    def declared(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors + tuple(twins[tensor] for tensor in tensors if tensor in twins)

    return with_declarations(rewrite(nest, change), declared)


def _has_two_results(operation: Operation, read: set[Tensor]) -> bool:
    """True for an activation whose result and whose sum are both wanted."""
    if operation.queue is not Queue.SCALAR or len(operation.writes) != 2:
        return False
    return all(access.tensor in read for access in operation.writes)


def _makers(operations: list[Operation], of: set[Operation]) -> set[Operation]:
    """All on the way from HBM to what some operations read."""
    writers: dict[Tensor, list[Operation]] = {}
    for operation in operations:
        for access in operation.writes:
            writers.setdefault(access.tensor, []).append(operation)
    found: set[Operation] = set()
    waiting = deque(of)
    while waiting:
        for access in waiting.popleft().reads:
            if access.tensor.buffer.on_chip:
                new = [one for one in writers.get(access.tensor, ()) if one not in found]
                found.update(new)
                waiting.extend(new)
    return found


def _result(operation: Operation) -> Operation:
    instruction = operation.instruction
    assert instruction is not None
    alone = replace(instruction, outputs={"result": instruction.result})
    return replace(operation, writes=operation.writes[:1], instruction=alone)


def _again(
    operation: Operation, writes: tuple[Access, ...], twins: dict[Tensor, Tensor]
) -> Operation:
    def twin(access: Access) -> Access:
        return replace(access, tensor=twins.get(access.tensor, access.tensor))

    return replace(
        operation,
        reads=tuple(map(twin, operation.reads)),
        writes=tuple(map(twin, writes)),
        again=True,
    )
