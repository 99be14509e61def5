"""Tiles whose contents are known before anything runs: loaded from a constant, or set to a number.

Kernels keep an identity matrix for transposing on the Tensor engine, and a tile of zeros as the
bias of activations. Knowing them saves multiplying by one and adding zero.
"""

from __future__ import annotations

import math

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.compute.analysis.uses import Use
from accelopt.sim.program import Tensor


class Constants:
    """The tensors of a program whose contents never change once they are first read."""

    def __init__(self, uses_by_tensor: dict[Tensor, list[Use]]) -> None:
        self._writers: dict[Tensor, Use] = {}
        for tensor, uses in uses_by_tensor.items():
            writes = [use for use in uses if use.writes]
            if len(writes) == 1 and _sets_once(writes[0], uses):
                self._writers[tensor] = writes[0]

    def number(self, access: Access) -> float | None:
        """The number that every element of a tile is, if that is known."""
        writer = self._writers.get(access.tensor)
        if writer is None or not writer.instruction.opcode.fills:
            return None
        value = writer.instruction.attributes["value"]
        return float(value) if isinstance(value, (int, float)) else None

    def is_identity(self, access: Access) -> bool:
        """True when a tile is known to be a square identity matrix."""
        writer = self._writers.get(access.tensor)
        if writer is None or not writer.instruction.opcode.transfers:
            return False
        source = writer.instruction.inputs["source"]
        data = source.tensor.data
        whole = source.offset.is_constant and source.offset.constant == 0
        if data is None or not whole or len(access.shape) != 2 or access.dtype.kind not in "fV":
            return False
        if access.shape != data.shape or access.shape[0] != access.shape[1]:
            return False
        same = all(
            item.shape == data.shape and item.strides == (data.shape[1], 1)
            for item in (source, writer.access, access)
        )
        return same and np.array_equal(data.astype(np.float32), np.eye(data.shape[0]))


def _sets_once(write: Use, uses: list[Use]) -> bool:
    """True for a whole write at top level, before every read."""
    access, tensor = write.access, write.access.tensor
    whole = access.elements == math.prod(tensor.shape) and not access.offset.constant
    plain = not write.loops and not write.instruction.mask.constraints and write.covers
    opcode = write.instruction.opcode
    simple = opcode.fills or (opcode.transfers and access.dtype == dtypes.FLOAT32)
    first = all(use.order > write.order for use in uses if use is not write)
    return whole and plain and simple and first and access.dtype == tensor.dtype
