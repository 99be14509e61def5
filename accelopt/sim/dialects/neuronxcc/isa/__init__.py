"""neuronxcc.nki.isa: one call, one NeuronCore instruction."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.builder import names_of
from accelopt.sim.dialects.neuronxcc.isa import constants as constants
from accelopt.sim.dialects.neuronxcc.isa import (
    elementwise,
    enums,
    indexed,
    products,
    reductions,
    transfers,
)
from accelopt.sim.dialects.neuronxcc.isa import neuron_isa as neuron_isa

_NAMES = names_of(elementwise, enums, indexed, products, reductions, transfers)
globals().update(_NAMES)
__all__ = [*_NAMES]

__getattr__ = absent_names(
    "nisa",
    "builtin_custom_op core_barrier dma_compute nc_n_gather register_alloc register_load "
    "register_move register_store rng select_reduce_max sendrecv set_rng_seed tensor_scalar_cumulative "
    "nc_matmul_mx quantize_mx activation_accu",
    __all__,
)
