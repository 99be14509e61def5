"""The GPUs as compiler, roofline and rules see them: one entry each, every number with its source."""

from __future__ import annotations

from dataclasses import dataclass, replace

from accelopt.hardware.neuroncore import Provenance, Sourced, constant

_SHEET = "NVIDIA data sheet of the SXM part, dense"
_TABLE = "CUDA programming guide, technical specifications by compute capability"
_RATES = "CUDA programming guide, arithmetic throughput"


@dataclass(frozen=True)
class GPU(Sourced):
    """The constants of one GPU; the source that stands at a field is the H200's."""

    name: str
    capability: int = constant("1", "documented", f"compute capability times ten; {_TABLE}")
    multiprocessors: int = constant("1", "documented", "what the device says of itself")
    gigabytes_per_second: float = constant("GB/s", "documented", _SHEET)
    half_tflops: float = constant("TFLOP/s", "documented", f"16-bit tensor cores; {_SHEET}")
    single_tflops: float = constant("TFLOP/s", "documented", f"single precision; {_SHEET}")
    l2_bytes: int = constant("B", "documented", "what the device says of itself")
    l2_gigabytes_per_second: float = constant(
        "GB/s", "measured", "Nsight Compute: 8.79 GB in 1.177 ms kept the L2 cache 90% busy"
    )
    shared_bytes: int = constant("B", "documented", f"of a multiprocessor; {_TABLE}")
    block_reserve_bytes: int = constant(
        "B", "documented", "of shared memory, which the system keeps of each block", default=1024
    )
    plain_shared_bytes: int = constant(
        "B",
        "documented",
        "of a block without asking for more; CUDA programming guide, dynamic shared memory",
        default=48 << 10,
    )
    sector_bytes: int = constant(
        "B",
        "documented",
        "the least that a cache asks for; Nsight Compute, memory tables",
        default=32,
    )
    warps: int = constant("1", "documented", f"of a multiprocessor; {_TABLE}", default=64)
    blocks: int = constant("1", "documented", f"of a multiprocessor; {_TABLE}", default=32)
    registers: int = constant("1", "documented", f"of a multiprocessor; {_TABLE}", default=65536)
    thread_registers: int = constant("1", "documented", f"at most; {_TABLE}", default=255)
    warp_threads: int = constant("1", "documented", _TABLE, default=32)
    grid_limit: int = constant(
        "1", "documented", f"blocks along any axis but the first; {_TABLE}", default=65535
    )
    single_results_per_clock: int = constant(
        "1", "documented", f"multiply-adds of a multiprocessor; {_RATES}", default=128
    )
    special_results_per_clock: int = constant(
        "1", "documented", f"of a multiprocessor; {_RATES}", default=16
    )

    @property
    def block_shared_bytes(self) -> int:
        """The most shared memory that a block may have."""
        return self.shared_bytes - self.block_reserve_bytes

    @property
    def special_per_second(self) -> float:
        """Results of special functions a second, at the clock of the data sheet's peak."""
        clock = self.single_tflops * 1e12 / (2 * self.single_results_per_clock)
        return clock * self.special_results_per_clock


H200 = GPU(
    name="NVIDIA H200",
    capability=90,
    multiprocessors=132,
    gigabytes_per_second=4800.0,
    half_tflops=989.0,
    single_tflops=67.0,
    l2_bytes=60 << 20,
    l2_gigabytes_per_second=8300.0,
    shared_bytes=228 << 10,
)
H100 = replace(
    H200,
    name="NVIDIA H100 80GB HBM3",
    gigabytes_per_second=3350.0,
    l2_bytes=50 << 20,
    sources={
        "l2_gigabytes_per_second": Provenance("GB/s", "assumed", "the H200's: the same chip"),
    },
)
A100 = GPU(
    name="NVIDIA A100-SXM4-80GB",
    capability=80,
    multiprocessors=108,
    gigabytes_per_second=2039.0,
    half_tflops=312.0,
    single_tflops=19.5,
    l2_bytes=40 << 20,
    l2_gigabytes_per_second=7219.0,
    shared_bytes=164 << 10,
    single_results_per_clock=64,
    sources={
        "l2_gigabytes_per_second": Provenance(
            "GB/s", "documented", "A100 whitepaper: 5120 bytes a clock"
        ),
    },
)
GPUS = {"h200": H200, "h100": H100, "a100": A100}
DEFAULT_GPU = "h200"


def gpu_called(hardware: str) -> GPU | None:
    """The GPU that a device calls itself, or None when it is not listed."""
    for gpu in GPUS.values():
        if gpu.name == hardware or gpu.name.split()[1] in hardware.split():
            return gpu
    return None
