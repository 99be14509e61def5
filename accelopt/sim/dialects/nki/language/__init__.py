"""nki.language: tensors, loops, data types, and mathematics on tiles (NKI 0.3 to 0.7)."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.builder import calls_of
from accelopt.sim.dialects.neuronxcc.language.formats import fp32
from accelopt.sim.dialects.nki import tile_grids, versions
from accelopt.sim.dialects.nki.language import control, creation, mathematics
from accelopt.sim.dialects.nki.language.control import (
    NKIObject,
    affine_range,
    ds,
    dynamic_range,
    fori_loop,
    no_reorder,
    num_programs,
    program_id,
    program_ndim,
    sequential_range,
    static_range,
    while_loop,
)
from accelopt.sim.dialects.nki.language.memories import (
    MemoryRegion,
    bfloat16,
    bool_,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    hbm,
    int8,
    int16,
    int32,
    is_hbm,
    is_on_chip,
    is_psum,
    is_sbuf,
    private_hbm,
    psum,
    sbuf,
    shared_hbm,
    tfloat32,
    tile_size,
    uint8,
    uint16,
    uint32,
)
from accelopt.sim.dialects.nki.tensor import NkiTensor

tensor = NkiTensor
NkiGrid, NkiTileGrid, NkiBlockGrid = (
    tile_grids.NkiGrid,
    tile_grids.NkiTileGrid,
    tile_grids.NkiBlockGrid,
)
dtype = DType = object

_MADE = {
    **mathematics.FUNCTIONS,
    **calls_of(control, creation, tile_grids, mathematics),
    "range": affine_range,  # documented nowhere; the vendor's library writes it (mxfp_load_utils.py)
}  # fmt: skip
globals().update(_MADE)
globals().update(versions.changed("nki.language", globals()))

__all__ = [
    "DType", "MemoryRegion", "NKIObject", "NkiBlockGrid", "NkiGrid", "NkiTensor", "NkiTileGrid", "affine_range", "bfloat16", "bool_", "ds",
    "dtype", "dynamic_range", "float4_e2m1fn_x4", "float8_e4m3", "float8_e4m3fn",
    "float8_e4m3fn_x4", "float8_e5m2", "float8_e5m2_x4", "float8_e8m0fnu", "float16", "float32",
    "fori_loop", "fp32", "hbm", "int8", "int16", "int32", "is_hbm", "is_on_chip", "is_psum",
    "is_sbuf", "no_reorder", "num_programs", "private_hbm", "program_id", "program_ndim", "psum",
    "sbuf", "sequential_range", "shared_hbm", "static_range", "tensor", "tfloat32", "tile_size",
    "uint8", "uint16", "uint32", "while_loop", *_MADE,
]  # fmt: skip

__getattr__ = absent_names(
    "nki.language",
    {
        "arange mgrid": "Removed in NKI 0.2: use slices, or .ap() access patterns.",
        "par_dim": "Block dimensions were removed: the first dimension is the partition dimension; "
        "use a list of tensors.",
        "loop_reduce all_reduce atomic_rmw": "Removed in NKI 0.2: accumulate with nisa instructions "
        "(nisa.dma_compute for HBM).",
        "spmd_dim nc": "Removed in NKI 0.2: launch as kernel[2](...) on a logical core of two.",
        "static_cast": "Removed: convert with nl.copy(x, dtype).",
        "int64": "The simulated core has 32-bit numbers: use nl.int32.",
        "finfo": "Use nl.fp32.min.",
    },
    __all__,
)
