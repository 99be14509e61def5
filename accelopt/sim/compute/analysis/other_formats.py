"""Programs whose tensors hold a wider format than was asked for.

The official `nki.simulate_kernel` computes with float32 stand-ins for bfloat16, float8 and
tfloat32. A program in float64 tells what float32 rounds from what is computed otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.program import Loop, Program, ProgramNode, Tensor, rewritten, with_accesses

_NARROW = (dtypes.BFLOAT16, dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E5M2, dtypes.TFLOAT32)


def with_wide_floats(program: Program) -> Program:
    """The program with float32 in place of narrow floats on-chip; tensors that are also read as
    other bit patterns keep their format, as do tensors in HBM."""
    narrow = {t for t in program.all_tensors() if t.buffer.on_chip and t.dtype in _NARROW}
    return _with(program, narrow, dtypes.FLOAT32)


def in_single(program: Program, wanted: Callable[[Tensor], bool]) -> Program:
    """The same of those `wanted`, in HBM too, but for arguments and results."""
    given = {*program.arguments, *program.results}
    narrow = {t for t in program.all_tensors() if t.dtype in _NARROW and wanted(t)} - given
    return _with(program, narrow, dtypes.FLOAT32)


def unrounded(program: Program) -> Program:
    """The program with float32 in place of all narrow floats, results included, but for arguments."""
    narrow = {t for t in program.all_tensors() if t.dtype in _NARROW} - {*program.arguments}
    return _with(program, narrow, dtypes.FLOAT32)


def in_double(program: Program) -> Program:
    """The program with float64 in place of float32, arguments and results included; tensors that are also
    read as other bit patterns keep their format."""
    single = {t for t in program.all_tensors() if t.dtype == dtypes.FLOAT32}
    return _with(program, single, dtypes.FLOAT64)


def _with(program: Program, tensors: Iterable[Tensor], dtype: np.dtype) -> Program:
    kept = {
        access.tensor
        for _, instruction in program.walk()
        for access in (*instruction.inputs.values(), *instruction.outputs.values())
        if access.dtype != access.tensor.dtype
    }
    twins = {t: replace(t, dtype=dtype) for t in tensors if t not in kept}
    if not twins:
        return program
    return replace(
        program,
        arguments=tuple(twins.get(t, t) for t in program.arguments),
        body=rewritten(program.body, partial(_node, twins=twins)),
        tensors=tuple(twins.get(t, t) for t in program.tensors),
        results=tuple(t and twins.get(t, t) for t in program.results),
    )


def _node(node: ProgramNode, twins: Mapping[Tensor, Tensor]) -> ProgramNode:
    if isinstance(node, Loop):
        return replace(node, tensors=tuple(twins.get(t, t) for t in node.tensors))
    attributes, result = dict(node.attributes), node.outputs.get("result")
    twin = None if result is None else twins.get(result.tensor)
    # What narrow formats round on the way to float64 stays rounded.
    if twin and (twin.dtype == dtypes.FLOAT32 or attributes.get("dtype") == "float32"):
        attributes.pop("dtype", None)
    return replace(with_accesses(node, partial(_access, twins=twins)), attributes=attributes)


def _access(access: Access, twins: Mapping[Tensor, Tensor]) -> Access:
    twin = twins.get(access.tensor)
    return access if twin is None else replace(access, tensor=twin, dtype=twin.dtype)
