"""neuronxcc.nki.language: tensors, loops, data movement and mathematics on tiles."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.builder import calls_of
from accelopt.sim.dialects.neuronxcc.language import (
    constants,
    control,
    creation,
    elementwise,
    movement,
    reductions,
)
from accelopt.sim.dialects.neuronxcc.language.control import (
    arange,
    ds,
    mgrid,
    nc,
    num_programs,
    program_id,
    program_ndim,
    spmd_dim,
)
from accelopt.sim.dialects.neuronxcc.language.creation import (
    hbm,
    par_dim,
    private_hbm,
    psum,
    sbuf,
    shared_hbm,
)
from accelopt.sim.dialects.neuronxcc.language.formats import (
    bfloat16,
    bfp16,
    bool_,
    finfo,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    fp32,
    int8,
    int16,
    int32,
    tfloat32,
    tile_size,
    uint8,
    uint16,
    uint32,
)
from accelopt.sim.dialects.neuronxcc.language.movement import static_cast
from accelopt.sim.dialects.neuronxcc.neuronxcc_tensor import NeuronxccTensor

elementwise.give_operators(NeuronxccTensor)
_CALLS = calls_of(control, creation, elementwise, movement, reductions)
globals().update(_CALLS)

__all__ = [
    "arange", "bfloat16", "bfp16", "bool_", "constants", "ds", "finfo", "float8_e4m3",
    "float8_e5m2", "float16", "float32", "fp32", "hbm", "int8", "int16", "int32", "mgrid", "nc",
    "num_programs", "par_dim", "private_hbm", "program_id", "program_ndim", "psum", "sbuf",
    "shared_hbm", "spmd_dim", "static_cast", "tfloat32", "tile_size", "uint8", "uint16", "uint32",
    *_CALLS,
]  # fmt: skip

__getattr__ = absent_names(
    "nl",
    "gemm_grid gemm_stationary_grid nki_dtype simulate fori_loop while_loop "
    "dynamic_range core_barrier",
    __all__,
)
