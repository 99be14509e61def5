"""The least time of a workload, by hand."""

import pytest

from accelopt.hardware.gpus import GPUS, gpu_called
from accelopt.kernels.gpu.bench.roofline import bound

H200 = GPUS["h200"]


@pytest.fixture
def least(starter):
    def of(name):
        return bound(starter.definitions[name], starter.workloads[name][0].workload, H200)

    return of


def test_by_hand(least):
    """What is moved once, products, pages that are used, and half of a causal square."""
    memory = least("rmsnorm_h4096")
    assert memory.bytes == 2 * (2 * 32768 * 4096 + 4096) and memory.limit == "memory"
    assert memory.milliseconds == pytest.approx(memory.bytes / 4800e9 * 1e3)
    products = least("gemm_n4096_k4096")
    assert products.operations == 2 * 8192 * 4096 * 4096 and products.limit == "arithmetic"
    assert products.milliseconds == pytest.approx(0.278, abs=1e-3)
    cache = 2 * 16384 * 16 * 8 * 128 * 2
    assert cache < least("gqa_paged_decode_h32_kv8_d128_ps16").bytes < 1.01 * cache
    whole = 4 * (8192 * 8192 / 4) * 128 * 32
    causal = least("gqa_ragged_prefill_causal_h32_kv8_d128")
    assert causal.operations == pytest.approx(whole / 2)


def test_devices_by_what_they_call_themselves():
    assert gpu_called("NVIDIA H200") is H200
    assert gpu_called("NVIDIA H100 80GB HBM3") is GPUS["h100"]
    assert gpu_called("cpu") is None
