"""Programs whose on-chip tiles hold float32 in place of narrower floats.

The official `nki.simulate_kernel` computes with float32 stand-ins for bfloat16, float8 and
tfloat32, so tests written for it compare against unrounded references. Everything else here rounds
as the hardware does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.program import Instruction, Loop, Program, ProgramNode, Tensor

_NARROW = (dtypes.BFLOAT16, dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E5M2, dtypes.TFLOAT32)


def with_wide_floats(program: Program) -> Program:
    """The program with float32 in place of narrow floats on-chip; tensors that are also read as
    other bit patterns keep their format, as do tensors in HBM."""
    twins = {t: replace(t, dtype=dtypes.FLOAT32) for t in _narrow_tensors(program)}
    if not twins:
        return program
    return replace(
        program,
        body=tuple(_node(node, twins) for node in program.body),
        tensors=tuple(twins.get(t, t) for t in program.tensors),
        results=tuple(t and twins.get(t, t) for t in program.results),
    )


def _narrow_tensors(program: Program) -> set[Tensor]:
    found = {t for t in program.all_tensors() if t.buffer.on_chip and t.dtype in _NARROW}
    for _, instruction in program.walk():
        for access in (*instruction.inputs.values(), *instruction.outputs.values()):
            if access.dtype != access.tensor.dtype:
                found.discard(access.tensor)
    return found


def _node(node: ProgramNode, twins: Mapping[Tensor, Tensor]) -> ProgramNode:
    if isinstance(node, Loop):
        body = tuple(_node(child, twins) for child in node.body)
        return replace(node, body=body, tensors=tuple(twins.get(t, t) for t in node.tensors))
    attributes = dict(node.attributes)
    if _wide(node, twins):
        attributes["dtype"] = "float32"
    return replace(
        node,
        inputs={name: _access(access, twins) for name, access in node.inputs.items()},
        outputs={name: _access(access, twins) for name, access in node.outputs.items()},
        attributes=attributes,
    )


def _wide(instruction: Instruction, twins: Mapping[Tensor, Tensor]) -> bool:
    result = instruction.outputs.get("result")
    return result is not None and result.tensor in twins and "dtype" in instruction.attributes


def _access(access: Access, twins: Mapping[Tensor, Tensor]) -> Access:
    twin = twins.get(access.tensor)
    indirect = tuple(replace(i, index=_access(i.index, twins)) for i in access.indirect)
    if twin is None:
        return replace(access, indirect=indirect) if indirect else access
    return replace(access, tensor=twin, dtype=twin.dtype, indirect=indirect)
