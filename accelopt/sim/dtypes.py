"""NKI number formats, the promotion rules between them, and conversion as the engines do it.

Formats are NumPy dtypes (ml_dtypes where NumPy has none). Sources: "Supported Data Types" and "NKI
Type Promotion" of the SDK 2.26.1 page `nki.api.shared.rst`; float8_e4m3 is the IEEE-style format
whose largest number is 240; conversions to integers round to nearest even and saturate, as the
official simulator has done since release 0.6.0.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
"""No format of a core: what a program may be executed in where float32's rounding is to be told from the rest."""
FLOAT16 = np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TFLOAT32 = np.dtype("V4")
"""1 sign, 8 exponent, 10 mantissa bits; arrays hold it as float32 with the low 13 bits zero."""
FLOAT8_E4M3 = np.dtype(ml_dtypes.float8_e4m3)
FLOAT8_E4M3FN = np.dtype(ml_dtypes.float8_e4m3fn)
"""The OCP format without infinities, up to 448 (the `nki` package, trn3)."""
FLOAT8_E5M2 = np.dtype(ml_dtypes.float8_e5m2)
FLOAT8_E8M0FNU = np.dtype(ml_dtypes.float8_e8m0fnu)
"""Powers of two, 2^-127 to 2^127, 0xFF is NaN: the scale of a group of microscaling elements."""
FLOAT8_E4M3FN_X4 = np.dtype([("float8_e4m3fn_x4", FLOAT8_E4M3FN, (4,))])
FLOAT8_E5M2_X4 = np.dtype([("float8_e5m2_x4", FLOAT8_E5M2, (4,))])
FLOAT4_E2M1FN_X4 = np.dtype([("float4_e2m1fn_x4", np.uint8, (2,))])
"""Four elements in one, the first in the lowest bits (trn3; `microscaling` says what they mean)."""
INT8, INT16, INT32 = np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32)
UINT8, UINT16, UINT32 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32)
BOOL = np.dtype(np.bool_)

FORMATS: dict[str, np.dtype] = {
    "float32": FLOAT32,
    "tfloat32": TFLOAT32,
    "float16": FLOAT16,
    "bfloat16": BFLOAT16,
    "float8_e4m3": FLOAT8_E4M3,
    "float8_e4m3fn": FLOAT8_E4M3FN,
    "float8_e5m2": FLOAT8_E5M2,
    "float8_e8m0fnu": FLOAT8_E8M0FNU,
    "float8_e4m3fn_x4": FLOAT8_E4M3FN_X4,
    "float8_e5m2_x4": FLOAT8_E5M2_X4,
    "float4_e2m1fn_x4": FLOAT4_E2M1FN_X4,
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "uint8": UINT8,
    "uint16": UINT16,
    "uint32": UINT32,
    "bool": BOOL,
}
"""Every format by its NKI name."""

PACKED = (FLOAT8_E4M3FN_X4, FLOAT8_E5M2_X4, FLOAT4_E2M1FN_X4)
_NAMES = {dtype: name for name, dtype in FORMATS.items()}
_BY_SCALAR_TYPE = {dtype.type: dtype for dtype in FORMATS.values() if dtype.type is not np.void}
_FLOATS = (
    FLOAT64, FLOAT32, TFLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT8_E8M0FNU,
)  # fmt: skip


def parse(value: object) -> np.dtype:
    """The format for an NKI name, a NumPy dtype or a scalar type; TypeError for any other."""
    if isinstance(value, np.dtype) and value in _NAMES:
        return value
    if isinstance(value, type) and value in _BY_SCALAR_TYPE:
        return _BY_SCALAR_TYPE[value]
    if isinstance(value, str):
        value = FORMATS.get("bool" if value == "bool_" else value, value)
    if value is bool:
        return BOOL
    try:
        dtype: np.dtype = np.dtype(value)  # type: ignore[call-overload]
    except TypeError:
        raise TypeError(f"{value!r} is not a data type of the simulated core") from None
    if dtype not in _NAMES:
        raise TypeError(f"{dtype} is not a data type of the simulated core")
    return np.dtype(dtype)


def name_of(dtype: np.dtype) -> str:
    """The NKI name of a format."""
    return _NAMES.get(dtype) or str(dtype)


def is_float(dtype: np.dtype) -> bool:
    """True for the floating-point formats."""
    return dtype in _FLOATS


