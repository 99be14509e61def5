"""Rules that every single instruction keeps: who runs it, where its operands lie, how large they are.

The tracer refuses what breaks them with the better message, as `nki/builder.py` emits. A Program that
came from elsewhere may never have met it: here the same is proven from the Program alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from accelopt.sim.access import Access
from accelopt.sim.dtypes import is_packed, name_of
from accelopt.sim.errors import KernelError
from accelopt.sim.isa.limits import (
    MAX_FREE_IN_PSUM,
    MAX_FREE_IN_SBUF,
    MAX_PARTITIONS,
    SHARING,
    SHARING_TENSOR,
    TILE,
)
from accelopt.sim.isa.matrix import ROWS_AT_ONCE
from accelopt.sim.isa.shapes import into_result, one_each
from accelopt.sim.microscaling import QUADRANT
from accelopt.sim.program import Buffer, Engine, Instruction, Program


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
            for item in access.indirect:
                if item.group:  # no two are taken for one
                    form.append(instruction)
    return tuple(form)


def _problems(instruction: Instruction) -> Iterator[str]:
    opcode, engine = instruction.opcode, instruction.engine
    if engine not in (*opcode.engines, Engine.UNASSIGNED) and not _on_registers(instruction):
        yield f"cannot run on the {engine.value} engine"
    for name, access in (*instruction.outputs.items(), *instruction.inputs.items()):
        if any(item.group for item in access.indirect):
            yield from _indirection(instruction, name, access)
        if access.tensor.buffer.on_chip:
            yield from _on_chip(instruction, name, access)
        elif not opcode.reaches_hbm:
            yield f"cannot reach its operand {name} in HBM"
    yield from _misfits(instruction)


def _on_registers(instruction: Instruction) -> bool:
    """True where a register is read or written: by the sequencers."""
    accesses = (*instruction.outputs.values(), *instruction.inputs.values())
    return instruction.engine is Engine.SYNC and any(
        access.tensor.buffer is Buffer.REGISTER for access in accesses
    )


def _misfits(instruction: Instruction) -> Iterator[str]:
    """Formats that an operand cannot have, and shapes that do not fit each other."""
    opcode = instruction.opcode
    for name, access in (*instruction.inputs.items(), *instruction.outputs.items()):
        allowed = opcode.limits.get(name, TILE).formats
        if allowed and access.dtype not in allowed:
            yield f"has an operand {name} of {name_of(access.dtype)}"
        if is_packed(access.dtype) and not _takes_packed(instruction):
            yield (
                f"has an operand {name} of {name_of(access.dtype)}: packed elements are multiplied, "
                "copied as they are and set to 0"
            )
    yield from (opcode.fits or into_result)(instruction)
    reduced = instruction.outputs.get("reduce_result")
    if reduced is not None and reduced.shape != one_each(instruction.result.shape[:1], reduced):
        yield f"has a reduce_result of {reduced.shape} for {instruction.result.shape}"


def _takes_packed(instruction: Instruction) -> bool:
    opcode, attributes = instruction.opcode, instruction.attributes
    if not opcode.packed or opcode.limits:  # whose formats say it
        return opcode.packed
    if opcode.fills:
        return attributes.get("value") == 0
    formats = {a.dtype for a in (*instruction.inputs.values(), instruction.result)}
    return len(formats) == 1 and not attributes.get("accumulate")


def _indirection(instruction: Instruction, name: str, access: Access) -> Iterator[str]:
    """Tensor indirection: who takes it, and where indices lie (the pages of SDK 2.32). That a group of
    partitions is whole and has as many indices as elements follows from where the page finds them."""
    opcode, group = instruction.opcode, SHARING_TENSOR if instruction.opcode.product else SHARING
    engine = opcode.engine if instruction.engine is Engine.UNASSIGNED else instruction.engine
    if name not in opcode.indirect or (opcode.copied and engine is Engine.GPSIMD):
        yield f"takes no operand {name} by tensor indirection"
    if name == "result" and engine is Engine.SCALAR and access.tensor.buffer is Buffer.PSUM:
        yield "cannot scatter into PSUM on the scalar engine"
    if name == "moving" and instruction.attributes.get("is_transpose"):
        yield "takes no operand moving by tensor indirection where it transposes"
    if opcode.product and name != "result" and access.dtype.itemsize > 2:
        yield f"takes no operand {name} of {name_of(access.dtype)} by tensor indirection"
    for item in access.indirect:
        index, most = item.index, group * item.index.free_elements
        if index.tensor.buffer is not Buffer.SBUF or index.dtype.kind not in "iu":
            yield f"has indices of its operand {name} in {index.tensor.buffer.value}, {name_of(index.dtype)}"
        if item.group != group or len(access.indirect) > 1 or index.indirect:
            yield f"has indices of its operand {name} for {item.group} partitions, not {group}"
        elif access.partitions % group or index.partitions != access.partitions:
            yield (
                f"shares indices of its operand {name} in groups of {group} partitions: "
                f"{access.shape} by {index.shape} has other ones"
            )
        elif access.free_elements > most:
            yield (
                f"finds {most} indices of its operand {name} in {index.shape}, {group} partitions "
                f"together, not {access.free_elements}: pass num_elem"
            )
        if instruction.mask.constraints or access.mask.constraints:
            yield f"has a mask beside the indices of its operand {name}"
        yield from _bases(instruction, name, access, index)


def _bases(instruction: Instruction, name: str, access: Access, index: Access) -> Iterator[str]:
    """Where indices of direct allocations begin: on a quadrant, beside what they gather; of a scatter,
    beside the operand that is scattered, in PSUM beside its indices."""
    at = _partition(index)
    if at is None:
        return
    if at % QUADRANT:
        yield f"has indices of its operand {name} from partition {at} on, no multiple of {QUADRANT}"
    beside: Access | None = access
    if name == "result":
        given = (instruction.inputs[n] for n in instruction.opcode.indirect if n != "result")
        beside = next(given)
        if beside.tensor.buffer is Buffer.PSUM:
            beside = beside.indirect[0].index if beside.indirect else None
    other = None if beside is None else _partition(beside)
    if other not in (None, at):
        yield f"has indices of its operand {name} from partition {at} on, and the operand from {other} on"


def _partition(access: Access) -> int | None:
    """The first partition of a tile that the kernel placed; None for others."""
    placement, row = access.tensor.placement, access.row
    if placement is None or placement.partitions.ndim or access.offset.terms or not row:
        return None
    return int(placement.partitions) + access.offset.constant // row


def _on_chip(instruction: Instruction, name: str, access: Access) -> Iterator[str]:
    opcode, tensor = instruction.opcode, access.tensor
    if max(access.partitions, tensor.tile_shape[0]) > MAX_PARTITIONS:
        yield f"has an operand {name} of {max(access.partitions, tensor.tile_shape[0])} partitions"
    limits, in_psum = opcode.limits.get(name, TILE), tensor.buffer is Buffer.PSUM
    if not (limits.psum if in_psum else limits.sbuf):
        yield f"needs its operand {name} in {limits.memories}"
    if opcode.transfers:
        return  # descriptors reach every byte, in any order
    most = limits.free or (MAX_FREE_IN_PSUM if in_psum else MAX_FREE_IN_SBUF)
    if name == "moving" and is_packed(access.dtype):
        most = MAX_FREE_IN_PSUM
    if name != "result" and instruction.attributes.get("perf_mode"):
        most *= ROWS_AT_ONCE
    if access.free_elements > most:
        yield f"has an operand {name} of {access.free_elements} elements a partition, at most {most}"
    row = access.row
    if row == 0:
        yield f"has an operand {name} whose elements are wider than a row of its tensor"
        return
    if access.partitions > 1 and access.strides[0] % row:
        yield f"has an operand {name} whose partitions are not those of its tensor"
    reach = sum(abs(s) * (n - 1) for s, n in zip(access.strides[1:], access.shape[1:], strict=True))
    masked = instruction.mask.constraints or access.mask.constraints  # may end the row
    if reach >= row and not access.indirect and not masked:
        yield f"has an operand {name} that runs from one partition into the next"
