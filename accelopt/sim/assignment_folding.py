"""Lets an instruction write where its result is assigned.

Kernel code says `out[i, j] = nisa.activation(...)`. The tracer sees two things, an instruction that
makes a new tile and an assignment of that tile; the hardware does one, an instruction that writes
into `out`. The same holds for `psum[...] += nisa.nc_matmul(...)`, which is a matrix multiplication
that accumulates. Assignments that cannot be folded stay as the copies that they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypedDict

from accelopt.sim.access import Access
from accelopt.sim.dtypes import name_of
from accelopt.sim.isa.movement import ASSIGN
from accelopt.sim.isa.opcode import Cost, Opcode
from accelopt.sim.last_uses import LastUses
from accelopt.sim.program import (
    Buffer,
    Engine,
    Instruction,
    Loop,
    Program,
    ProgramNode,
    Tensor,
    rewritten,
)


class Folded(TypedDict):
    """The parts of a Program that folding replaces."""

    body: tuple[ProgramNode, ...]
    tensors: tuple[Tensor, ...]


def fold_assignments(program: Program) -> Folded:
    """Body and top-level tensors of the program with every possible assignment folded."""
    assigned = {
        access.tensor
        for _, node in program.walk()
        if ASSIGN in node.attributes
        for access in node.inputs.values()
    }
    if not assigned:
        return {"body": program.body, "tensors": program.tensors}
    results = {tensor for tensor in program.results if tensor is not None}
    single = _used_once(program, assigned - results)
    gone: set[Tensor] = set()
    body = _fold(program.body, single, gone)
    body = rewritten(body, partial(_without_tensors, gone=gone))
    return {"body": body, "tensors": tuple(t for t in program.tensors if t not in gone)}


def _used_once(program: Program, tensors: set[Tensor]) -> set[Tensor]:
    """Those of some tensors that are temporaries, written once and read once."""
    values = {tensor for tensor in tensors if tensor.temporary}
    readers = dict.fromkeys(values, 0)
    writers = dict.fromkeys(values, 0)
    for _, node in program.walk():
        for access in node.inputs.values():
            if access.tensor in values:
                readers[access.tensor] += 1
        for access in node.outputs.values():
            if access.tensor in values:
                writers[access.tensor] += 1
        for access in (*node.inputs.values(), *node.outputs.values()):
            for index in access.indices if access.indirect else ():
                if index.tensor in values:
                    readers[index.tensor] += 1
    return {tensor for tensor in values if readers[tensor] == writers[tensor] == 1}


def _fold(
    nodes: tuple[ProgramNode, ...], single: set[Tensor], gone: set[Tensor]
) -> tuple[ProgramNode, ...]:
    out: list[ProgramNode] = []
    producer: dict[Tensor, int] = {}  # temporary -> position in `out` of the instruction making it
    last = LastUses()
    for node in nodes:
        if isinstance(node, Loop):
            last.note(len(out), node)
            out.append(replace(node, body=_fold(node.body, single, gone)))
            continue
        if ASSIGN in node.attributes and _merge(node, out, producer, last, gone):
            continue
        if ASSIGN in node.attributes:
            attributes = {k: v for k, v in node.attributes.items() if k != ASSIGN}
            node = replace(node, attributes=attributes)
        result = node.outputs.get("result")
        if result is not None and result.tensor in single:
            producer[result.tensor] = len(out)
        last.note(len(out), node)
        out.append(node)
    return tuple(out)


def _merge(
    assignment: Instruction,
    out: list[ProgramNode],
    producer: dict[Tensor, int],
    last: LastUses,
    gone: set[Tensor],
) -> bool:
    """Rewrites the producer in `out` to write the assignment's destination; False when it may not."""
    accumulates = "data2" in assignment.inputs
    value = assignment.inputs["data2" if accumulates else "data"]
    position = producer.get(value.tensor)
    if position is None:
        return False
    made = out[position]
    assert isinstance(made, Instruction)
    target = assignment.result
    if not made.result.same_elements(value) or value.shape != target.shape:
        return False
    if not set(assignment.mask.constraints) <= set(made.mask.constraints):
        return False
    if not _may_write(made, target, accumulates):
        return False
    if last.touched(target.tensor) > position:
        return False
    if any(access.tensor is target.tensor for access in made.inputs.values()) and (
        position != len(out) - 1 or _reads_after_writing(made.opcode)
    ):
        return False
    attributes = dict(made.attributes)
    attributes.setdefault("dtype", name_of(made.result.dtype))
    if accumulates:
        attributes["accumulate"] = True
    outputs = {**made.outputs, "result": target}
    merged = replace(made, outputs=outputs, attributes=attributes)
    out[position] = merged
    last.note(position, merged)
    gone.add(value.tensor)
    return True


def _reads_after_writing(opcode: Opcode) -> bool:
    """True where elements are read after others have been written."""
    return opcode.product or opcode.transposes or opcode.cost is Cost.SCAN


def _may_write(made: Instruction, target: Access, accumulates: bool) -> bool:
    """True when the instruction itself can write that memory in that way."""
    if accumulates:
        return made.opcode.product and target.tensor.buffer is Buffer.PSUM
    if made.result.tensor.buffer is target.tensor.buffer:
        return True
    free_choice = made.engine not in (Engine.TENSOR, Engine.DMA)
    return free_choice and target.tensor.buffer.on_chip


def _without_tensors(node: ProgramNode, gone: set[Tensor]) -> ProgramNode:
    if not isinstance(node, Loop):
        return node
    return replace(node, tensors=tuple(t for t in node.tensors if t not in gone))
