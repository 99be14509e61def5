"""What the hardware is made of, one frozen table a NeuronCore generation; and the compiler's bounds.

Every constant carries its unit, its source and how far it can be trusted: `documented` (the vendor
says so), `measured` (follows from a published measurement without choosing anything), `fitted`
(chosen so that predictions meet the measurements named in the source) or `assumed`. Documents are of
`aws-neuron/aws-neuron-sdk` at v2.26.1; `perf guide` is nki_perf_guide.rst, `arch guide`
nki/arch/trainium_inferentia2_arch.rst, `isa` nki/api/nki/isa. "NKIBench" are the fourteen kernels
measured on trn1 that `benchmarks/timing_accuracy.py` replays, "tutorials" the fifteen timings of the
SDK's matmul and mamba tutorials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

Status = Literal["documented", "measured", "fitted", "assumed"]


@dataclass(frozen=True)
class Source:
    """Where a constant comes from."""

    unit: str
    status: Status
    note: str


def _known(unit: str, status: Status, note: str) -> Mapping[str, Source]:
    return {"source": Source(unit, status, note)}


_ARCH = "arch guide"


@dataclass(frozen=True)
class Sourced:
    """A dataclass whose constants say where they come from."""

    @classmethod
    def source(cls, name: str) -> Source:
        """Unit, status and note of a constant; KeyError for a name that is none."""
        for item in fields(cls):
            if item.name == name and "source" in item.metadata:
                found: Source = item.metadata["source"]
                return found
        raise KeyError(name)

    @classmethod
    def constants(cls) -> tuple[str, ...]:
        """The names of all constants that have a source."""
        return tuple(item.name for item in fields(cls) if "source" in item.metadata)


@dataclass(frozen=True)
class Spec(Sourced):
    """The constants of one NeuronCore generation. `source(name)` tells where a field comes from,
    `calibration` on what the whole was fitted."""

    name: str
    calibration: str
    # Clocks and peaks.
    tensor_ghz: float = field(metadata=_known("GHz", "documented", f"{_ARCH}, engine table"))
    vector_ghz: float = field(metadata=_known("GHz", "documented", f"{_ARCH}, engine table"))
    scalar_ghz: float = field(metadata=_known("GHz", "documented", f"{_ARCH}, engine table"))
    gpsimd_ghz: float = field(metadata=_known("GHz", "documented", f"{_ARCH}, engine table"))
    hbm_bytes_per_ns: float = field(
        metadata=_known("B/ns", "documented", f"{_ARCH}: 820 GB/s for the two cores of a device")
    )
    # Memories.
    sbuf_partition_bytes: int = field(
        metadata=_known("B", "documented", f"{_ARCH}: 24 MiB in 128 partitions")
    )
    sbuf_reserved_bytes: int = field(
        metadata=_known(
            "B",
            "documented",
            "nki_direct_allocation_guide.rst: 16 KiB of each partition are the compiler's",
        )
    )
    psum_partition_bytes: int = field(metadata=_known("B", "documented", _ARCH))
    psum_bank_bytes: int = field(metadata=_known("B", "documented", f"{_ARCH}: 8 banks"))
    partitions: int = field(metadata=_known("1", "documented", _ARCH))
    # DMA.
    dma_engines: int = field(metadata=_known("1", "documented", "nki-dma-overview: 16 a core"))
    dma_partitions_per_engine: int = field(
        metadata=_known("1", "documented", "nki-dma-overview: 128 partitions over 16 engines")
    )
    dma_bytes_per_ns: float = field(
        metadata=_known(
            "B/ns",
            "measured",
            "matmul (NKIBench) moves 4 KiB in 249 ns, a silu of 28 KiB rows averages 294 GB/s over 16 "
            "engines (reference/timing.md 1.2); nki-dma-bandwidth-guide calls 17 the practical peak",
        )
    )
    dma_buffer_ns: float = field(
        metadata=_known(
            "ns",
            "assumed",
            f"of each entry in a transfer's lists of source and of destination buffers ({_ARCH}: "
            "there is one, no figure); two of them and dma_bytes_per_ns meet the 4 KiB of matmul. "
            "33 ns a pair charged element-wise stores too much in a blind test (issue 5)",
        )
    )
    dma_strided_ns: float = field(
        metadata=_known(
            "ns",
            "measured",
            "most that a row costs for not following the one before: with its two buffers 150 ns. "
            "nki-dma-intro-1.jpg has 2 KiB at .81 of the peak, 1 KiB at .42; the hoisted matmul "
            "tutorial moves 1 KiB in 162 ns",
        )
    )
    dma_strided_ns_per_byte: float = field(
        metadata=_known(
            "ns/B",
            "fitted",
            "tutorials: loading 256 B rows as well costs matmul 34 ns a row or more; up to "
            "dma_strided_ns",
        )
    )
    hbm_conflict_stride: int = field(
        metadata=_known(
            "B",
            "fitted",
            "rope (NKIBench): rows 1 MiB apart collide in HBM: they move as if through one channel, whatever engines carry them",
        )
    )
    hbm_conflict_ns: float = field(
        metadata=_known(
            "ns",
            "fitted",
            "rope (NKIBench): 4.333 ms, its variants 3.78 and 3.33 ms; together "
            "with hbm_conflict_bytes_per_ns",
        )
    )
    hbm_conflict_bytes_per_ns: float = field(
        metadata=_known("B/ns", "fitted", "rope (NKIBench), as hbm_conflict_ns")
    )
    dma_latency_ns: float = field(
        metadata=_known("ns", "documented", "nki-dma-bandwidth-guide: semaphore to first byte")
    )
    dma_transpose_fraction: float = field(
        metadata=_known(
            "1",
            "documented",
            "of the DMA rate (trainium2_arch.rst: up to 90%); 0 where transposing means moving "
            "element by element (perf guide, opt 10: much slower, no number)",
        )
    )
    # Instructions.
    minimum_issue_cycles: int = field(
        metadata=_known("cycles", "documented", "isa: MIN_II of Vector, Scalar and GpSimd")
    )
    access_cycles: float = field(
        metadata=_known(
            "cycles",
            "documented",
            f"{_ARCH}: about 60 cycles to open an access; bmm's and gqa's Scalar engine (NKIBench) "
            "spend 53 and 59 beyond the elements",
        )
    )
    two_input_cycles_per_element: float = field(
        metadata=_known(
            "cycles",
            "fitted",
            "isa: 2N for two SBUF operands; mamba's and rope's Vector engine (NKIBench) are active "
            "for 2.11 N",
        )
    )
    engine_latency_ns: float = field(
        metadata=_known(
            "ns",
            "measured",
            "perf guide fig. 16: an ACTIVATE of one element takes 159 ns; 704 copies of "
            "transpose_matmul (NKIBench) take 152 ns beyond their elements",
        )
    )
    semaphore_ns: float = field(
        metadata=_known("ns", "measured", "perf guide opt 5a: 189 ns between dependent 159 ns ops")
    )
    accumulator_read_cycles: float = field(
        metadata=_known("cycles", "documented", f"{_ARCH}: ActReadAccumulator")
    )
    gpsimd_start_cycles: float = field(metadata=_known("cycles", "documented", "isa: iota"))
    reciprocal_cycles_per_element: float = field(
        metadata=_known(
            "cycles",
            "fitted",
            "silu's and adamw's Vector engine (NKIBench); isa says 8, which silu rules out",
        )
    )
    matmul_pass_overhead_cycles: float = field(
        metadata=_known(
            "cycles", "fitted", "transpose_matmul (NKIBench): beyond the exposed stationary load"
        )
    )
    fp32_matmul_passes: int = field(
        metadata=_known(
            "1", "measured", "NKIBench: PSUM writes and flops of fp32 matmuls count exactly double"
        )
    )
    fp32_matmul_cycles_per_row: float = field(
        metadata=_known("cycles", "documented", "isa: fp32 costs 4 times bf16; two passes, 2 each")
    )
    fast_load_factor: float = field(
        metadata=_known("1", "documented", f"{_ARCH}: LoadStationary up to 4 times faster")
    )
    minimum_matmul_cycles: float = field(
        metadata=_known("cycles", "documented", f"{_ARCH}: MM_INIT_LATENCY")
    )
    launch_ns: float = field(
        metadata=_known(
            "ns", "measured", "img/mamba_v1_profile.png: 12.5 us before the first DMA, 5 us after"
        )
    )
    # What the generation lifts.
    vector_gpsimd_exclusive: bool = field(
        metadata=_known("1", "documented", f"{_ARCH}: they cannot access SBUF in parallel")
    )
    vector_scalar_psum_exclusive: bool = field(
        metadata=_known("1", "documented", f"{_ARCH}: they cannot access PSUM in parallel")
    )
    vector_fast_modes: bool = field(
        metadata=_known("1", "documented", "trainium2_arch.rst: 2x and 4x modes for 16-bit data")
    )
    fp32_transpose_factor: float = field(
        metadata=_known("1", "documented", "trainium2_arch.rst: transpose mode, 2x for fp32")
    )

    @property
    def sbuf_usable_bytes(self) -> int:
        """Bytes of a partition that a kernel's tiles can take."""
        return self.sbuf_partition_bytes - self.sbuf_reserved_bytes

    @property
    def peak_bf16_flops_per_ns(self) -> float:
        """Multiply-adds of the whole array, two operations each."""
        return 2 * self.partitions * self.partitions * self.tensor_ghz

    @property
    def dma_peak_bytes_per_ns(self) -> float:
        """All DMA engines together."""
        return self.dma_engines * self.dma_bytes_per_ns

    @property
    def fastest_vector_mode(self) -> int:
        """The most elements of a partition that the Vector engine takes in one cycle."""
        return 4 if self.vector_fast_modes else 1

    def ghz(self, engine: str) -> float:
        """The clock of one of the four compute engines."""
        return {
            "tensor": self.tensor_ghz,
            "vector": self.vector_ghz,
            "scalar": self.scalar_ghz,
            "gpsimd": self.gpsimd_ghz,
        }[engine]


