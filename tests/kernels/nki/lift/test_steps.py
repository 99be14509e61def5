"""Steps through arrays in HBM: each stays a definition, and is read beyond its ends where a condition excludes
what is read there.

Evidence: the reference is NumPy's; the second store of a step writes a part of what the first one wrote.
"""

import numpy as np
import pytest
from kernel_heads import neuronxcc_of
from lifted_text import traced
from warm import computed

from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import default_nest
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift import algorithms

STEPS = neuronxcc_of("u")("""
n, _ = u.shape
a = nl.ndarray((n, n), dtype=u.dtype, buffer=nl.hbm)
b = nl.ndarray((n, n), dtype=u.dtype, buffer=nl.hbm)
grids = [u, a, b, a, out]
for step in nl.static_range(4):
    src, dst = grids[step], grids[step + 1]
    for t in nl.affine_range(n // 128):
        i_p, i_f = nl.mgrid[0:128, 0:n]
        i_q, i_g = nl.mgrid[0:128, 0:n - 2]
        row = t * 128 + i_p
        mid = nl.load(src[row, i_f])
        up = nl.zeros((128, n), dtype=u.dtype, buffer=nl.sbuf)
        down = nl.zeros((128, n), dtype=u.dtype, buffer=nl.sbuf)
        up[i_p, i_f] = nl.load(src[row - 1, i_f], mask=(row >= 1))
        down[i_p, i_f] = nl.load(src[row + 1, i_f], mask=(row <= n - 2))
        s = nl.add(up[i_q, i_g + 1], down[i_q, i_g + 1])
        s = nl.add(nl.add(s, mid[i_q, i_g]), mid[i_q, i_g + 2])
        new = nl.add(nl.multiply(mid[i_q, i_g + 1], 0.6), nl.multiply(s, 0.1))
        inner = (t * 128 + i_q >= 1) & (t * 128 + i_q <= n - 2)
        nl.store(dst[row, i_f], value=mid)
        nl.store(dst[t * 128 + i_q, i_g + 1], value=new, mask=inner)
""")


@pytest.mark.parametrize("steps", (2, 4))
def test_steps_through_arrays_stay_steps(steps: int) -> None:
    """Composed, each element of four steps of a stencil is a sum of 41; the arrays between are written
    twice, partly by a second store. Each step is one definition, without sums or floors."""
    grids = f"{'a, b, a, '[-3 * steps + 3 :]}out"
    text = STEPS.replace("4)", f"{steps})").replace("a, b, a, out", grids)
    algorithm = lift(traced(text, [np.zeros((256, 256), np.float32)], "trn1"))
    assert [len(d.axes) for d in algorithm.definitions] == [2] * steps
    u = np.random.default_rng(2).standard_normal((256, 256))
    wanted = u
    for _ in range(steps):
        new = wanted.copy()
        around = wanted[:-2, 1:-1] + wanted[2:, 1:-1] + wanted[1:-1, :-2] + wanted[1:-1, 2:]
        new[1:-1, 1:-1] = 0.6 * wanted[1:-1, 1:-1] + 0.1 * around
        wanted = new
    np.testing.assert_allclose(evaluate(algorithm, {"u": u})[0], wanted, rtol=1e-6, atol=1e-7)
    source = lower_nest(algorithm, default_nest(algorithm)).source
    (got,) = computed(source, [u.astype(np.float32)])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_rows_of_a_step_are_read_in_the_image_that_holds_them() -> None:
    """Of rows that are numbered through all images, the row below is one of the same image where there is
    one: no sum of axes says so but under that condition."""
    images = algorithms.written(
        "images", {"k": 4 * 24, "n": 64, "b": 4, "h": 24}, {"x": (4 * 24, 64)},
        "y[k, n] = exp(x[k, n])",
        "out[b, h, n] = y[b * 24 + h, n] + y[b * 24 + h + 1, n] if 22 - h >= 0 else y[b * 24 + h, n]",
    )  # fmt: skip
    x = np.random.default_rng(5).standard_normal((4 * 24, 64)).astype(np.float32)
    (got,) = computed(lower_nest(images, default_nest(images)).source, [x])
    y = np.exp(x.astype(np.float64)).reshape(4, 24, 64)
    y[:, :-1] += y[:, 1:].copy()
    np.testing.assert_allclose(got.reshape(y.shape), y, rtol=1e-5)
