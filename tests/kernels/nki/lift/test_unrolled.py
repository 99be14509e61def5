"""Loops that Python unrolled lift as one axis; states that are scaled between chunks as recurrences.

Evidence: `evaluate` of what is lifted against NumPy's own, in fp64.
"""

import numpy as np
from kernel_heads import nki_of
from lifted_text import traced

from accelopt.algorithm.contraction import contraction
from accelopt.algorithm.ir import Scan, Where, expressions_of, walk
from accelopt.kernels.nki.lift.lifting import lift
from tests.algorithm.evaluation import evaluate

HEADS = nki_of("x")("""
def turned(xt, heads):
    y = nl.ndarray((128, heads, 32), dtype=nl.float32, buffer=nl.sbuf)
    for h in range(heads):
        s = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=s, op=nl.add, data=xt[:, h, :], axis=1)
        nisa.tensor_scalar(dst=y[:, h, :], data=xt[:, h, :], op0=nl.multiply, operand0=s)
    return y
nl.store(out, turned(nl.load(x), x.shape[1]))
""")
CHUNKS = nki_of("k, v, w", shape="(4, 64, 32)", dtype="v.dtype")("""
wt = nl.load(w)
state = nl.zeros((64, 32), dtype=nl.float32, buffer=nl.sbuf)
for c in range(4):
    nl.store(out[c], state)
    kt = nl.load(k[c])
    kw = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=kw, data=kt, op0=nl.multiply, operand0=wt)
    p = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=kw, moving=nl.load(v[c]))
    nisa.tensor_scalar(dst=state, data=state, op0=nl.multiply, operand0=0.5)
    nisa.tensor_tensor(dst=state, data1=state, data2=p, op=nl.add)
""")


def test_heads_that_python_loops_over_are_an_axis() -> None:
    algorithm = lift(traced(HEADS, [np.zeros((128, 12, 32), np.float32)]))
    parts = [p for d in algorithm.definitions for e in expressions_of(d) for p in walk(e)]
    assert not any(isinstance(part, Where) for part in parts)
    assert len(algorithm.definitions) == 2
    x = np.random.default_rng(1).standard_normal((128, 12, 32))
    (found,) = evaluate(algorithm, {"x": x})
    np.testing.assert_allclose(found, x * x.sum(axis=2, keepdims=True), rtol=1e-12)


def test_a_state_that_is_scaled_between_chunks_is_a_recurrence() -> None:
    """What an iteration finds is the state of the one before; the sum that it adds has three factors, one
    of which has the summed axis alone, and is a product of matrices."""
    shapes = ((4, 128, 64), (4, 128, 32), (128, 1))
    algorithm = lift(traced(CHUNKS, [np.zeros(shape, np.float32) for shape in shapes]))
    product, state, *_ = algorithm.definitions
    assert isinstance(state, Scan) and contraction(product) is not None
    rng = np.random.default_rng(2)
    k, v, w = (rng.standard_normal(s) for s in ((4, 128, 64), (4, 128, 32), (128, 1)))
    (found,) = evaluate(algorithm, {"k": k, "v": v, "w": w.reshape(128)})
    wanted, now = np.zeros((4, 64, 32)), np.zeros((64, 32))
    for c in range(4):
        wanted[c] = now
        now = 0.5 * now + (k[c] * w).T @ v[c]
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=1e-9)


TRIANGLE = nki_of("v, q, k")("""
for i in nl.static_range(4):
    qt = nl.load(q[:, i * 32:(i + 1) * 32])
    sums = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.psum)
    for j in nl.static_range(i + 1):
        scores = nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=nl.load(k[:, j * 32:(j + 1) * 32]), moving=qt)
        weight = nl.copy(scores)
        if i == j:
            nisa.affine_select(dst=weight, pattern=[[1, 32]], channel_multiplier=-1,
                               on_true_tile=weight, on_false_value=0.0, cmp_op=nl.greater_equal)
        nisa.nc_matmul(dst=sums, stationary=weight, moving=nl.load(v[j * 32:(j + 1) * 32, :]))
    nl.store(out[i * 32:(i + 1) * 32, :], nl.copy(sums))
""")


def test_blocks_of_which_each_sums_one_more_are_one_sum() -> None:
    """Found on a retention by pairs of tiles: 17 definitions, of which a search of 168 s found no kernel that was faster."""
    draw = np.random.default_rng(3).standard_normal
    v, q, k = draw((128, 16)), draw((8, 128)), draw((8, 128))
    algorithm = lift(traced(TRIANGLE, [a.astype(np.float32) for a in (v, q, k)]))
    assert len(algorithm.definitions) == 2
    places = np.arange(128)
    (found,) = evaluate(algorithm, {"v": v, "q": q, "k": k})
    np.testing.assert_allclose(
        found, np.where(places[:, None] >= places, q.T @ k, 0) @ v, rtol=1e-12, atol=1e-12
    )
