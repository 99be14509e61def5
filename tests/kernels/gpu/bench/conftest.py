"""What the tests of the GPU path share: the starter set, and whether torch is there."""

import sys
from pathlib import Path

import pytest
from flb_traces import installed

from accelopt.kernels.gpu.bench.files.tracefiles import TraceFolder

ROOT = Path(__file__).resolve().parents[4]
STARTER = ROOT / "experiments" / "flb_optimize" / "starter_trace"
sys.path += [str(ROOT / "experiments" / name) for name in ("flb_h200", "flb_optimize")]


@pytest.fixture(scope="session")
def starter() -> TraceFolder:
    return TraceFolder(STARTER)


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def interpreter():
    if not installed("torch", "triton", "safetensors"):
        pytest.skip("torch, triton or safetensors is not installed")
    return (("TRITON_INTERPRET", "1"),)
