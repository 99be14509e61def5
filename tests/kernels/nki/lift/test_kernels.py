"""The kernels of NKIBench lift to what they are called, and to what the executor computes."""

from pathlib import Path

import numpy as np
import pytest

from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.devices.kernel_file import load_kernel
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.sim import standin
from accelopt.sim.compute.executor import execute
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.trace import AbstractTensor
from tests.algorithm.evaluation import evaluate

KERNELS = Path(__file__).parents[4] / "NKIBench" / "kernels"

# Shapes of the arguments (numbers stand for themselves), and the definitions that must come out.
CASES = {
    "adamw": (
        [(320, 64)] * 4,
        "out[i] = theta[i] * 0.99999 - (g[i] * 0.001 + m[i] * 0.009) "
        "/ (sqrt(g[i]**2 + v[i] * 999) + 1e-08)",
    ),
    "add_rmsnorm_matmul": (
        [(256, 256), (256, 512), 1e-5, (256, 256), (256,)],
        "product[m, n] = sum_k w[k, n] * g[k] * (x[m, k] + z[m, k])\n"
        "total[m] = sum_k (x[m, k] + z[m, k])**2\n"
        "out[m, n] = product[m, n] * rsqrt(total[m] * 0.00390625 + 1e-05)",
    ),
    "bmm": (
        [(2, 256, 64), (2, 64, 512)],
        "out[b, m, n] = sum_k lhs[b, m, k] * rhs[b, k, n]",
    ),
    "bmm_softmax": (
        [(2, 256, 64), (2, 64, 1024)],
        "product[b, m, n] = sum_k lhs[b, m, k] * rhs[b, k, n]\n"
        "largest[b, m] = max_n product[b, m, n]\n"
        "total[b, m] = sum_n exp(product[b, m, n] - largest[b, m])\n"
        "out[b, m, n] = exp(product[b, m, n] - largest[b, m]) / total[b, m]",
    ),
    "gqa_full": (
        [(4, 128, 4, 128), (1, 1, 4, 128, 2, 128), (1, 4, 128, 256)],
        "product[m, b, h, l] = sum_j q[m, b, h, j] * k[l, b, j]\n"
        "largest[m, b, h] = max_l product[m, b, h, l]\n"
        "product2[b, h, m, n] = sum_l v[l, b, n] * exp(product[m, b, h, l] * 0.08838835"
        " - largest[m, b, h] * 0.08838835)\n"
        "total[b, h, m] = sum_l exp(product[m, b, h, l] * 0.08838835"
        " - largest[m, b, h] * 0.08838835)\n"
        "out[b, h, m, n] = product2[b, h, m, n] / total[b, h, m]",
    ),
    "lora": (
        [(1, 4, 128, 2, 128), (2, 128, 512), (2, 128, 128), (128, 512)],
        "product[m, n] = sum_k x[m, k] * w[k, n]\n"
        "product2[m, l] = sum_k x[m, k] * a[k, l]\n"
        "product3[m, n] = sum_l b[l, n] * product2[m, l]\n"
        "out[m, n] = product[m, n] + product3[m, n]",
    ),
    "mamba": (
        [(256, 96), (256, 96), (256, 4), (4, 96), (4, 96)],
        "state[m, n, k] = exp(delta[m, n] * a[m, k]) * state[m, n - 1, k]"
        " + delta[m, n] * u[m, n] * b[k, n], from 0\n"
        "out[m, n] = sum_k c[k, n] * state[m, n, k]",
    ),
    "matmul": ([(2, 128, 3, 128), (3, 128, 1024)], "out[m, n] = sum_k lhs[m, k] * rhs[k, n]"),
    "matmul_add_rmsnorm": (
        [(256, 256), (256, 512), 1e-5, (256, 512), (512,)],
        "product[m, n] = sum_k x[m, k] * w[k, n]\n"
        "total[m] = sum_n (product[m, n] + z[m, n])**2\n"
        "out[m, n] = g[n] * (product[m, n] + z[m, n]) * rsqrt(total[m] * 0.001953125 + 1e-05)",
    ),
    "rmsnorm_matmul": (
        [(2, 128, 256), (2, 128, 512)],
        "product[m, n] = sum_k x[m, k] * w[k, n]\n"
        "total[m] = sum_k x[m, k]**2\n"
        "out[m, n] = product[m, n] * rsqrt(total[m] * 0.00390625)",
    ),
    "rope_single_freq_apply": (
        [(128, 1024), (64, 1024), (64, 1024)],
        "out[m, n] = x[m, n] * cos[m - 64, n] + x[m - 64, n] * sin[m - 64, n] if m >= 64"
        " else x[m, n] * cos[m, n] - x[m + 64, n] * sin[m, n]",
    ),
    "silu": ([(128, 2, 1024)], "out[m] = silu(x[m])"),
    "swiglu": (
        [(1, 2, 128, 2, 128), (2, 128, 256), (2, 128, 256), (2, 128, 256)],
        "product[m, k] = sum_l x[m, l] * w_gate[l, k]\n"
        "product2[m, k] = sum_l x[m, l] * w_up[l, k]\n"
        "out[m, n] = sum_k w_down[k, n] * silu(product[m, k]) * product2[m, k]",
    ),
    "transpose_matmul": (
        [(128, 2, 256), (128, 2, 592)],
        "out[m, n] = sum_k lhs[k, m] * rhs[k, n]",
    ),
}  # fmt: skip


def traced(name, arguments):
    standin.install(always=True)
    (path,) = (p for p in KERNELS.glob("*.py") if p.stem.rsplit("_", 1)[0].startswith(name + "_")
               and p.stem[len(name) + 1].isupper())  # fmt: skip
    specs = [
        AbstractTensor(a, np.dtype(np.float32)) if isinstance(a, tuple) else a for a in arguments
    ]
    return trace_kernel(load_kernel(str(path)), specs, {}, target="trn1")


@pytest.fixture(scope="module", params=CASES, ids=str)
def lifted(request):
    program = traced(request.param, CASES[request.param][0])
    return request.param, program, lift(program)


def test_a_kernel_lifts_to_its_problem(lifted):
    name, _, algorithm = lifted
    found = [line.strip() for line in algorithm_text(algorithm).splitlines()[1:-1]]
    assert found == CASES[name][1].splitlines()


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_an_algorithm_computes_what_the_kernel_does(lifted, scale):
    """To the rounding of fp32: evaluated in fp64, it may differ by what the executor rounds."""
    name, program, algorithm = lifted
    rng = np.random.default_rng(3)
    scale = {"mamba": 0.3, "gqa_full": 1.0, "bmm_softmax": 1.0}.get(name, scale)  # exponents
    arrays = [(rng.normal(size=t.shape) * scale).astype(np.float32) for t in program.arguments]
    if name == "adamw":
        arrays[3] = np.abs(arrays[3])
    by_name = {t.name: array for t, array in zip(program.arguments, arrays, strict=True)}
    for found, expected in zip(evaluate(algorithm, by_name), execute(program, arrays), strict=True):
        assert found.shape == expected.shape
        size = np.abs(found).max()
        np.testing.assert_allclose(expected, found, rtol=2e-4, atol=2e-6 * size)
