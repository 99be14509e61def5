"""GPUs as the compiler and the roofline see them. Hardware is data."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """Capability times ten; bytes of shared memory a block; rates at their published peak; the L2 cache
    with the rate at which it gives."""

    name: str
    capability: int
    shared_memory_bytes: int
    multiprocessors: int
    gigabytes_per_second: float
    half_tflops: float
    single_tflops: float
    l2_bytes: int
    l2_gigabytes_per_second: float


# Shared memory: CUDA programming guide, technical specifications by compute capability, less the
# 1 KiB a block that the system keeps. Rates: NVIDIA data sheets of the SXM parts, dense. L2: what devices
# say of themselves; its rate of A100 5120 bytes a clock (whitepaper), of H200 (and H100, the same chip) by
# Nsight Compute: 8.79 GB in 1.177 ms kept it 90% busy.
TARGETS = {
    "h200": Target("NVIDIA H200", 90, 232448, 132, 4800.0, 989.0, 67.0, 62914560, 8300.0),
    "h100": Target("NVIDIA H100 80GB HBM3", 90, 232448, 132, 3350.0, 989.0, 67.0, 52428800, 8300.0),
    "a100": Target("NVIDIA A100-SXM4-80GB", 80, 166912, 108, 2039.0, 312.0, 19.5, 41943040, 7219.0),
}
DEFAULT_TARGET = "h200"
REGISTERS = 255
"""The most that a thread may have (CUDA programming guide, technical specifications)."""


def target_of(hardware: str) -> Target | None:
    """The target that a device calls itself, or None when it is not listed."""
    for target in TARGETS.values():
        if target.name == hardware or target.name.split()[1] in hardware.split():
            return target
    return None
