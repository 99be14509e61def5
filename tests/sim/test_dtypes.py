"""Number formats, promotion (S24) and conversion (S25), against SDK 2.26.1 nki.api.shared.rst."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelopt.sim import dtypes
from accelopt.sim.dtypes import FORMATS, convert, of_scalar, parse, promote

DOCUMENTED = [
    ("int32", "float16", "float16"),
    ("uint16", "tfloat32", "tfloat32"),
    ("float32", "tfloat32", "float32"),
    ("float32", "bfloat16", "float32"),
    ("float16", "bfloat16", "float32"),
    ("float8_e4m3", "float16", "float16"),
    ("float8_e4m3", "bfloat16", "bfloat16"),
    ("float8_e4m3", "float8_e5m2", "bfloat16"),
    ("int16", "int32", "int32"),
    ("uint8", "uint16", "uint16"),
    ("uint16", "int32", "int32"),
    ("int8", "uint8", "int16"),
    ("int8", "uint16", "int32"),
    ("int32", "uint32", "float32"),
]


@pytest.mark.parametrize(("first", "second", "result"), DOCUMENTED)
def test_documented_promotions(first: str, second: str, result: str) -> None:
    assert promote(FORMATS[first], FORMATS[second]) == FORMATS[result]


def test_promotion_is_symmetric_and_keeps_a_single_format() -> None:
    for first, second in itertools.product(FORMATS.values(), repeat=2):
        assert promote(first, second) == promote(second, first)
        assert promote(first, second) in FORMATS.values()
    for dtype in FORMATS.values():
        assert promote(dtype, dtype) == dtype


def test_weak_scalars_are_wide_and_typed_scalars_keep_their_format() -> None:
    assert of_scalar(True) == dtypes.UINT8
    assert of_scalar(2) == dtypes.INT32
    assert of_scalar(1.5) == dtypes.FLOAT32
    assert of_scalar(np.float16(2)) == dtypes.FLOAT16
    assert of_scalar(np.int8(2)) == dtypes.INT8
    assert of_scalar(ml_dtypes.bfloat16(2)) == dtypes.BFLOAT16
    assert of_scalar(np.float64(2)) == dtypes.FLOAT32  # a Python float in NumPy's clothes


@pytest.mark.parametrize("name", FORMATS)
def test_names_and_dtypes_are_two_spellings(name: str) -> None:
    dtype = parse(name)
    assert parse(dtype) is dtype or parse(dtype) == dtype
    assert dtypes.name_of(dtype) == name
    assert dtypes.stored(dtype).itemsize == dtype.itemsize


@pytest.mark.parametrize("value", ["float64", np.float64, np.int64, "complex64", object(), "no"])
def test_other_formats_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="not a data type of the simulated core"):
        parse(value)


@given(st.floats(width=32))
def test_to_integers_rounds_to_even_and_saturates(value: float) -> None:
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
        dtype = FORMATS[name]
        (found,) = convert(np.array([value], np.float32), dtype)
        limits = np.iinfo(dtype)
        if np.isnan(value):
            assert found == 0
        elif np.isinf(value) or not limits.min <= round(value) <= limits.max:
            assert found == (limits.max if value > 0 else limits.min)
        else:
            assert found == round(value)  # Python rounds half to even, too


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_tfloat32_rounds_to_ten_mantissa_bits(value: float) -> None:
    (found,) = convert(np.array([value], np.float32), dtypes.TFLOAT32)
    bits = int(np.float32(found).view(np.uint32))
    assert bits & 0x1FFF == 0
    spacing = 2.0 ** (max(np.frexp(np.float64(value))[1] - 1, -126) - 10)
    assert np.isinf(found) or abs(float(found) - value) <= spacing / 2


def test_tfloat32_breaks_ties_to_even_and_keeps_nan_and_infinity() -> None:
    half = 2.0**-11
    values = np.array([1 + half, 1 + 3 * half, np.nan, np.inf, -np.inf], np.float32)
    found = convert(values, dtypes.TFLOAT32)
    np.testing.assert_array_equal(
        found, np.array([1, 1 + 4 * half, np.nan, np.inf, -np.inf], np.float32)
    )


def test_between_narrow_floats_goes_through_float32() -> None:
    values = np.array([1.0625, 448, -0.3], ml_dtypes.bfloat16)
    found = convert(values, dtypes.FLOAT8_E5M2)
    np.testing.assert_array_equal(
        found.astype(np.float32),
        values.astype(np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float32),
    )


def test_bool_is_not_zero_and_equal_formats_are_kept_bit_by_bit() -> None:
    np.testing.assert_array_equal(
        convert(np.array([0.0, 0.2, -1], np.float32), dtypes.BOOL), [False, True, True]
    )
    nan = np.array([0x7FC12345], np.uint32).view(np.float32)
    assert convert(nan, dtypes.FLOAT32).view(np.uint32)[0] == 0x7FC12345


def test_fresh_memory_is_nan_or_poison() -> None:
    assert np.isnan(dtypes.fresh_value(dtypes.BFLOAT16))
    for dtype in (dtypes.INT8, dtypes.INT32, dtypes.UINT16):
        filled = np.full(1, dtypes.fresh_value(dtype), dtype)
        assert (filled.view(np.uint8) == 0xA5).all()
