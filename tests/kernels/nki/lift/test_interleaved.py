"""Tiles whose elements the iterations of a loop write by turns, a few apart: exact by the simulated core,
whose tests prove it, and without conditions that decide nothing."""

import itertools

import numpy as np
import pytest
from kernel_heads import nki_of
from lifted_text import lifted

from accelopt.algorithm.addresses import GuardedAddress, solve, subscripts
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.notation import algorithm_text
from accelopt.algorithm.values import never, without_floors

KERNEL = nki_of("a", shape="(128, {step} * 8)")("""
tile = nl.load(a)
made = nl.ndarray((128, {step} * 8), dtype=a.dtype, buffer=nl.sbuf)
for i in nl.affine_range(8):
    nisa.activation(dst=made[:, {step} * i], op=nl.exp, data=tile[:, i])
    for j in nl.static_range(1, {step}):
        nisa.tensor_tensor(
            dst=made[:, {step} * i + j], data1=tile[:, i], data2=tile[:, 7 - i], op=nl.add)
{after}
nl.store(out, made)
""")
SUM = "nisa.tensor_scalar(dst=made, data=made, op0=nl.multiply, operand0=nl.sum(made, axis=1, keepdims=True))"
SOME = "nisa.tensor_scalar(dst=made[:, 0:{step}], data=made[:, 0:{step}], op0=nl.multiply, operand0=2.0)"
A = np.random.default_rng(1).normal(size=(128, 8)).astype(np.float32)


@pytest.mark.parametrize("step", [2, 3, 5])
@pytest.mark.parametrize("after", ["", SUM, SOME])
def test_elements_that_iterations_write_by_turns(step: int, after: str) -> None:
    text = KERNEL.format(step=step, after=after.format(step=step))
    algorithm, found, expected = lifted(text, [A])
    error = np.linalg.norm(found - expected)
    assert error <= 1e-6 * np.linalg.norm(expected)
    assert "//" not in algorithm_text(algorithm)


def test_pairs_of_a_last_tile_that_is_not_full_are_found() -> None:
    """Of 1000 rows 8 tiles of 128: element 1 of a pair lies in the iteration that element 0 does."""
    tile, row, pair = Axis("t", 8), Axis("p", 128), Axis("e", 32)
    index = index_of(tile) * 8192 + index_of(row) * 64 + index_of(pair) * 2 + 1
    at, number = Axis("o0", 1000), Axis("o1", 64)
    wanted = index_of(at) * 64 + index_of(number)
    found = solve(index, frozenset({tile, row, pair}), wanted, (1000, 64))
    assert found is not None and found.axes[tile] == index_of(at) // 128


def test_conditions_with_floors_become_the_ends_of_a_run() -> None:
    """Against all elements, for floors of all small divisors."""
    axis = Axis("n", 7)
    n, places = index_of(axis), np.arange(7)
    for divisor, add, least in itertools.product(range(2, 5), range(4), range(-3, 4)):
        condition = (n + add) // divisor * divisor - n - least
        wanted = condition.evaluate({axis: places}) >= 0
        ends = [c.evaluate({axis: places}) >= 0 for c in without_floors(condition)]
        assert np.array_equal(np.logical_and.reduce([np.broadcast_to(e, 7) for e in ends]), wanted)


def test_conditions_that_hold_nowhere_together() -> None:
    n, m = index_of(Axis("n", 6)), index_of(Axis("m", 4))
    even = n // 2 * 2 - n
    assert never((even, (n - 1) // 2 * 2 - n + 1)) and not never((even, n - 4))
    assert not never((n - m - 2, m * 2 - n)) and never((n - 5, m * -1 + n * -1 + 4))
    wide = index_of(Axis("w", 1 << 20))
    assert never((wide * -1 - 1,)) and not never((wide - 3, wide * -1 + 2))  # too many to try
    assert never((Index(-1),))


def test_a_constant_is_rounded_to_where_guards_hold() -> None:
    """Rows of 360 read 128 and 256 elements before: in the same row where the place says that there is one."""
    m, n = Axis("m", 8), Axis("n", 360)
    for before in (128, 256, 359):
        address = index_of(m) * 360 + index_of(n) - before
        found = subscripts(GuardedAddress(address, (index_of(n) - before,)), (8, 360))
        assert found == (index_of(m), index_of(n) - before)
