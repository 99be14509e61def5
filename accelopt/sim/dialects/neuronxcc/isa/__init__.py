"""neuronxcc.nki.isa: one call, one NeuronCore instruction."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.isa import constants as constants
from accelopt.sim.dialects.neuronxcc.isa import neuron_isa as neuron_isa
from accelopt.sim.dialects.neuronxcc.isa.elementwise import (
    activation,
    activation_reduce,
    memset,
    reciprocal,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_copy_dynamic_dst,
    tensor_copy_dynamic_src,
    tensor_copy_predicated,
    tensor_scalar,
    tensor_scalar_reduce,
    tensor_tensor,
)
from accelopt.sim.dialects.neuronxcc.isa.enums import (
    dge_mode,
    dma_engine,
    engine,
    fp32,
    get_nc_version,
    gpsimd_engine,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    sync_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from accelopt.sim.dialects.neuronxcc.isa.indexed import (
    affine_select,
    iota,
    local_gather,
    nc_stream_shuffle,
    range_select,
    select_reduce,
)
from accelopt.sim.dialects.neuronxcc.isa.products import nc_matmul, nc_transpose
from accelopt.sim.dialects.neuronxcc.isa.reductions import (
    bn_aggr,
    bn_stats,
    dropout,
    max8,
    nc_find_index8,
    nc_match_replace8,
    sequence_bounds,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_tensor_scan,
)
from accelopt.sim.dialects.neuronxcc.isa.transfers import dma_copy, dma_transpose

__all__ = [
    "activation", "activation_reduce", "affine_select", "bn_aggr", "bn_stats", "dge_mode",
    "dma_copy", "dma_engine", "dma_transpose", "dropout", "engine", "fp32", "get_nc_version",
    "gpsimd_engine", "iota", "local_gather", "max8", "memset", "nc_find_index8",
    "nc_match_replace8", "nc_matmul", "nc_stream_shuffle", "nc_transpose", "nc_version",
    "oob_mode", "range_select", "reciprocal", "reduce_cmd", "scalar_engine",
    "scalar_tensor_tensor", "select_reduce", "sequence_bounds", "sync_engine", "tensor_copy",
    "tensor_copy_dynamic_dst", "tensor_copy_dynamic_src", "tensor_copy_predicated",
    "tensor_engine", "tensor_partition_reduce", "tensor_reduce", "tensor_scalar",
    "tensor_scalar_reduce", "tensor_tensor", "tensor_tensor_scan", "unknown_engine",
    "vector_engine",
]  # fmt: skip

__getattr__ = absent_names(
    "nisa",
    "builtin_custom_op core_barrier dma_compute nc_n_gather register_alloc register_load "
    "register_move register_store rng select_reduce_max sendrecv set_rng_seed tensor_scalar_cumulative "
    "nc_matmul_mx quantize_mx activation_accu",
)
