"""Distinct bytes of its inputs and results that a Program moves, whatever else it does.

Counted from addresses: an element of an argument that some instruction reads and that may reach a result,
and one of a result that some instruction writes. Run-time indices, masks and bytes in another format are
passed over, so that no way of running the Program moves less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.program import Instruction, Loop, Program, Tensor
from accelopt.sim.unused_inputs import unused


class LeastBytes(NamedTuple):
    """Bytes of arguments that are read, of results that are written, and of those the ones that may be
    copies of what an argument holds."""

    read: int
    written: int
    copied: int


class _Use(NamedTuple):
    """An access whose addresses are known when the kernel is compiled, in all iterations of its loops."""

    access: Access
    loops: tuple[Loop, ...]
    copies: bool  # what an argument holds, as far as its tensors tell


def least_bytes(program: Program) -> LeastBytes:
    """What must be moved between HBM and the core at least."""
    kept, reads, writes = _copies(program), list[_Use](), list[_Use]()
    for loops, instruction in program.walk():
        if not instruction.mask.constraints:
            copies = _copies_one(instruction, kept)
            reads += [_Use(access, loops, copies) for access in instruction.inputs.values()]
            writes += [_Use(access, loops, copies) for access in instruction.outputs.values()]
    read = 0
    for tensor, missing in zip(program.arguments, unused(program), strict=True):
        reached = _reached(tensor, reads)
        needed = reached if missing is None else reached & ~missing.reshape(-1)
        read += int(np.count_nonzero(needed)) * tensor.dtype.itemsize
    results = {tensor for tensor in program.results if tensor is not None}
    written, copied = (
        sum(int(np.count_nonzero(_reached(t, some))) * t.dtype.itemsize for t in results)
        for some in (writes, [use for use in writes if use.copies])
    )
    return LeastBytes(read, written, copied)


def _copies(program: Program) -> set[Tensor]:
    """The tensors that hold nothing but numbers of the arguments."""
    found = {a.tensor for _, one in program.walk() for a in one.outputs.values()}
    grows = True
    while grows:
        known = found | set(program.arguments)
        computed = {
            access.tensor
            for _, instruction in program.walk()
            if not _copies_one(instruction, known)
            for access in instruction.outputs.values()
        }
        grows = bool(found & computed)
        found -= computed
    return found | set(program.arguments)


def _copies_one(instruction: Instruction, copies: set[Tensor]) -> bool:
    return (
        bool(instruction.opcode.copied)
        and not instruction.attributes.get("accumulate")
        and all(access.tensor in copies for access in instruction.inputs.values())
    )


def _reached(tensor: Tensor, uses: Iterable[_Use]) -> np.ndarray:
    """The elements of a tensor in HBM that some use reaches, bool of (elements,)."""
    marks: np.ndarray = np.zeros(math.prod(tensor.shape), bool)
    for access, loops, _ in uses:
        known = access.dtype == tensor.dtype and access.offset.is_affine
        if access.tensor is tensor and known and not (access.indirect or access.mask.constraints):
            _mark(marks, access, loops)
    return marks


def _mark(marks: np.ndarray, access: Access, loops: tuple[Loop, ...]) -> None:
    moving = [v for v in (loop.variable for loop in loops) if v in access.loop_variables]
    start = access.offset.constant + sum(access.offset.coefficient(v) * v.start for v in moving)
    steps = (*(access.offset.coefficient(v) * v.step for v in moving), *access.strides)
    shape = (*(v.trips for v in moving), *access.shape)
    reach = [step * (n - 1) for step, n in zip(steps, shape, strict=True)]
    low, high = start + sum(min(r, 0) for r in reach), start + sum(max(r, 0) for r in reach)
    if 0 not in shape and low >= 0 and high < marks.size:
        np.lib.stride_tricks.as_strided(marks[start:], shape, steps)[...] = True
