"""Kernels from text on the simulated core."""

import tempfile
from pathlib import Path

import numpy as np
from one_road import execute

from accelopt.kernels.nki.devices.kernel_file import load_kernel
from accelopt.kernels.nki.moves.reading.source import parse
from accelopt.kernels.nki.parameters import ParameterFacts
from accelopt.sim import rules, timing
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.trace import AbstractTensor

ROOT = Path(__file__).parents[4]
PROBLEMS = ROOT / "NKIBench" / "kernels"
OWN = Path(__file__).parent / "kernels"
VARIANTS = ROOT / "tests" / "nkibench" / "variants"

EPSILON = 1e-5

# Kernels small enough to run at every site of every move: file, argument shapes or numbers.
SMALL = {
    "silu": (PROBLEMS / "silu_M4096_N7168_0.py", [(128, 2, 2048)]),
    "rmsnorm_matmul": (
        PROBLEMS / "rmsnorm_matmul_K1024_M4096_N2048_0.py",
        [(4, 128, 256), (2, 128, 1024)],
    ),
    "matmul": (PROBLEMS / "matmul_K5120_M4096_N12288_0.py", [(4, 128, 2, 128), (2, 128, 1024)]),
    "adamw": (PROBLEMS / "adamw_M10944_N2048_0.py", [(200, 2048)] * 4),
    "add_rmsnorm_matmul": (
        PROBLEMS / "add_rmsnorm_matmul_K1024_M4096_N2048_0.py",
        [(256, 256), (256, 1024), EPSILON, (256, 256), (256,)],
    ),
    "matmul_add_rmsnorm": (
        PROBLEMS / "matmul_add_rmsnorm_K2048_M4096_N2048_0.py",
        [(256, 256), (256, 1024), EPSILON, (256, 1024), (1024,)],
    ),
    "bmm_softmax": (
        PROBLEMS / "bmm_softmax_B16_K64_M4096_N4096_0.py",
        [(1, 256, 64), (1, 64, 1024)],
    ),
    "mamba": (
        PROBLEMS / "mamba_C256_M7168_S16_0.py",
        [(256, 512), (256, 512), (256, 4), (4, 512), (4, 512)],
    ),
    "softmax_ranges": (OWN / "softmax_ranges.py", [(256, 256)]),
    "scale_blocks": (OWN / "scale_blocks.py", [(128, 4, 2048), (128, 2048)]),
    "carried": (OWN / "carried.py", [(128, 4, 256)]),
    "transposing_loads": (OWN / "transposing_loads.py", [(256, 64), (512, 64), (256, 64)]),
    "products_ds": (OWN / "products_ds.py", [(256, 256), (256, 512), (256, 512)]),
    "gelu_by_helpers": (OWN / "gelu_by_helpers.py", [(256, 512), (1, 512)]),
    "silu_mgrid_masked": (VARIANTS / "silu_mgrid_masked.py", [(128, 2, 2048)]),
    "silu_block_dims": (VARIANTS / "silu_block_dims.py", [(128, 2, 512)]),
    "silu_helpers_3d": (VARIANTS / "silu_helpers_3d.py", [(128, 2, 512)]),
    "matmul_masked": (VARIANTS / "matmul_masked.py", [(2, 128, 2, 128), (2, 128, 1024)]),
    "matmul_blocked": (VARIANTS / "matmul_blocked.py", [(4, 128, 4, 128), (4, 128, 2048)]),
}


def arrays(shapes):
    """Random float32 arrays; numbers stay themselves."""
    random = np.random.default_rng(7)
    return [
        (0.2 * random.normal(size=shape)).astype(np.float32) if isinstance(shape, tuple) else shape
        for shape in shapes
    ]


def arguments(source, shapes):
    """What moves are told about the parameters."""
    names = parse(source).parameters
    return {
        n: ParameterFacts(s) for n, s in zip(names, shapes, strict=False) if isinstance(s, tuple)
    }


def program(source, values):
    """The verified Program that a kernel's text traces to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traced_kernel.py"
        path.write_text(source)
        traced = trace_kernel(load_kernel(str(path)), values)
    rules.check(traced)
    return traced


def run(source, values):
    """The kernel's outputs."""
    tensors = [value for value in values if isinstance(value, np.ndarray)]
    return execute(program(source, values), tensors)


def latency_ms(source, shapes):
    """Predicted milliseconds; no data needed."""
    specs = [AbstractTensor(s, np.dtype(np.float32)) if isinstance(s, tuple) else s for s in shapes]
    return timing.profile(program(source, specs)).latency_ms
