"""Conversions to whole numbers: what a kernel converts lifts, and nests compute it, both as the simulated core
does (nearest, of two the even one, saturating: `accelopt.sim.dtypes.convert` and its tests)."""

import numpy as np
import pytest
from kernel_heads import nki_kernel, nki_of
from lifted_text import lifted, traced

from accelopt.algorithm.functions import CONVERSIONS, FUNCTIONS
from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim import compute, dtypes
from tests.algorithm.evaluation import evaluate

KERNEL = nki_kernel("""def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.{made}, buffer=nl.shared_hbm)
    sums = nl.ndarray((256, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in range(2):
        tile = nl.load(x[t * 128:(t + 1) * 128, :])
        q = nl.ndarray(tile.shape, dtype=nl.{kept}, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=q, data=tile, op0=nl.multiply, operand0=100.0)
        half = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=half, data=q, op0=nl.multiply, operand0=0.5)
        nl.store(sums[t * 128:(t + 1) * 128, :], nl.sum(half, axis=1, keepdims=True))
        nl.store(out[t * 128:(t + 1) * 128, :], nl.copy(half, dtype=nl.{made}))
    return out, sums
""")
X = np.random.default_rng(1).normal(size=(256, 48)).astype(np.float32)


@pytest.mark.parametrize("made", ["int8", "int32", "float32"])
@pytest.mark.parametrize("kept", ["int8", "uint8", "int32"])
def test_what_is_converted_lifts_and_is_written_by_nests(kept: str, made: str) -> None:
    program = traced(KERNEL.format(kept=kept, made=made), [X])
    expected = compute.execute(program, [X.copy()])
    algorithm = lift(program)
    assert f"{kept}(" in algorithm_text(algorithm)
    exact = evaluate(algorithm, {"x": X.astype(np.float64)})
    tried = set[str]()
    for nest in starting_nests(algorithm, "trn2"):
        source = lower_nest(algorithm, nest, target="trn2", dialect="nki").source
        if source not in tried and len(tried) < 4:
            tried.add(source)
            written = compute.execute(traced(source, [X]), [X.copy()])
            for mine, its, all_ in zip(written, expected, exact, strict=True):
                assert mine.dtype == its.dtype
                assert np.allclose(mine.ravel(), its.ravel(), rtol=1e-5, atol=1e-4)
                assert np.allclose(all_.ravel(), its.ravel(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", CONVERSIONS)
def test_halves_and_ends_are_those_of_the_engines(name: str) -> None:
    values = np.array([-3e9, -129, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 127.5, 300, 7e4, 5e9, np.nan])
    wanted = dtypes.convert(values.astype(np.float32), np.dtype(name))
    assert np.array_equal(FUNCTIONS[name](values), wanted.astype(np.float64))


RAGGED_SCAN = nki_of("x")("""
rows, steps = x.shape
for c in range(0, rows, 128):
    p = min(128, rows - c)
    state = nl.zeros((p, 1), dtype=nl.float32)
    for t in range(steps // 32):
        gate = nl.load(x[c:c + p, t * 32:(t + 1) * 32])
        h = nl.ndarray((p, 32), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor_scan(
            dst=h, data0=gate, data1=gate, initial=state, op0=nl.multiply, op1=nl.add)
        nisa.tensor_copy(dst=state, src=h[0:p, 31:32])
        nl.store(out[c:c + p, t * 32:(t + 1) * 32], h)
""")


@pytest.mark.parametrize("rows", [256, 192])
def test_a_recurrence_over_groups_of_rows_is_one(rows: int) -> None:
    given = np.random.default_rng(2).uniform(size=(rows, 96)).astype(np.float32)
    algorithm, found, expected = lifted(RAGGED_SCAN, [given])
    assert np.allclose(found, expected, rtol=1e-5)
    assert len(algorithm.definitions) == 1