TRN1 = Spec(
    name="trn1",
    calibration="calibrated on fourteen measured kernels and fifteen tutorial timings",
    tensor_ghz=2.8,
    vector_ghz=1.12,
    scalar_ghz=1.4,
    gpsimd_ghz=1.4,
    hbm_bytes_per_ns=410.0,
    sbuf_partition_bytes=192 * 1024,
    sbuf_reserved_bytes=16 * 1024,
    psum_partition_bytes=16 * 1024,
    psum_bank_bytes=2 * 1024,
    partitions=128,
    dma_engines=16,
    dma_partitions_per_engine=8,
    dma_bytes_per_ns=17.7,
    dma_buffer_ns=8.0,
    dma_strided_ns=134.0,
    dma_strided_ns_per_byte=0.15,
    hbm_conflict_stride=1 << 20,
    hbm_conflict_ns=6.5,
    hbm_conflict_bytes_per_ns=132.0,
    dma_latency_ns=1300.0,
    dma_transpose_fraction=0.0,
    minimum_issue_cycles=64,
    access_cycles=60.0,
    two_input_cycles_per_element=2.11,
    engine_latency_ns=152.0,
    semaphore_ns=30.0,
    accumulator_read_cycles=64.0,
    gpsimd_start_cycles=150.0,
    reciprocal_cycles_per_element=2.47,
    matmul_pass_overhead_cycles=22.0,
    fp32_matmul_passes=2,
    fp32_matmul_cycles_per_row=2.0,
    fast_load_factor=4.0,
    minimum_matmul_cycles=64.0,
    launch_ns=17500.0,
    vector_gpsimd_exclusive=True,
    vector_scalar_psum_exclusive=True,
    vector_fast_modes=False,
    fp32_transpose_factor=1.0,
)

