"""What a NeuronCore is described by: the constants with their units, and trn1's source of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Evidence = Literal["documented", "measured", "fitted", "assumed"]


@dataclass(frozen=True)
class Provenance:
    """Where a constant comes from."""

    unit: str
    status: Evidence
    note: str


def constant(unit: str, status: Evidence, note: str, **default: Any) -> Any:
    """A field of a `Sourced` dataclass, with where it comes from."""
    return field(metadata={"source": Provenance(unit, status, note)}, **default)


@dataclass(frozen=True)
class Sourced:
    """A dataclass whose constants say where they come from. `sources` are those that differ from
    what stands at the field."""

    sources: Mapping[str, Provenance] = field(default_factory=dict, kw_only=True)

    def source(self, name: str) -> Provenance:
        """Unit, status and note of a constant; KeyError for a name that is none."""
        if name in self.sources:
            return self.sources[name]
        found: Provenance = {item.name: item for item in fields(self)}[name].metadata["source"]
        return found

    @classmethod
    def constants(cls) -> tuple[str, ...]:
        """The names of all constants that have a source."""
        return tuple(item.name for item in fields(cls) if "source" in item.metadata)


_ARCH = "arch guide"


@dataclass(frozen=True)
class Hardware(Sourced):
    """The constants of one NeuronCore generation. `calibration` says on what the whole was fitted."""

    name: str
    calibration: str
    # Clocks and peaks.
    generation: int = constant("1", "documented", f"{_ARCH}: NeuronCore-v2, nc_version.gen2")
    tensor_ghz: float = constant("GHz", "documented", f"{_ARCH}, engine table")
    vector_ghz: float = constant("GHz", "documented", f"{_ARCH}, engine table")
    scalar_ghz: float = constant("GHz", "documented", f"{_ARCH}, engine table")
    gpsimd_ghz: float = constant("GHz", "documented", f"{_ARCH}, engine table")
    hbm_bytes_per_ns: float = constant(
        "B/ns", "documented", f"{_ARCH}: 820 GB/s for the two cores of a device"
    )
    # Memories.
    sbuf_partition_bytes: int = constant("B", "documented", f"{_ARCH}: 24 MiB in 128 partitions")
    sbuf_reserved_bytes: int = constant(
        "B",
        "documented",
        "nki_direct_allocation_guide.rst: 16 KiB of each partition are the compiler's",
    )
    psum_partition_bytes: int = constant("B", "documented", _ARCH)
    psum_bank_bytes: int = constant("B", "documented", f"{_ARCH}: 8 banks")
    partitions: int = constant("1", "documented", _ARCH)
    # DMA.
    dma_engines: int = constant("1", "documented", "nki-dma-overview: 16 a core")
    dma_partitions_per_engine: int = constant(
        "1", "documented", "nki-dma-overview: 128 partitions over 16 engines"
    )
    dma_bytes_per_ns: float = constant(
        "B/ns",
        "measured",
        "matmul (NKIBench) moves 4 KiB in 249 ns, a silu of 28 KiB rows averages 294 GB/s over 16 "
        "engines (reference/timing.md 1.2); nki-dma-bandwidth-guide calls 17 the practical peak",
    )
    dma_buffer_ns: float = constant(
        "ns",
        "assumed",
        f"of each entry in a transfer's lists of source and of destination buffers ({_ARCH}: "
        "there is one, no figure); two of them and dma_bytes_per_ns meet the 4 KiB of matmul. "
        "33 ns a pair charged element-wise stores too much in a blind test (issue 5)",
    )
    dma_strided_ns: float = constant(
        "ns",
        "measured",
        "most that a row costs for not following the one before: with its two buffers 150 ns. "
        "nki-dma-intro-1.jpg has 2 KiB at .81 of the peak, 1 KiB at .42; the hoisted matmul "
        "tutorial moves 1 KiB in 162 ns",
    )
    dma_strided_ns_per_byte: float = constant(
        "ns/B",
        "fitted",
        "tutorials: loading 256 B rows as well costs matmul 34 ns a row or more; up to "
        "dma_strided_ns",
    )
    dma_unaligned_ns: float = constant(
        "ns",
        "assumed",
        "of a row that does not begin and end at multiples of 64 B in HBM; nothing was measured on "
        "trn1",
    )
    hbm_conflict_stride: int = constant(
        "B",
        "fitted",
        "rope (NKIBench): rows 1 MiB apart collide in HBM: they move as if through one channel, "
        "whatever engines carry them",
    )
    hbm_conflict_ns: float = constant(
        "ns",
        "fitted",
        "rope (NKIBench): 4.333 ms, its variants 3.78 and 3.33 ms; together "
        "with hbm_conflict_bytes_per_ns",
    )
    hbm_conflict_bytes_per_ns: float = constant(
        "B/ns", "fitted", "rope (NKIBench), as hbm_conflict_ns"
    )
    dma_latency_ns: float = constant(
        "ns", "documented", "nki-dma-bandwidth-guide: semaphore to first byte"
    )
    descriptors_ns: float = constant(
        "ns",
        "assumed",
        "of a ring for the descriptors of one transfer, where they are made while the kernel runs; "
        "nothing was measured on trn1",
    )
    dma_transpose_fraction: float = constant(
        "1",
        "documented",
        "of the DMA rate (trainium2_arch.rst: up to 90%); 0 where transposing means moving "
        "element by element (perf guide, opt 10: much slower, no number)",
    )
    # Instructions.
    minimum_issue_cycles: int = constant(
        "cycles",
        "documented",
        "isa: MIN_II of Scalar and GpSimd; of Vector too, but conv1d's take less",
    )
    dynamic_issue_cycles: int = constant(
        "cycles",
        "documented",
        "isa: MIN_II_DYNAMIC, of a copy whose place is read at run time",
    )
    access_cycles: float = constant(
        "cycles",
        "documented",
        f"{_ARCH}: about 60 cycles to open an access; bmm's and gqa's Scalar engine (NKIBench) "
        "spend 53 and 59 beyond the elements",
    )
    vector_access_cycles: float = constant(
        "cycles",
        "fitted",
        "for each access that VectorE opens after the last one: conv1d's products of two operands in "
        "SBUF and sums of three elements take 136 cycles a pair (s00), of one in PSUM 84 (s05), and "
        f"pairs of 192 elements 468 (s06). {_ARCH} has 60, partly hidden; trn2's VectorE spends 42",
    )
    two_input_cycles_per_element: float = constant(
        "cycles",
        "fitted",
        "isa: 2N for two SBUF operands; mamba's and rope's Vector engine (NKIBench) are active "
        "for 2.11 N",
    )
    vector_cycles_per_element: float = constant("cycles", "documented", "isa: N of one operand")
    scalar_cycles_per_element: float = constant("cycles", "documented", "isa: N")
    gpsimd_cycles_per_element: float = constant("cycles", "documented", "isa: iota, affine_select")
    scan_cycles_per_element: float = constant("cycles", "fitted", "as for two operands in SBUF")
    engine_latency_ns: float = constant(
        "ns",
        "measured",
        "perf guide fig. 16: an ACTIVATE of one element takes 159 ns; 704 copies of "
        "transpose_matmul (NKIBench) take 152 ns beyond their elements",
    )
    semaphore_ns: float = constant(
        "ns", "measured", "perf guide opt 5a: 189 ns between dependent 159 ns ops"
    )
    function_ns: float = constant(
        "ns",
        "assumed",
        "by which the result of a function of ScalarE comes later than a copy's; nothing was measured "
        "on trn1",
    )
    accumulator_read_cycles: float = constant(
        "cycles", "documented", f"{_ARCH}: ActReadAccumulator"
    )
    gpsimd_start_cycles: float = constant("cycles", "documented", "isa: iota")
    reciprocal_cycles_per_element: float = constant(
        "cycles",
        "fitted",
        "silu's and adamw's Vector engine (NKIBench); isa says 8, which silu rules out",
    )
    quantize_cycles_per_element: float = constant(
        "cycles",
        "documented",
        "trainium3_arch.rst: QuantizeMX takes four elements of a partition a cycle (trn3 only)",
    )
    matmul_pass_overhead_cycles: float = constant(
        "cycles", "fitted", "transpose_matmul (NKIBench): beyond the exposed stationary load"
    )
    fp32_matmul_passes: int = constant(
        "1", "measured", "NKIBench: PSUM writes and flops of fp32 matmuls count exactly double"
    )
    fp32_matmul_cycles_per_row: float = constant(
        "cycles", "documented", "isa: fp32 costs 4 times bf16; two passes, 2 each"
    )
    matmul_cycles_per_row: float = constant(
        "cycles", "documented", "isa: of 16-bit and 8-bit operands, max(64, N)"
    )
    fp32_exposed_load: float = constant(
        "1",
        "measured",
        "part of the load of a stationary tile, a cycle a column, that no pass hides: "
        "transpose_matmul (NKIBench) pays all of it",
    )
    exposed_load: float = constant(
        "1", "documented", f"the same of narrow operands, {_ARCH}: up to 4 times faster"
    )
    fp32_transpose_passes: int = constant(
        "1",
        "measured",
        "NKIBench: a transpose of fp32 counts and costs as much as another product",
    )
    broadcast_passes: int = constant(
        "1", "measured", "mamba tutorial v2 and v3: a row is spread by one pass"
    )
    minimum_matmul_cycles: float = constant("cycles", "documented", f"{_ARCH}: MM_INIT_LATENCY")
    tensor_ramp_fraction: float = constant(
        "1",
        "documented",
        "of its rate that the Tensor engine has while its use is low (Neuron Explorer, understanding "
        "throttling); 1 where no such limit is documented",
    )
    tensor_ramp_ns: float = constant("ns", "documented", "full use for so long lifts that limit")
    tensor_ramp_use: float = constant("1", "documented", "use of its rows that keeps it lifted")
    tensor_ramp_reserve_ns: float = constant(
        "ns", "documented", "of full use, by which earlier work can make up for lower use"
    )
    launch_ns: float = constant(
        "ns", "measured", "img/mamba_v1_profile.png: 12.5 us before the first DMA, 5 us after"
    )
    # What an engine computes otherwise than IEEE fp32 does.
    rsqrt_error: float = constant(
        "1",
        "assumed",
        "relative L2 error of the Scalar engine's rsqrt; nobody published one of trn1",
    )
    # How far predictions can be trusted.
    least_measured: float = constant(
        "1",
        "measured",
        "eight of ten kernels of a source that nothing was learned from measure between this and "
        "most_measured times their prediction (benchmarks/timing_intervals.py, 28 families of nine "
        "sources on trn1 and trn2)",
    )
    most_measured: float = constant("1", "measured", "as least_measured")
    gain_spread: float = constant(
        "1",
        "measured",
        "eight of ten gains from one version of such a kernel to another measure between the predicted "
        "one over this and times this (benchmarks/timing_intervals.py)",
    )
    # Rates that nothing exceeds, which a problem's bound is made of.
    peak_memory_bytes: float = constant(
        "B/s", "documented", "arXiv 2511.15915 (NKIBench): 410 GiB/s, above what DMA reaches"
    )
    peak_dma_bytes: float = constant(
        "B/s",
        "documented",
        "nki-dma-overview: 16 engines of 27.2 GB/s in theory on NeuronCore-v2 and v3, 38.4 on v4",
    )
    # What the generation lifts.
    vector_gpsimd_exclusive: bool = constant(
        "1", "documented", f"{_ARCH}: they cannot access SBUF in parallel"
    )
    vector_scalar_psum_exclusive: bool = constant(
        "1", "documented", f"{_ARCH}: they cannot access PSUM in parallel"
    )
    copies_alternate: bool = constant(
        "1",
        "measured",
        "NKIBench: all copies whose engine is open are ScalarE's, which excludes VectorE from PSUM",
    )
    vector_fast_modes: bool = constant(
        "1", "documented", "trainium2_arch.rst: 2x and 4x modes for 16-bit data"
    )

    @property
    def sbuf_usable_bytes(self) -> int:
        """Bytes of a partition that a kernel's tiles can take."""
        return self.sbuf_partition_bytes - self.sbuf_reserved_bytes

    @property
    def was_measured(self) -> bool:
        """False for a generation of which nobody has published a latency that was compared."""
        return self.source("least_measured").status == "measured"

    @property
    def peak_bf16_flops_per_ns(self) -> float:
        """Multiply-adds of the whole array, two operations each."""
        return 2 * self.partitions * self.partitions * self.tensor_ghz

    @property
    def dma_peak_bytes_per_ns(self) -> float:
        """All DMA engines together."""
        return self.dma_engines * self.dma_bytes_per_ns

    @property
    def matmul_limit(self) -> float:
        """FLOPs a ns of products in the fastest format, which operands of 16 bits have."""
        return self.peak_bf16_flops_per_ns / self.matmul_cycles_per_row

    @property
    def hbm_limit(self) -> float:
        """B/ns that HBM never exceeds: its peak, or the rate in use where a machine has a higher one."""
        return max(self.peak_memory_bytes * 1e-9, self.hbm_bytes_per_ns)

    @property
    def dma_limit(self) -> float:
        """B/ns that all DMA engines together never exceed, as `hbm_limit`."""
        return max(self.peak_dma_bytes * 1e-9, self.dma_peak_bytes_per_ns)

    @property
    def fastest_vector_mode(self) -> int:
        """By how much the Vector engine's fastest mode takes elements faster than fp32's."""
        return 4 if self.vector_fast_modes else 1

    def ghz(self, engine: str) -> float:
        """The clock of one of the four compute engines, or of the sequencers (assumed)."""
        return {
            "tensor": self.tensor_ghz,
            "vector": self.vector_ghz,
            "scalar": self.scalar_ghz,
            "gpsimd": self.gpsimd_ghz,
            "sync": self.gpsimd_ghz,
        }[engine]
