"""nki.isa: one call, one NeuronCore instruction, its destination first (NKI 0.3 to 0.6)."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.nki.call_conventions import Issued as NkiInstruction
from accelopt.sim.dialects.nki.isa.elementwise import (
    activation,
    activation_reduce,
    memset,
    reciprocal,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_copy_predicated,
    tensor_scalar,
    tensor_scalar_reduce,
    tensor_tensor,
)
from accelopt.sim.dialects.nki.isa.enums import (
    dge_mode,
    dma_engine,
    engine,
    get_nc_sub_version,
    get_nc_version,
    gpsimd_engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from accelopt.sim.dialects.nki.isa.indexed import (
    affine_select,
    iota,
    local_gather,
    nc_n_gather,
    nc_stream_shuffle,
    range_select,
    select_reduce,
)
from accelopt.sim.dialects.nki.isa.microscaling import nc_matmul_mx, quantize_mx
from accelopt.sim.dialects.nki.isa.products import nc_matmul, nc_transpose
from accelopt.sim.dialects.nki.isa.reductions import (
    bn_aggr,
    bn_stats,
    dropout,
    max8,
    nc_find_index8,
    nc_match_replace8,
    nonzero_with_count,
    sequence_bounds,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar_cumulative,
    tensor_tensor_scan,
)
from accelopt.sim.dialects.nki.isa.scalars import (
    register_alloc,
    register_load,
    register_move,
    register_store,
)
from accelopt.sim.dialects.nki.isa.transfers import (
    core_barrier,
    dma_compute,
    dma_copy,
    dma_transpose,
    sendrecv,
)
from accelopt.sim.dialects.nki.registers import VirtualRegister

__all__ = [
    "NkiInstruction", "VirtualRegister", "activation", "activation_reduce", "affine_select",
    "bn_aggr", "bn_stats", "core_barrier", "dge_mode", "dma_compute", "dma_copy", "dma_engine",
    "dma_transpose", "dropout", "engine", "get_nc_sub_version", "get_nc_version",
    "gpsimd_engine", "iota", "local_gather", "matmul_perf_mode", "max8", "memset",
    "nc_find_index8", "nc_match_replace8", "nc_matmul", "nc_matmul_mx", "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose", "nc_version", "nonzero_with_count", "oob_mode", "quantize_mx", "range_select",
    "reciprocal", "reduce_cmd", "register_alloc", "register_load", "register_move",
    "register_store", "scalar_engine", "scalar_tensor_tensor", "select_reduce", "sendrecv",
    "sequence_bounds", "tensor_copy", "tensor_copy_predicated", "tensor_engine",
    "tensor_partition_reduce", "tensor_reduce", "tensor_scalar", "tensor_scalar_cumulative",
    "tensor_scalar_reduce", "tensor_tensor", "tensor_tensor_scan", "unknown_engine",
    "vector_engine",
]  # fmt: skip

__getattr__ = absent_names(
    "nki.isa",
    {
        "activate2 exponential rand2": "It is trn3's; use nisa.activation and nl.rand.",
        "rng set_rng_seed rand_set_state rand_get_state": "The device's random bits are not "
        "documented; use nl.rand.",
        "topk": "It would take the order of its GpSimd routine; use nisa.max8 and its like.",
        "tensor_copy_dynamic_src tensor_copy_dynamic_dst": "Removed in NKI 0.4: use "
        "nisa.tensor_copy with .ap(scalar_offset=...).",
    },
)