def is_packed(dtype: np.dtype) -> bool:
    """True for the formats that hold four microscaling elements."""
    return dtype.names is not None


def is_integer(dtype: np.dtype) -> bool:
    """True for the integer formats; bool, which is stored as uint8, counts."""
    return dtype.kind in "iub"


def stored(dtype: np.dtype) -> np.dtype:
    """The dtype of the arrays that hold a format: itself, but float32 for tfloat32."""
    return FLOAT32 if dtype == TFLOAT32 else dtype


def promote(first: np.dtype, second: np.dtype) -> np.dtype:
    """The default result format of arithmetic on two formats.

    A float beats an integer; of two floats the wider, or a new one that holds both ranges
    (fp16 + bf16 is fp32, e4m3 + e5m2 is bf16); of two integers the wider, or a new wider one
    (int8 + uint8 is int16), where int32 + uint32 is fp32 because there is no int64.
    """
    if first == second:
        return first
    if is_packed(first) or is_packed(second):
        return FLOAT32  # no instruction computes it: the rules refuse packed elements there
    if is_float(first) and is_float(second):
        return _promote_floats(first, second)
    if is_float(first) or is_float(second):
        return first if is_float(first) else second
    return _promote_integers(first, second)


def _promote_floats(first: np.dtype, second: np.dtype) -> np.dtype:
    pair = {first, second}
    for wide in (FLOAT32, TFLOAT32):
        if wide in pair:
            return wide
    if {FLOAT16, BFLOAT16} <= pair:
        return FLOAT32
    return FLOAT16 if FLOAT16 in pair else BFLOAT16


def _promote_integers(first: np.dtype, second: np.dtype) -> np.dtype:
    first = UINT8 if first == BOOL else first
    second = UINT8 if second == BOOL else second
    if first.kind == second.kind:
        return first if first.itemsize >= second.itemsize else second
    signed, unsigned = (first, second) if first.kind == "i" else (second, first)
    if signed.itemsize > unsigned.itemsize:
        return signed
    wider: dict[int, np.dtype] = {1: INT16, 2: INT32, 4: FLOAT32}
    return wider[unsigned.itemsize]


def of_scalar(value: object) -> np.dtype:
    """The format of a number in arithmetic: Python numbers are weak but wide (bool is uint8, int
    is int32, float is float32); NumPy and ml_dtypes scalars keep their own."""
    if isinstance(value, bool):
        return UINT8
    if isinstance(value, int):
        return INT32
    dtype: np.dtype = np.asarray(value).dtype
    if dtype == np.float64:
        return FLOAT32
    if dtype == np.int64:
        return INT32
    return parse(dtype)


def round_to_tfloat32(values: np.ndarray) -> np.ndarray:
    """float32 values rounded to nearest even at 10 mantissa bits; NaN and infinity are kept."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded: np.ndarray = (bits + 0x0FFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def convert(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An array in another format, as an engine converts: through float32, rounding to nearest
    even; integers saturate and NaN becomes 0; bool is `!= 0`. The same format is kept bit by bit.
    """
    if dtype == TFLOAT32:
        return round_to_tfloat32(values.astype(np.float32, copy=False))
    if values.dtype == dtype:
        return values
    if dtype == BOOL:
        return np.asarray(np.not_equal(values, 0))
    if dtype == FLOAT64:
        return values.astype(FLOAT64)
    if not is_integer(dtype):
        return values.astype(np.float32, copy=False).astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    exact = np.rint(values.astype(np.float32, copy=False).astype(np.float64))
    clipped: np.ndarray = np.clip(np.nan_to_num(exact, nan=0.0), limits.min, limits.max)
    return clipped.astype(dtype)


def fresh_value(dtype: np.dtype) -> float | int:
    """What memory reads as before anything wrote it: NaN, or for integers a poison value (the
    official simulator's 4 for bytes and bools would go unnoticed, so the pattern 0xA5)."""
    if is_float(dtype):
        return float("nan")
    if is_packed(dtype):
        return 0xFF  # each byte: NaN in both 8-bit formats
    if dtype == BOOL:
        return 1
    pattern = int.from_bytes(b"\xa5" * dtype.itemsize, "little")
    return pattern - (1 << (8 * dtype.itemsize)) if dtype.kind == "i" else pattern
