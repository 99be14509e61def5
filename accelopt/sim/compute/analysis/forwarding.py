"""Takes out copies that only move a tile on: the maker writes the destination, or the reader reads
the source. A NeuronCore needs them (HBM to SBUF, PSUM to SBUF); in one address space they are
passes over memory that change nothing.

- `t = f(...); d = copy(t)` becomes `d = f(...)`
- `t = copy(s); d = f(t)` becomes `d = f(s)`
- `t = transpose(s); d = matmul(t, ...)` reads `s` with its strides swapped

each when the tile has no other use, formats are equal, and nothing in between touches the memory
concerned. Only the executor works on the result; rules and timing see the kernel's own Program.
"""

from __future__ import annotations

from dataclasses import replace

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.compute.analysis.uses import Use, mask_is_aligned, uses_by_tensor
from accelopt.sim.last_uses import LastUses
from accelopt.sim.mask import Mask
from accelopt.sim.program import Engine, Instruction, Loop, Program, ProgramNode, Tensor


def forward_copies(program: Program) -> Program:
    """An equivalent program with fewer copies."""
    uses = uses_by_tensor(program)
    kept = {*program.arguments, *(t for t in program.results if t is not None)}
    passing = {
        tensor: own
        for tensor, own in uses.items()
        if len(own) == 2 and own[0].covers and not own[0].reads and own[1].reads
        and not own[1].writes and tensor not in kept and tensor.data is None
        and own[0].loops == own[1].loops
    }  # fmt: skip
    return replace(program, body=_forward(program.body, passing))


def _forward(
    nodes: tuple[ProgramNode, ...], passing: dict[Tensor, list[Use]]
) -> tuple[ProgramNode, ...]:
    out: list[ProgramNode | None] = []
    makers: dict[Tensor, int] = {}  # a passing tensor -> where in `out` it is made
    last = LastUses()
    for node in nodes:
        if isinstance(node, Loop):
            last.note(len(out), node)
            out.append(replace(node, body=_forward(node.body, passing)))
            continue
        instruction = node
        for name, access in node.inputs.items():
            if access.tensor in makers:
                instruction = _read_through(instruction, name, out, makers, last)
        position = _write_through(instruction, out, makers, last)
        if position is None:
            position = len(out)
            last.note(position, instruction)
            out.append(instruction)
        result = instruction.outputs.get("result")
        if result is not None and result.tensor in passing:
            makers[result.tensor] = position
    return tuple(node for node in out if node is not None)


def _plain_copy(instruction: Instruction) -> Access | None:
    """The source, if an instruction copies elements as they are."""
    copied = instruction.opcode.copied
    if not copied or instruction.attributes.get("accumulate"):
        return None
    source = instruction.inputs[copied]
    result = instruction.result
    if source.shape != result.shape or source.indirect or result.indirect:
        return None
    if instruction.engine is Engine.SCALAR and dtypes.is_integer(source.dtype):
        return None
    return source if source.dtype == result.dtype and _keeps_format(instruction) else None


def _keeps_format(instruction: Instruction) -> bool:
    name = instruction.attributes.get("dtype")
    return name is None or dtypes.parse(name) == instruction.result.dtype


def _write_through(
    copy: Instruction, out: list[ProgramNode | None], makers: dict[Tensor, int], last: LastUses
) -> int | None:
    """Lets the instruction that made a copy's source write its destination instead. Returns its
    place, None when it may not."""
    source = _plain_copy(copy)
    position = None if source is None else makers.get(source.tensor)
    if source is None or position is None:
        return None
    made = out[position]
    assert isinstance(made, Instruction)
    target = copy.result
    partial = any(access.mask.constraints for access in made.inputs.values())
    if "loops" in made.attributes or partial or not _keeps_format(made):
        return None
    if not made.result.same_elements(source) or made.result.shape != target.shape:
        return None
    mask = _joined_mask(made, copy)
    if mask is None or last.touched(target.tensor) >= position:
        return None
    merged = replace(made, outputs={**made.outputs, "result": target}, mask=mask)
    out[position] = merged
    last.note(position, merged)
    return position


def _joined_mask(made: Instruction, copy: Instruction) -> Mask | None:
    """The mask of both at once; None when one instruction cannot do both."""
    if set(made.mask.constraints) == set(copy.mask.constraints):
        return made.mask
    use = Use(made.result, (), 0, made, False, True)
    if made.mask.constraints or not mask_is_aligned(use) or len(made.outputs) > 1:
        return None
    return copy.mask


def _read_through(
    reader: Instruction,
    name: str,
    out: list[ProgramNode | None],
    makers: dict[Tensor, int],
    last: LastUses,
) -> Instruction:
    """Lets an instruction read what its operand was copied, or transposed, from."""
    access = reader.inputs[name]
    position = makers[access.tensor]
    made = out[position]
    assert isinstance(made, Instruction)
    source = _plain_copy(made)
    if source is None and reader.opcode.product:
        source = _transposed_source(made)
    if source is None or not access.same_elements(made.result) or access.shape != source.shape:
        return reader
    if made.mask.constraints and not _masked_alike(made, reader):
        return reader
    if last.written(source.tensor) > position:
        return reader
    if any(access.tensor is source.tensor for access in reader.outputs.values()):
        return reader
    out[position] = None
    del makers[access.tensor]
    moved = replace(source, mask=access.mask)
    return replace(reader, inputs={**reader.inputs, name: moved})


def _transposed_source(made: Instruction) -> Access | None:
    if not made.opcode.transposes or not _keeps_format(made):
        return None
    data = made.inputs["data"]
    if len(data.shape) != 2 or data.indirect or data.dtype != made.result.dtype:
        return None
    return replace(data, shape=data.shape[::-1], strides=data.strides[::-1])


def _masked_alike(made: Instruction, reader: Instruction) -> bool:
    use = Use(reader.result, (), 0, reader, False, True)
    same = set(made.mask.constraints) == set(reader.mask.constraints)
    return same and mask_is_aligned(use) and not reader.opcode.product
