"""Products of fp8 that take two rows at once: what they compute lifts, and they take half of the time
(trainium2_arch.rst: 158 TFLOPS in double-row mode, 79 otherwise)."""

import ml_dtypes
import numpy as np
from kernel_heads import nki_of
from lifted_text import traced

from accelopt.algorithm.least_work import least_work
from accelopt.hardware import TRN2
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.sim import compute
from accelopt.sim.timing import profile
from tests.algorithm.evaluation import evaluate

KERNEL = nki_of("xT, w", shape="(128, 512)", dtype="nl.float32")("""
x = nl.ndarray((128, 16, 128), dtype=xT.dtype, buffer=nl.sbuf)
nisa.dma_copy(dst=x, src=xT.ap([[128, 128], [128 * 128, 16], [1, 128]]))
ws = nl.ndarray((128, 16, 512), dtype=w.dtype, buffer=nl.sbuf)
nisa.dma_copy(dst=ws, src=w.ap([[512, 128], [128 * 512, 16], [1, 512]]))
acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
for j in range(0, 16, STEP):
    PRODUCT
nl.store(out, nl.copy(acc))
""")
SINGLE = "nisa.nc_matmul(dst=acc, stationary=x[:, j, :], moving=ws[:, j, :], accumulate=j > 0)"
DOUBLE = SINGLE.replace("j, :]", "j:j + 2, :]").replace(
    "j > 0)", "j > 0, perf_mode=nisa.matmul_perf_mode.double_row)"
)
_random = np.random.default_rng(3)
GIVEN = [_random.normal(size=(2048, n)).astype(ml_dtypes.float8_e4m3) for n in (128, 512)]


def _traced(step: str, product: str):
    text = KERNEL.replace("STEP", step).replace("PRODUCT", product)
    return traced(text, GIVEN)


def test_a_product_of_two_rows_at_once_lifts_to_what_it_computes() -> None:
    program = _traced("2", DOUBLE)
    algorithm = lift(program)
    named = dict(zip(("xT", "w"), (given.astype(np.float64) for given in GIVEN), strict=True))
    (exact,) = evaluate(algorithm, named)
    np.testing.assert_allclose(exact, named["xT"].T @ named["w"], rtol=1e-12)
    (found,) = compute.execute(program, GIVEN)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)
    assert least_work(algorithm).narrow_flops == 2048 * 128 * 512  # at the rate of 16 bits: half


def test_it_takes_the_tensor_engine_half_of_the_time() -> None:
    again = "for r in range(16): "  # longer than the engine's clock needs to rise
    steps = (("1", again + SINGLE), ("2", again + DOUBLE))
    single, double = (profile(_traced(*one), TRN2) for one in steps)
    busy = [found.occupancy["tensor"] * found.latency_ms for found in (single, double)]
    assert 0.45 < busy[1] / busy[0] < 0.6
