"""Enumerations of the instruction set (SDK 2.26.1 `nki.isa`)."""

from __future__ import annotations

from enum import IntEnum

from accelopt.hardware import TARGETS
from accelopt.sim.dialects.neuronxcc.isa.checks import FP32_MIN
from accelopt.sim.tracer import active

__all__ = [
    "dge_mode", "dma_engine", "engine", "fp32", "get_nc_version", "gpsimd_engine", "nc_version",
    "oob_mode", "reduce_cmd", "scalar_engine", "sync_engine", "tensor_engine", "unknown_engine",
    "vector_engine",
]  # fmt: skip

engine = IntEnum(
    "engine", {"tensor": 1, "vector": 5, "scalar": 2, "gpsimd": 3, "sync": 6, "unknown": 0}
)
"""Which engine runs an instruction."""

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
sync_engine = engine.sync
unknown_engine = engine.unknown
dma_engine = engine.sync

reduce_cmd = IntEnum("reduce_cmd", {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3})
"""What an instruction does with the 128 accumulation registers."""

oob_mode = IntEnum("oob_mode", {"error": 0, "skip": 1})
"""What a run-time index outside of its tensor does."""

dge_mode = IntEnum("dge_mode", {"none": 0, "swdge": 1, "hwdge": 2, "unknown": 3})
"""Who makes DMA descriptors."""

nc_version = IntEnum("nc_version", {"gen2": 2, "gen3": 3, "gen4": 4})
"""Generation of the NeuronCore."""


class fp32:
    """Constants of float32."""

    min = FP32_MIN


def get_nc_version() -> nc_version:
    """The generation that the kernel is compiled for; on the host that of trn1."""
    tracer = active()
    return nc_version(TARGETS["trn1" if tracer is None else tracer.target].generation)