TRN2 = Spec(
    name="trn2",
    calibration="from documentation only: no kernel was measured, trn1's fitted values are kept",
    tensor_ghz=2.4,
    vector_ghz=0.96,
    scalar_ghz=1.2,
    gpsimd_ghz=1.2,
    hbm_bytes_per_ns=375.0,
    sbuf_partition_bytes=224 * 1024,
    sbuf_reserved_bytes=16 * 1024,
    psum_partition_bytes=16 * 1024,
    psum_bank_bytes=2 * 1024,
    partitions=128,
    dma_engines=16,
    dma_partitions_per_engine=8,
    dma_bytes_per_ns=23.9,
    dma_buffer_ns=8.0,
    dma_strided_ns=92.0,
    dma_strided_ns_per_byte=0.15,
    hbm_conflict_stride=1 << 20,
    hbm_conflict_ns=6.5,
    hbm_conflict_bytes_per_ns=132.0,
    dma_latency_ns=1300.0,
    dma_transpose_fraction=0.9,
    minimum_issue_cycles=64,
    access_cycles=60.0,
    two_input_cycles_per_element=2.11,
    engine_latency_ns=152.0,
    semaphore_ns=30.0,
    accumulator_read_cycles=64.0,
    gpsimd_start_cycles=150.0,
    reciprocal_cycles_per_element=2.47,
    matmul_pass_overhead_cycles=22.0,
    fp32_matmul_passes=2,
    fp32_matmul_cycles_per_row=2.0,
    fast_load_factor=4.0,
    minimum_matmul_cycles=64.0,
    launch_ns=17500.0,
    vector_gpsimd_exclusive=False,
    vector_scalar_psum_exclusive=False,
    vector_fast_modes=True,
    fp32_transpose_factor=2.0,
)

