"""Enumerations of nki.isa (SDK 2.32 `nki/api/nki/isa`): members only, numbers do not stand for them."""

from __future__ import annotations

import functools
from enum import Enum

from accelopt.hardware import TARGETS
from accelopt.sim.dialects.nki.language.memories import DEFAULT_TARGET
from accelopt.sim.tracer import active

__all__ = [
    "dge_mode", "dma_engine", "engine", "get_nc_sub_version", "get_nc_version", "gpsimd_engine",
    "matmul_perf_mode", "nc_version", "oob_mode", "reduce_cmd", "scalar_engine", "tensor_engine",
    "unknown_engine", "vector_engine",
]  # fmt: skip

engine = Enum(
    "engine",
    {"tensor": 1, "vector": 5, "scalar": 2, "gpsimd": 3, "dma": 4, "sync": 6, "unknown": 0},
)
"""Which engine runs an instruction."""

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown

reduce_cmd = Enum(
    "reduce_cmd", {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3, "load_reduce": 4}
)
"""What an instruction does with the 128 accumulation registers."""

dge_mode = Enum("dge_mode", {"unknown": 0, "swdge": 1, "hwdge": 2, "none": 3})
"""Who makes DMA descriptors."""

oob_mode = Enum("oob_mode", {"error": 0, "skip": 1})
"""What a run-time index outside of its tensor does."""

matmul_perf_mode = Enum("matmul_perf_mode", {"none": "none", "double_row": "double_row"})
"""Whether the Tensor engine takes two rows of 8-bit operands a cycle."""


@functools.total_ordering
class nc_version(Enum):
    """Generation of the NeuronCore."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __lt__(self, other: nc_version) -> bool:
        return bool(self.value < other.value)


dma_engine = Enum("dma_engine", {"dma": 1, "gpsimd_dma": 2})
"""Which DMA moves data between cores."""


def get_nc_version() -> nc_version:
    """The generation that the kernel is traced for."""
    tracer = active()
    return nc_version(TARGETS[DEFAULT_TARGET if tracer is None else tracer.target].generation)


def get_nc_sub_version() -> int:
    """The first revision."""
    return 0
