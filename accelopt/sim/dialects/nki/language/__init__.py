"""nki.language: tensors, loops, data types, and mathematics on tiles (NKI 0.3 to 0.7)."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.builder import names_of
from accelopt.sim.dialects.neuronxcc.language.formats import fp32
from accelopt.sim.dialects.nki import tile_grids, versions
from accelopt.sim.dialects.nki.language import control, creation, mathematics, memories
from accelopt.sim.dialects.nki.tensor import NkiTensor

tensor = NkiTensor
NkiGrid, NkiTileGrid, NkiBlockGrid = (
    tile_grids.NkiGrid,
    tile_grids.NkiTileGrid,
    tile_grids.NkiBlockGrid,
)
dtype = DType = object

_NAMES = {
    **mathematics.FUNCTIONS,
    **names_of(control, creation, memories, tile_grids, mathematics),
    "range": control.affine_range,  # documented nowhere; the vendor's library writes it (mxfp_load_utils.py)
}  # fmt: skip
globals().update(_NAMES)
globals().update(versions.changed("nki.language", globals()))
__all__ = [
    "DType", "NkiBlockGrid", "NkiGrid", "NkiTensor", "NkiTileGrid", "dtype", "fp32", "tensor", *_NAMES,
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
