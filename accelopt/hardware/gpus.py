"""The GPUs as compiler, roofline and rules see them: every number with its source in `gpus.csv`."""

from __future__ import annotations

from dataclasses import dataclass

from accelopt.hardware.neuroncore import Sourced, constants_of


@dataclass(frozen=True)
class GPU(Sourced):
    """The constants of one GPU."""

    name: str
    capability: int
    multiprocessors: int
    gigabytes_per_second: float
    half_tflops: float
    single_tflops: float
    l2_bytes: int
    l2_gigabytes_per_second: float
    shared_bytes: int
    block_reserve_bytes: int
    plain_shared_bytes: int
    sector_bytes: int
    warps: int
    blocks: int
    registers: int
    thread_registers: int
    warp_threads: int
    single_results_per_clock: int
    special_results_per_clock: int

    @property
    def block_shared_bytes(self) -> int:
        """The most shared memory that a block may have."""
        return self.shared_bytes - self.block_reserve_bytes

    @property
    def special_per_second(self) -> float:
        """Results of special functions a second, at the clock of the data sheet's peak."""
        clock = self.single_tflops * 1e12 / (2 * self.single_results_per_clock)
        return clock * self.special_results_per_clock


_TABLE = constants_of("hardware/gpus.csv")
H200 = GPU.stated(_TABLE["h200"], name="NVIDIA H200")
H100 = H200.changed(_TABLE["h100"], name="NVIDIA H100 80GB HBM3")
A100 = H200.changed(_TABLE["a100"], name="NVIDIA A100-SXM4-80GB")
GPUS = {"h200": H200, "h100": H100, "a100": A100}
DEFAULT_GPU = "h200"


def gpu_called(hardware: str) -> GPU | None:
    """The GPU that a device calls itself, or None when it is not listed."""
    for gpu in GPUS.values():
        if gpu.name == hardware or gpu.name.split()[1] in hardware.split():
            return gpu
    return None
