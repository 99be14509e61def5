"""Number formats and constants of nki.language."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.isa import limits

__all__ = [
    "bfloat16", "bfp16", "bool_", "finfo", "float8_e4m3", "float8_e5m2", "float16", "float32", "fp32",
    "int8", "int16", "int32", "tfloat32", "tile_size", "uint8", "uint16", "uint32",
]  # fmt: skip

float32 = np.float32
float16 = np.float16
bfloat16 = dtypes.BFLOAT16
tfloat32 = dtypes.TFLOAT32
float8_e4m3 = dtypes.FLOAT8_E4M3
float8_e5m2 = dtypes.FLOAT8_E5M2
int8, int16, int32 = np.int8, np.int16, np.int32
uint8, uint16, uint32 = np.uint8, np.uint16, np.uint32
bool_ = np.bool_


class TileLimits:
    """Limits of tiles on every generation (SDK 2.26.1 `nl.tile_size`, the direct allocation guide)."""

    pmax = limits.MAX_PARTITIONS
    psum_fmax = limits.PSUM_BANK_BYTES // 4
    gemm_stationary_fmax = limits.MAX_STATIONARY_FREE
    gemm_moving_fmax = limits.MAX_MOVING_FREE
    bn_stats_fmax = limits.MAX_BN_STATS_FREE
    psum_min_align = 4
    sbuf_min_align = 1


class tile_size(TileLimits):
    """Limits of tiles, with the SBUF that the direct allocation guide says."""

    total_available_sbuf_size = limits.USABLE_SBUF_BYTES


class FormatLimits:
    """The finite range of a floating-point format."""

    def __init__(self, dtype: Any) -> None:
        import ml_dtypes

        information = ml_dtypes.finfo(dtypes.stored(dtypes.parse(dtype)))
        self.dtype = dtypes.parse(dtype)
        self.min = float(information.min)
        self.max = float(information.max)
        self.eps = float(information.eps)
        self.tiny = float(information.tiny)


def finfo(dtype: Any) -> FormatLimits:
    """min, max, eps and tiny of a floating-point format."""
    return FormatLimits(dtype)


class fp32:
    """Constants of float32: the bit pattern 0xff7fffff."""

    min = float(np.finfo(np.float32).min)
    max = float(np.finfo(np.float32).max)


class bfp16:
    """Constants of bfloat16: the bit pattern 0xff80, which is minus infinity."""

    min = float("-inf")
