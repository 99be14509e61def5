"""Packed integers as remainders and quotients, and extremes of all before: exact by the simulated core."""

import numpy as np
import pytest
from kernel_heads import nki_of
from lifted_text import check_nests, lifted, traced

from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift

UNPACKED = nki_of("x, scale", shape="(128, 64)", dtype="nl.float32")("""
packed, factor = nl.load(x), nl.load(scale)
wide = nl.ndarray((128, 32), dtype=nl.int32, buffer=nl.sbuf)
nisa.tensor_copy(dst=wide, src=packed)
made = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
for i in range(32):
    nisa.tensor_scalar(dst=made[:, 2 * i:2 * i + 1], data=wide[:, i:i + 1], op0=nl.bitwise_and, operand0=15)
    nisa.tensor_scalar(dst=made[:, 2 * i + 1:2 * i + 2], data=wide[:, i:i + 1], op0=nl.right_shift, operand0=4)
nisa.tensor_scalar(dst=made, data=made, op0=nl.subtract, operand0=8.0, op1=nl.multiply, operand1=factor)
nl.store(out, made)
""")
BITS = nki_of("x", dtype="nl.float32")("""
made = nl.ndarray(x.shape, dtype=nl.{dtype}, buffer=nl.sbuf)
nisa.tensor_scalar(dst=made, data=nl.load(x), op0=nl.{name}, operand0={number})
nl.store(out, nl.copy(made, dtype=nl.float32))
""")
SWAPPED = nki_of("x", dtype="nl.float32")("""
tile = nl.load(x)
high, low, made = (nl.ndarray(x.shape, dtype=nl.uint8, buffer=nl.sbuf) for _ in range(3))
nisa.tensor_scalar(dst=high, data=tile, op0=nl.bitwise_and, operand0=15, op1=nl.left_shift, operand1=4)
nisa.tensor_scalar(dst=low, data=tile, op0=nl.right_shift, operand0=4)
nisa.tensor_tensor(dst=made, data1=low, data2=high, op=nl.bitwise_or)
nl.store(out, nl.copy(made, dtype=nl.float32))
""")
FIRST = nki_of("x", shape="(128, 1)", dtype="nl.float32")("""
tile = nl.load(x)
top = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
nisa.max8(dst=top, src=tile)
at = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
nisa.nc_find_index8(dst=at, data=tile, vals=top)
nl.store(out, nl.copy(at[:, {0}:{0} + 1], dtype=nl.float32))
""")
EXTREME = nki_of("x")("""
tile = nl.load(x)
made = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
most = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
nisa.memset(dst=most, value={first})
for t in range(x.shape[1]):
    nisa.tensor_tensor(dst=most, data1=most, data2=tile[:, t:t + 1], op=nl.{name})
    nisa.tensor_copy(dst=made[:, t:t + 1], src=most)
nl.store(out, made)
""")
RNG = np.random.default_rng(4)
SCALE = RNG.normal(size=(128, 1)).astype(np.float32)


def is_exact(text: str, given: list[np.ndarray]) -> str:
    """The Algorithm of a kernel as text, which evaluation and nests compute as the kernel does."""
    one = lifted(text, given)
    assert np.allclose(one.found, one.expected, rtol=1e-6)
    check_nests(one, given, rtol=1e-6)
    return algorithm_text(one.algorithm)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_nibbles_are_a_remainder_and_a_quotient(dtype: str) -> None:
    packed = RNG.integers(0, np.iinfo(dtype).max, size=(128, 32), endpoint=True).astype(dtype)
    text = is_exact(UNPACKED, [packed, SCALE])
    assert "floor(" in text and "mod(" in text


@pytest.mark.parametrize(
    ("name", "number"),
    [("bitwise_and", 12), ("bitwise_and", 0xF0), ("bitwise_or", 5), ("bitwise_xor", 0x55), ("left_shift", 3),
     ("right_shift", 3)],
)  # fmt: skip
def test_bit_operations_by_a_number_are_arithmetic(name: str, number: int) -> None:
    for dtype in ("int8", "uint8", "int16"):
        every = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
        given = RNG.choice(every, size=(128, 64)).astype(dtype)
        _, found, expected = lifted(BITS.format(name=name, number=number, dtype=dtype), [given])
        assert np.array_equal(found, expected)


def test_numbers_of_bits_apart_are_added() -> None:
    given = RNG.integers(0, 256, size=(128, 64)).astype("uint8")
    assert "+ mod(x[m], 16) * 16" in is_exact(SWAPPED, [given])


def test_the_first_position_of_the_largest_is_the_least() -> None:
    """Of equal ones, too; the others have the next positions."""
    given = RNG.integers(-9, 9, size=(128, 64)).astype(np.float32)
    assert "min_" in is_exact(FIRST.format(0), [given])
    assert "place_2" in is_exact(FIRST.format(1), [given])


@pytest.mark.parametrize("dtype", ["int32", "int8"])
def test_bits_that_fp32_does_not_hold_or_that_a_sign_fills_stay_bits(dtype: str) -> None:
    packed = RNG.integers(-100, 100, size=(128, 32)).astype(dtype)
    with pytest.raises(NotLifted, match="acts on bits"):
        lift(traced(UNPACKED, [packed, SCALE]))


@pytest.mark.parametrize(
    ("name", "first"), [("maximum", "-3e38"), ("minimum", "3e38"), ("maximum", "0.0")]
)
def test_the_extreme_of_all_before_is_a_recurrence(name: str, first: str) -> None:
    given = RNG.normal(size=(128, 40)).astype(np.float32)
    assert f"{name}(" in is_exact(EXTREME.format(name=name, first=first), [given])
