"""The GPUs as compiler, roofline and rules see them: one entry each, every number with its source."""

from __future__ import annotations

from dataclasses import dataclass

from accelopt.hardware.neuroncore import Sourced, assumed, documented, measured

_SHEET = "NVIDIA data sheet of the SXM part, dense"
_TABLE = "CUDA programming guide, technical specifications by compute capability"
_RATES = "CUDA programming guide, arithmetic throughput"


@dataclass(frozen=True)
class GPU(Sourced):
    """The constants of one GPU; the source that stands at a field is the H200's."""

    name: str
    capability: int = documented(90, "1", f"compute capability times ten; {_TABLE}")
    multiprocessors: int = documented(132, "1", "what the device says of itself")
    gigabytes_per_second: float = documented(4800.0, "GB/s", _SHEET)
    half_tflops: float = documented(989.0, "TFLOP/s", f"16-bit tensor cores; {_SHEET}")
    single_tflops: float = documented(67.0, "TFLOP/s", f"single precision; {_SHEET}")
    l2_bytes: int = documented(60 << 20, "B", "what the device says of itself")
    l2_gigabytes_per_second: float = measured(
        8300.0, "GB/s", "Nsight Compute: 8.79 GB in 1.177 ms kept the L2 cache 90% busy"
    )
    shared_bytes: int = documented(228 << 10, "B", f"of a multiprocessor; {_TABLE}")
    block_reserve_bytes: int = documented(
        1024, "B", "of shared memory, which the system keeps of each block"
    )
    plain_shared_bytes: int = documented(
        48 << 10,
        "B",
        "of a block without asking for more; CUDA programming guide, dynamic shared memory",
    )
    sector_bytes: int = documented(
        32, "B", "the least that a cache asks for; Nsight Compute, memory tables"
    )
    warps: int = documented(64, "1", f"of a multiprocessor; {_TABLE}")
    blocks: int = documented(32, "1", f"of a multiprocessor; {_TABLE}")
    registers: int = documented(65536, "1", f"of a multiprocessor; {_TABLE}")
    thread_registers: int = documented(255, "1", f"at most; {_TABLE}")
    warp_threads: int = documented(32, "1", _TABLE)
    single_results_per_clock: int = documented(
        128, "1", f"multiply-adds of a multiprocessor; {_RATES}"
    )
    special_results_per_clock: int = documented(16, "1", f"of a multiprocessor; {_RATES}")

    @property
    def block_shared_bytes(self) -> int:
        """The most shared memory that a block may have."""
        return self.shared_bytes - self.block_reserve_bytes

    @property
    def special_per_second(self) -> float:
        """Results of special functions a second, at the clock of the data sheet's peak."""
        clock = self.single_tflops * 1e12 / (2 * self.single_results_per_clock)
        return clock * self.special_results_per_clock


H200 = GPU(name="NVIDIA H200")
H100 = H200.changed(
    name="NVIDIA H100 80GB HBM3",
    gigabytes_per_second=3350.0,
    l2_bytes=50 << 20,
    l2_gigabytes_per_second=assumed(8300.0, "GB/s", "the H200's: the same chip"),
)
A100 = H200.changed(
    name="NVIDIA A100-SXM4-80GB",
    capability=80,
    multiprocessors=108,
    gigabytes_per_second=2039.0,
    half_tflops=312.0,
    single_tflops=19.5,
    l2_bytes=40 << 20,
    l2_gigabytes_per_second=documented(7219.0, "GB/s", "A100 whitepaper: 5120 bytes a clock"),
    shared_bytes=164 << 10,
    single_results_per_clock=64,
)
GPUS = {"h200": H200, "h100": H100, "a100": A100}
DEFAULT_GPU = "h200"


def gpu_called(hardware: str) -> GPU | None:
    """The GPU that a device calls itself, or None when it is not listed."""
    for gpu in GPUS.values():
        if gpu.name == hardware or gpu.name.split()[1] in hardware.split():
            return gpu
    return None
