"""Constants that a kernel brings along (`nl.shared_constant`), wherever it declares them: each program of
a launch, and each iteration of a loop, has the same data."""

import math

import numpy as np
import pytest
from lifted_text import lifted

from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.lift.instruction_element import before_rounding

KERNEL = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

MASK = np.tril(np.ones((64, 64), np.float32))


@nki.jit
def masked(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    {before}
    h = nl.program_id(0)
    for i in nl.affine_range(3):
        {inside}
        nl.store(out[h, i], nl.multiply(nl.load(a[h, i]), nl.load(c)))
    return out


kernel = masked[4]
"""
CONSTANT = "c = nl.shared_constant(MASK, dtype=nl.float32)"


@pytest.mark.parametrize(("before", "inside"), [(CONSTANT, "pass"), ("pass", CONSTANT)])
def test_a_constant_in_a_launch_grid_is_lifted(before, inside):
    a = np.random.default_rng(1).normal(size=(4, 3, 64, 64)).astype(np.float32)
    algorithm, found, wanted = lifted(KERNEL.format(before=before, inside=inside), [a], "trn1")
    assert np.array_equal(found, wanted)
    assert "a[b, m, n] if m >= n else 0" in algorithm_text(algorithm)


def test_numbers_are_what_they_were_before_they_were_rounded():
    """The shortest that rounds to a number, or one over a shorter one: 1 / 15, not 0.06666667."""
    for number in (*(1 / n for n in range(2, 5000)), 0.0, 0.1, -0.044715, 1e-6, 3e38, math.inf):
        assert before_rounding(float(np.float32(number))) == number
    assert math.isnan(before_rounding(math.nan))
