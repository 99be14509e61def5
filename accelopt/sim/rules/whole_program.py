"""Rules that need the whole Program: addresses, sizes of buffers, direct allocation."""

from __future__ import annotations

import math
from collections.abc import Iterator

from accelopt.hardware import TARGETS
from accelopt.sim.access import Access
from accelopt.sim.errors import KernelError
from accelopt.sim.mask import EVERYTHING, Mask
from accelopt.sim.program import Buffer, Engine, Program
from accelopt.sim.rules import indexing, operands

MOST_INSTRUCTIONS = 5_000_000
"""That the simulated core executes and times: to time one takes some 16 microseconds and a kilobyte;
NKIBench's matmul runs 155,000."""


def instruction_count(program: Program) -> Iterator[KernelError]:
    """More instructions than the simulated core takes, by the known trips of loops."""
    counts = [
        (math.prod(loop.variable.trips for loop in loops), instruction.source)
        for loops, instruction in program.walk()
    ]
    total = sum(count for count, _ in counts)
    if total > MOST_INSTRUCTIONS:
        most, source = max(counts)
        message = (
            f"the kernel runs {total:,} instructions, {most:,} of them here; the simulated core "
            f"takes at most {MOST_INSTRUCTIONS:,}."
        )
        mend = "Use fewer iterations, or larger tiles."
        yield KernelError("too_many_instructions", message, mend, source)


def addresses(program: Program) -> Iterator[KernelError]:
    """Accesses that leave their tensors. The tracer proves this dimension by dimension; here it is
    proven again for Programs that came from elsewhere."""
    for _, instruction in program.walk():
        mask = EVERYTHING if instruction.opcode.product else instruction.mask
        for access in (*instruction.outputs.values(), *instruction.inputs.values()):
            if _leaves(access, mask & access.mask if access.mask.constraints else mask):
                shape, size = access.tensor.shape, math.prod(access.tensor.tile_shape)
                low, high = access.reach
                name = f"'{access.tensor.name}' {shape}"
                error = indexing.out_of_bounds(name, None, low, high, size)
                yield error.at(instruction.source)


def _leaves(access: Access, mask: Mask) -> bool:
    tensor = access.tensor
    if access.block or tensor.block_rank:
        for index, size in zip(access.block, tensor.block_shape, strict=True):
            low, high = index.bounds
            if (low < 0 or high >= size) and not mask.keeps(index, 0, size - 1):
                return True
    size = math.prod(tensor.tile_shape) * tensor.dtype.itemsize // access.dtype.itemsize
    low, high = access.reach
    if low >= 0 and high < size:
        return False
    return not mask.constraints  # under a mask the tracer and the executor decide


def buffer_sizes(program: Program) -> Iterator[KernelError]:
    """GCA046: one block of a tensor is larger than its memory (S31)."""
    core = TARGETS[program.target]
    for tensor in program.all_tensors():
        if not tensor.buffer.on_chip:
            continue
        in_psum = tensor.buffer is Buffer.PSUM
        available = core.psum_partition_bytes if in_psum else core.sbuf_partition_bytes
        needed = tensor.partition_bytes
        if needed > available:
            memory = tensor.buffer.value.upper()
            error = operands.buffer_too_large(tensor.name, needed, available, memory)
            yield error.at(tensor.source)


def direct_allocation(program: Program) -> Iterator[KernelError]:
    """What a kernel with directly allocated tensors may not do."""
    tensors = list(program.all_tensors())
    placements = [tensor.placement for tensor in tensors if tensor.placement is not None]
    if not any(placement.core is None for placement in placements):
        return  # a kernel of `nki` may place some tiles and leave others to the compiler
    kept = {tensor for tensor in (*program.arguments, *program.results) if tensor is not None}
    scratch = [t for t in tensors if not t.buffer.on_chip and t not in kept and t.data is None]
    if scratch:
        error = operands.scratch_in_hbm(", ".join(f"'{tensor.name}'" for tensor in scratch))
        yield error.at(scratch[0].source)
    for _, instruction in program.walk():
        if "bias" in instruction.opcode.inputs and "bias" not in instruction.inputs:
            yield operands.bias_required().at(instruction.source)
        if instruction.opcode.transposes and instruction.engine is Engine.TENSOR:
            yield operands.implicit_transpose().at(instruction.source)
