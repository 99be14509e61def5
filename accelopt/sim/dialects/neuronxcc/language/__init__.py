"""neuronxcc.nki.language: tensors, loops, data movement and mathematics on tiles."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.builder import names_of
from accelopt.sim.dialects.neuronxcc.language import (
    constants,
    control,
    creation,
    elementwise,
    formats,
    movement,
    reductions,
)
from accelopt.sim.dialects.neuronxcc.neuronxcc_tensor import NeuronxccTensor

elementwise.give_operators(NeuronxccTensor)
_NAMES = names_of(control, creation, elementwise, formats, movement, reductions)
globals().update(_NAMES)
__all__ = [*_NAMES, "constants"]

__getattr__ = absent_names(
    "nl",
    "gemm_grid gemm_stationary_grid nki_dtype simulate fori_loop while_loop "
    "dynamic_range core_barrier",
    __all__,
)
