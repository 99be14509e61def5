"""Transposed loads of four-byte data that the newer compiler leaves to the Tensor engine.

`nl.load_transpose2d` of fp32 counts as many products (8,704) and PSUM evictions (4,224) as the same
kernel with a load and a product with the identity, and takes the same 2.035 ms: bmm_v2 and
bmm_v2_d2_loadtranspose (measured/trn2_kernels.csv). DMA engines transpose two-byte data alone
(`nisa.dma_transpose`), so that stays with them.
"""

from __future__ import annotations

from dataclasses import replace

from accelopt.sim.isa import movement
from accelopt.sim.program import Buffer
from accelopt.sim.timing.compiler.lowering import rewrite
from accelopt.sim.timing.stream.operation import (
    Decisions,
    Nest,
    Operation,
    Queue,
    copied,
    own_tile,
    transferred,
)

FIRST_ID = -2_000_000
"""Of the tiles that this makes: the ids of a Program are not negative, those of other passes larger."""
WIDEST = 128
"""Rows and columns that one product transposes."""


def transpose_after_loading(nest: Nest, decisions: Decisions) -> Nest:
    """Every such transfer as a load of rows, products with the identity, and copies out of PSUM."""
    made = 0

    def change(operation: Operation) -> tuple[Operation, ...]:
        nonlocal made
        if not _is_wide_transposed_load(operation):
            return (operation,)
        source, target = operation.reads[0], operation.writes[0]
        steps: list[Operation] = []
        for start in range(0, target.shape[1], WIDEST):
            steps += _part(operation, start, FIRST_ID - 2 * made)
            made += 1
        words = f"{source.dtype} is transposed by the Tensor engine"
        decisions.add(words, operation.source)
        return tuple(steps)

    return rewrite(nest, change)


def _is_wide_transposed_load(operation: Operation) -> bool:
    instruction = operation.instruction
    if instruction is None or not (operation.is_dma and instruction.attributes.get("transpose")):
        return False
    source, target = operation.reads[0], operation.writes[0]
    return (
        source.dtype.itemsize == target.dtype.itemsize == 4
        and not source.tensor.buffer.on_chip
        and target.tensor.buffer is Buffer.SBUF
        and not (len(operation.reads) > 1 or instruction.mask.constraints)
        and len(target.shape) == 2
        and target.shape[0] <= WIDEST
    )


def _part(operation: Operation, start: int, number: int) -> list[Operation]:
    """The load, the product and the copy of at most `WIDEST` columns of the target."""
    source, target = operation.reads[0], operation.writes[0]
    rows, columns = min(WIDEST, target.shape[1] - start), target.shape[0]
    name, dtype, line = "transposed_load", source.dtype, operation.source
    loaded = own_tile(number, name, (rows, columns), dtype, Buffer.SBUF, line)
    turned = own_tile(number - 1, name, (columns, rows), dtype, Buffer.PSUM, line)
    across = replace(
        source,
        shape=(rows, columns),
        strides=(source.strides[1], source.strides[0]),
        offset=source.offset + start * source.strides[1],
    )
    part = replace(target, shape=(columns, rows), offset=target.offset + start * target.strides[1])
    return [
        transferred(across, loaded, operation.source, "dma_copy.rows"),
        Operation(movement.TRANSPOSE, Queue.TENSOR, (loaded,), (turned,), source=operation.source,
                  label="transpose.load", by_identity=True),
        copied(turned, part, operation.source, "copy.transposed"),
    ]  # fmt: skip
