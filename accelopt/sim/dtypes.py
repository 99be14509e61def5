"""NKI number formats as NumPy dtypes, and how they promote (S24)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

float32 = np.dtype(np.float32)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3 = np.dtype(ml_dtypes.float8_e4m3)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)


def as_dtype(value: Any) -> np.dtype:
    """Any spelling of a dtype."""
    if isinstance(value, str) and value in ("bfloat16", "float8_e4m3", "float8_e5m2"):
        return np.dtype(getattr(ml_dtypes, value))
    return np.dtype(value)


def scalar_dtype(value: Any) -> np.dtype:
    """What a Python number promotes as: bool uint8, int int32, float float32."""
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, bool):
        return np.dtype(np.uint8)
    return np.dtype(np.int32) if isinstance(value, int) else float32


def is_float(dtype: np.dtype) -> bool:
    """True for every floating format, ml_dtypes' included."""
    return dtype.kind == "f" or dtype in (bfloat16, float8_e4m3, float8_e5m2)


def promote(first: np.dtype, second: np.dtype) -> np.dtype:
    """The dtype of an operation on two formats: float beats int, wider beats narrower."""
    if first == second:
        return first
    if is_float(first) != is_float(second):
        return first if is_float(first) else second
    if is_float(first):
        if first.itemsize != second.itemsize:
            return first if first.itemsize > second.itemsize else second
        return float32 if first.itemsize == 2 else bfloat16
    common = np.promote_types(first, second)
    return float32 if common.itemsize > 4 else common


def result_of(op: str, promoted: np.dtype) -> np.dtype:
    """Comparisons give bool, everything else the promoted dtype."""
    comparing = op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    return np.dtype(np.bool_) if comparing or op.startswith("logical_") else promoted
