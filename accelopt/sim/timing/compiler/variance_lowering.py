"""A variance is four instructions: no engine reduces to one by itself.

`nl.var` becomes the mean, what is left of each element, its square, and the sum of those. Two versions of
a layernorm (trn1_variants.csv: i1_c03 and i1_c07) that call it take 0.5 ms longer than one that takes the
mean of the squares (s00): what one more reduction and one more subtraction of every element take.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from accelopt.sim.access import Access
from accelopt.sim.isa import elementwise
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.program import Buffer
from accelopt.sim.timing.compiler.lowering import rewrite
from accelopt.sim.timing.stream.operation import Decisions, Nest, Operation, Queue, own_tile

FIRST_ID = -2_000_000


def write_out_variances(nest: Nest, decisions: Decisions) -> Nest:
    """The tree with every reduction to a variance written out."""
    numbers = count()

    def change(operation: Operation) -> tuple[Operation, ...]:
        if operation.attributes.get("op") != "variance" or operation.queue is not Queue.VECTOR:
            return (operation,)
        decisions.add("a variance is four instructions", operation.source)
        return _written_out(operation, next(numbers))

    return rewrite(nest, change)


def _written_out(operation: Operation, number: int) -> tuple[Operation, ...]:
    data, result = operation.reads[0], operation.writes[0]
    mean, rest, square = (
        own_tile(
            FIRST_ID - 3 * number - at, "variance", (data.partitions, width), data.dtype, Buffer.SBUF,
            operation.source,
        )
        for at, width in enumerate((1, data.free_elements, data.free_elements))
    )  # fmt: skip

    def step(
        opcode: Opcode, queue: Queue, reads: tuple[Access, ...], target: Access, label: str
    ) -> Operation:
        return Operation(
            opcode, queue, reads, (target,), source=operation.source, label=f"{label} of variance"
        )

    return (
        step(operation.opcode, Queue.VECTOR, (data,), mean, "mean"),
        step(elementwise.TENSOR_SCALAR, Queue.SCALAR, (data, mean), rest, "subtraction"),
        step(elementwise.ACTIVATION, Queue.SCALAR, (rest,), square, "square"),
        replace(operation, reads=(square, *operation.reads[1:]), writes=(result,)),
    )
