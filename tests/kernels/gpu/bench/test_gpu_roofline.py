"""The least time of a workload, by hand."""

import pytest

from accelopt.hardware.gpus import GPUS, gpu_called
from accelopt.kernels.gpu.bench.roofline import bound

H200 = GPUS["h200"]


def large(starter, name):
    return starter.definitions[name], starter.workloads[name][0].workload


def test_memory_bound(starter):
    least = bound(*large(starter, "rmsnorm_h4096"), H200)
    assert least.bytes == 2 * (2 * 32768 * 4096 + 4096)
    assert least.limit == "memory"
    assert least.milliseconds == pytest.approx(least.bytes / 4800e9 * 1e3)


def test_products(starter):
    least = bound(*large(starter, "gemm_n4096_k4096"), H200)
    assert least.operations == 2 * 8192 * 4096 * 4096
    assert least.limit == "arithmetic"
    assert least.milliseconds == pytest.approx(0.278, abs=1e-3)


def test_only_pages_that_are_used_count(starter):
    least = bound(*large(starter, "gqa_paged_decode_h32_kv8_d128_ps16"), H200)
    cache = 2 * 16384 * 16 * 8 * 128 * 2
    assert cache < least.bytes < 1.01 * cache


def test_a_causal_square_is_half_of_it(starter):
    least = bound(*large(starter, "gqa_ragged_prefill_causal_h32_kv8_d128"), H200)
    whole = 4 * (8192 * 8192 / 4) * 128 * 32
    assert least.operations == pytest.approx(whole / 2)


def test_devices_by_what_they_call_themselves():
    assert gpu_called("NVIDIA H200") is H200
    assert gpu_called("NVIDIA H100 80GB HBM3") is GPUS["h100"]
    assert gpu_called("cpu") is None