SPECS: dict[str, Spec] = {"trn1": TRN1, "trn2": TRN2}


@dataclass(frozen=True)
class CompilerBounds(Sourced):
    """The numbers by which the emulated compiler decides; the same for every generation."""

    merge_window_bytes: float = field(
        default=1200 * 1024,
        metadata=_known(
            "B a partition",
            "fitted",
            "NKIBench: what may be defined between two occurrences of work that is done once",
        ),
    )
    load_window_bytes: float = field(
        default=256 * 1024,
        metadata=_known(
            "B a partition",
            "fitted",
            "NKIBench: the same between two loads; unlimited, matmul and transpose_matmul read too "
            "little",
        ),
    )
    tiny_elements: int = field(
        default=32,
        metadata=_known(
            "elements a partition",
            "assumed",
            "widest instruction that counts as tiny: half of the 64 cycles that one takes at least",
        ),
    )
    widest_elements: int = field(
        default=512,
        metadata=_known(
            "elements a partition",
            "documented",
            "widest instruction that tiny ones become: what a PSUM bank holds in fp32",
        ),
    )
    reload_horizon: int = field(
        default=100,
        metadata=_known(
            "instructions",
            "fitted",
            "NKIBench: how far the choice of what leaves SBUF looks ahead. mamba spills one of two "
            "partial sums (from 95), lora nearly all of them (up to 256); what gqa and bmm_softmax "
            "move differs by 1% over that range",
        ),
    )
    repeat_share: float = field(
        default=0.85,
        metadata=_known(
            "part of SBUF",
            "fitted",
            "NKIBench: a loaded array that takes more is loaded anew for every pass over it, when not "
            "everything fits. matmul reads its right-hand side 32 times, gqa keeps 128 KiB of v",
        ),
    )
    load_buffers: int = field(
        default=2,
        metadata=_known(
            "times what is live",
            "fitted",
            "NKIBench: buffers of a tile that DMA loads; silu's loads are double-buffered, no more",
        ),
    )
    load_buffer_bytes: int = field(
        default=8 * 1024,
        metadata=_known(
            "B a partition",
            "fitted",
            "NKIBench: as many buffers of loaded tiles as this holds, when that is more",
        ),
    )
    computed_buffers: int = field(
        default=4,
        metadata=_known("times what is live", "fitted", "NKIBench: buffers of a computed tile"),
    )
    lookahead: tuple[int, ...] = field(
        default=(16, 5, 5, 8, 64),
        metadata=_known(
            "instructions",
            "fitted",
            "gqa, adamw and add_rmsnorm_matmul (NKIBench): how far the queues of tensor, vector, "
            "scalar, gpsimd and DMA look ahead; for vector and scalar 4 is too few for adamw (+15%), "
            "8 too many for gqa (-10%)",
        ),
    )


COMPILER_BOUNDS = CompilerBounds()
