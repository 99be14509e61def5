"""Constants that a kernel brings along (`nl.shared_constant`), wherever it declares them: each program of
a launch, and each iteration of a loop, has the same data."""

from __future__ import annotations

import numpy as np
import pytest

from accelopt.algorithm.evaluation import evaluate
from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.sim import compute
from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.kernel_loading import load, specs_of

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
    module = load(KERNEL.format(before=before, inside=inside), "masked.py")
    program = trace_kernel(module.kernel, specs_of([a]), {})
    algorithm = lift(program)
    (wanted,) = compute.execute(program, [a])
    (found,) = evaluate(algorithm, {algorithm.inputs[0].name: a})
    assert np.array_equal(found.reshape(wanted.shape), wanted)
    assert "a[b, m, n] if m >= n else 0" in algorithm_text(algorithm)
