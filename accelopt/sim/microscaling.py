"""The arithmetic of microscaling (MX) formats: groups of 32 elements with one scale, a power of two.

A group is 8 partitions of 4 elements each, which are one packed element. Sources: SDK 2.32
`nisa.quantize_mx`, `nisa.nc_matmul_mx`, `nki/deep-dives/mxfp-matmul.rst`, trainium3_arch.rst; OCP
Microscaling Formats 1.0 for the meaning of elements and scales. Documented nowhere and assumed: scales
beyond 2^-127 and 2^127 saturate, and a group with NaN or an infinity has the scale NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from accelopt.sim.dtypes import FLOAT4_E2M1FN_X4, FLOAT8_E4M3FN_X4, FLOAT8_E5M2_X4

PACKED = 4
GROUP_PARTITIONS = 8
QUADRANT = 32
"""Partitions whose scales lie together, in the same quadrant as they do."""
QUADRANTS = 4
SCALES = QUADRANT // GROUP_PARTITIONS
"""Partitions with scales, of each quadrant."""
SCALE_STARTS = (0, 4, 8, 12)
"""Where in a quadrant scales may begin: those of up to four tensors share a tile."""
BIAS, NO_NUMBER = 127, 0xFF
"""Of a scale: its exponent is the byte less BIAS."""
GREATEST_EXPONENT = {FLOAT8_E4M3FN_X4: 8, FLOAT8_E5M2_X4: 15}
"""Of the elements that `quantize_mx` writes."""


def pack(elements: Any, form: np.dtype) -> np.ndarray:
    """Numbers (..., 4 n), rounded to nearest even, as (..., n) packed elements."""
    if form == FLOAT4_E2M1FN_X4:
        bits = np.asarray(elements).astype(np.float32).astype(ml_dtypes.float4_e2m1fn)
        halves = bits.view(np.uint8) & 0xF
        return np.ascontiguousarray(halves[..., ::2] | halves[..., 1::2] << 4).view(form)
    narrow = np.asarray(elements).astype(np.float32).astype(form[0].base)
    return np.ascontiguousarray(narrow).view(form)


def unpack(packed: np.ndarray) -> np.ndarray:
    """Packed elements (...) as numbers (..., 4), float32."""
    field = packed.dtype.names[0]  # type: ignore[index]
    held = packed[field]
    if packed.dtype == FLOAT4_E2M1FN_X4:
        halves = np.stack((held & 0xF, held >> 4), axis=-1).reshape(*packed.shape, PACKED)
        held = halves.view(ml_dtypes.float4_e2m1fn)
    return np.asarray(held.astype(np.float32))


def quantize(values: np.ndarray, form: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (P, 4 n), float32, as packed elements (P, n) and the scales (P / 8, n), uint8. A scale is
    2^(floor(log2(largest magnitude)) - (greatest exponent - 1)); that of a group of zeros is 2^-127."""
    groups = values.reshape(len(values) // GROUP_PARTITIONS, GROUP_PARTITIONS, -1, PACKED)
    largest = np.abs(groups).max(axis=(1, 3))
    _, exponent = np.frexp(largest)  # largest = m * 2^exponent with m in [0.5, 1)
    scale = np.clip(exponent - 1 - (GREATEST_EXPONENT[form] - 1), -BIAS, BIAS)
    scale = np.where(largest == 0, -BIAS, scale)
    codes = np.where(np.isfinite(largest), scale + BIAS, NO_NUMBER).astype(np.uint8)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.ldexp(groups.astype(np.float64), -scale[:, None, :, None])
    return pack(scaled.reshape(values.shape), form), codes


def dequantize(packed: np.ndarray, scales: Sequence[np.ndarray]) -> np.ndarray:
    """Packed elements (P, n) times their scales, one array (4, n) of bytes for each 32 partitions, as
    numbers (P, n, 4), float32."""
    codes = np.concatenate([part.view(np.uint8) for part in scales]).repeat(
        GROUP_PARTITIONS, axis=0
    )
    factors = np.ldexp(np.float32(1), codes.astype(np.int32) - BIAS)
    factors = np.where(codes == NO_NUMBER, np.float32(np.nan), factors)
    numbers: np.ndarray = unpack(packed) * factors[..., None].astype(np.float32)
    return numbers
