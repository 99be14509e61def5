"""Rules that every single instruction keeps: who runs it, where its operands lie, how large they are.

The tracer refuses what breaks them with the better message, as `nki/builder.py` emits. A Program that
came from elsewhere may never have met it: here the same is proven from the Program alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from accelopt.sim.access import Access
from accelopt.sim.dtypes import is_packed
from accelopt.sim.errors import KernelError
from accelopt.sim.instruction_set import (
    MOVING_SCALES,
    OPCODES,
    QUANTIZED_SCALES,
    STATIONARY_SCALES,
)
from accelopt.sim.program import Buffer, Engine, Instruction, Program
from accelopt.sim.rules.limits import (
    MAX_BN_STATS_FREE,
    MAX_FREE_IN_PSUM,
    MAX_FREE_IN_SBUF,
    MAX_MOVING_FREE,
    MAX_PARTITIONS,
    MAX_STATIONARY_FREE,
)
from accelopt.sim.rules.operand_shapes import misfits

MOST_FREE = {
    ("matmul", "stationary"): MAX_STATIONARY_FREE,
    ("matmul", "moving"): MAX_MOVING_FREE,
    ("bn_stats", "data"): MAX_BN_STATS_FREE,
}
"""Elements a partition, by opcode and operand, where they are fewer than the memory's own limit."""
BUFFERS = {
    ("matmul", "stationary"): Buffer.SBUF,
    ("matmul", "moving"): Buffer.SBUF,
    ("matmul", "result"): Buffer.PSUM,
    **{("matmul", name): Buffer.SBUF for name in (*STATIONARY_SCALES, *MOVING_SCALES)},
    **{("quantize_mx", name): Buffer.SBUF for name in ("data", "result", *QUANTIZED_SCALES)},
}
ROWS_AT_ONCE = 2
"""Rows of each operand that a matmul with `perf_mode` takes together (double_row_gen3)."""
REACH_HBM = frozenset({"dma_copy", "print", "random", "gather"})
TURNED_BY_VECTOR = 32
TURNED_BY_TENSOR = 128


def instructions(program: Program) -> Iterator[KernelError]:
    """Instructions that no NeuronCore has. Of a form that has been found legal, none is looked at
    again."""
    legal: set[tuple[object, ...]] = set()
    for _, instruction in program.walk():
        form = _form(instruction)
        if form in legal:
            continue
        problems = list(_problems(instruction))
        if not problems:
            legal.add(form)
        for problem in problems:
            text = f"{instruction.opcode} {problem}."
            yield KernelError("illegal_instruction", text, source=instruction.source)


_LOOKED_AT = ("axes", "elements_per_index", "valid_indices", "value", "accumulate")


def _form(instruction: Instruction) -> tuple[object, ...]:
    """All that `_problems` looks at."""
    form: list[object] = [
        instruction.opcode,
        instruction.engine,
        bool(instruction.mask.constraints),
        bool(instruction.attributes.get("perf_mode")),
        *(instruction.attributes.get(name) for name in _LOOKED_AT),
    ]
    for accesses in (instruction.outputs, instruction.inputs):
        for name, access in accesses.items():
            form += (name, bool(access.mask.constraints), *access.layout)
    return tuple(form)


def _problems(instruction: Instruction) -> Iterator[str]:
    opcode, engine = instruction.opcode, instruction.engine
    if engine not in (*OPCODES[opcode].engines, Engine.UNASSIGNED):
        yield f"cannot run on the {engine.value} engine"
    for name, access in (*instruction.outputs.items(), *instruction.inputs.items()):
        if access.tensor.buffer.on_chip:
            yield from _on_chip(instruction, name, access)
        elif opcode not in REACH_HBM:
            yield f"cannot reach its operand {name} in HBM"
    yield from misfits(instruction)
    if opcode == "matmul":
        rows = [instruction.inputs[name].partitions for name in ("stationary", "moving")]
        if rows[0] != rows[1]:
            yield f"has operands of {rows[0]} and {rows[1]} partitions"
    if opcode == "transpose":
        most = TURNED_BY_VECTOR if engine is Engine.VECTOR else TURNED_BY_TENSOR
        data = instruction.inputs["data"]
        if max(data.partitions, _free(data)) > most:
            yield f"turns {data.shape}, more than {most} x {most}"


def _on_chip(instruction: Instruction, name: str, access: Access) -> Iterator[str]:
    opcode, tensor = instruction.opcode, access.tensor
    if max(access.partitions, tensor.tile_shape[0]) > MAX_PARTITIONS:
        yield f"has an operand {name} of {max(access.partitions, tensor.tile_shape[0])} partitions"
    wanted = BUFFERS.get((opcode, name), tensor.buffer)
    if tensor.buffer is not wanted:
        yield f"needs its operand {name} in {wanted.value.upper()}"
    if opcode == "dma_copy":
        return  # descriptors reach every byte, in any order
    of_memory = MAX_FREE_IN_PSUM if tensor.buffer is Buffer.PSUM else MAX_FREE_IN_SBUF
    most = MOST_FREE.get((opcode, name), of_memory)
    if name == "moving" and is_packed(access.dtype):
        most = MAX_FREE_IN_PSUM
    if name != "result" and instruction.attributes.get("perf_mode"):
        most *= ROWS_AT_ONCE
    if _free(access) > most:
        yield f"has an operand {name} of {_free(access)} elements a partition, at most {most}"
    row = math.prod(tensor.tile_shape[1:]) * tensor.dtype.itemsize // access.dtype.itemsize
    if row == 0:
        yield f"has an operand {name} whose elements are wider than a row of its tensor"
        return
    if access.partitions > 1 and access.strides[0] % row:
        yield f"has an operand {name} whose partitions are not those of its tensor"
    reach = sum(abs(s) * (n - 1) for s, n in zip(access.strides[1:], access.shape[1:], strict=True))
    masked = instruction.mask.constraints or access.mask.constraints  # may end the row
    if reach >= row and not access.indirect and not masked:
        yield f"has an operand {name} that runs from one partition into the next"


def _free(access: Access) -> int:
    return math.prod(access.shape[1:])
