"""What a NeuronCore is described by: the constants with their units, and trn1's source of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Literal, Self, get_args

Evidence = Literal["documented", "measured", "fitted", "assumed"]


@dataclass(frozen=True)
class Provenance:
    """Where a constant comes from."""

    unit: str
    status: Evidence
    note: str


def _stated(status: Evidence) -> Callable[[Any, str, str], Any]:
    def constant(value: Any, unit: str, note: str) -> Any:
        return field(default=value, metadata={"source": Provenance(unit, status, note)})

    return constant


documented, measured, fitted, assumed = map(_stated, get_args(Evidence))
"""A constant with its unit and where it comes from: a field of a `Sourced` dataclass, or its other value in
`changed`."""


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

    def changed(self, **constants: Any) -> Self:
        """The same with other values; of those that are plain, units and sources stay."""
        new = {name: one for name, one in constants.items() if isinstance(one, Field)}
        sources = {name: one.metadata["source"] for name, one in new.items()}
        values = {name: one.default for name, one in new.items()}
        return replace(self, **constants | values, sources={**self.sources, **sources})

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
    generation: int = documented(2, "1", f"{_ARCH}: NeuronCore-v2, nc_version.gen2")
    tensor_ghz: float = documented(2.8, "GHz", f"{_ARCH}, engine table")
    vector_ghz: float = documented(1.12, "GHz", f"{_ARCH}, engine table")
    scalar_ghz: float = documented(1.4, "GHz", f"{_ARCH}, engine table")
    gpsimd_ghz: float = documented(1.4, "GHz", f"{_ARCH}, engine table")
    hbm_bytes_per_ns: float = documented(
        410.0, "B/ns", f"{_ARCH}: 820 GB/s for the two cores of a device"
    )
    # Memories.
    sbuf_partition_bytes: int = documented(192 * 1024, "B", f"{_ARCH}: 24 MiB in 128 partitions")
    sbuf_reserved_bytes: int = documented(
        16 * 1024,
        "B",
        "nki_direct_allocation_guide.rst: 16 KiB of each partition are the compiler's",
    )
    psum_partition_bytes: int = documented(16 * 1024, "B", _ARCH)
    psum_bank_bytes: int = documented(2 * 1024, "B", f"{_ARCH}: 8 banks")
    partitions: int = documented(128, "1", _ARCH)
    # DMA.
    dma_engines: int = documented(16, "1", "nki-dma-overview: 16 a core")
    dma_partitions_per_engine: int = documented(
        8, "1", "nki-dma-overview: 128 partitions over 16 engines"
    )
    dma_bytes_per_ns: float = measured(
        17.7,
        "B/ns",
        "matmul (NKIBench) moves 4 KiB in 249 ns, a silu of 28 KiB rows averages 294 GB/s over 16 "
        "engines (reference/timing.md 1.2); nki-dma-bandwidth-guide calls 17 the practical peak",
    )
    dma_buffer_ns: float = assumed(
        8.0,
        "ns",
        f"of each entry in a transfer's lists of source and of destination buffers ({_ARCH}: "
        "there is one, no figure); two of them and dma_bytes_per_ns meet the 4 KiB of matmul. "
        "33 ns a pair charged element-wise stores too much in a blind test (issue 5)",
    )
    dma_strided_ns: float = measured(
        134.0,
        "ns",
        "most that a row costs for not following the one before: with its two buffers 150 ns. "
        "nki-dma-intro-1.jpg has 2 KiB at .81 of the peak, 1 KiB at .42; the hoisted matmul "
        "tutorial moves 1 KiB in 162 ns",
    )
    dma_strided_ns_per_byte: float = fitted(
        0.15,
        "ns/B",
        "tutorials: loading 256 B rows as well costs matmul 34 ns a row or more; up to "
        "dma_strided_ns",
    )
    dma_unaligned_ns: float = assumed(
        0.0,
        "ns",
        "of a row that does not begin and end at multiples of 64 B in HBM; nothing was measured on "
        "trn1",
    )
    hbm_conflict_stride: int = fitted(
        1 << 20,
        "B",
        "rope (NKIBench): rows 1 MiB apart collide in HBM: they move as if through one channel, "
        "whatever engines carry them",
    )
    hbm_conflict_ns: float = fitted(
        6.5,
        "ns",
        "rope (NKIBench): 4.333 ms, its variants 3.78 and 3.33 ms; together "
        "with hbm_conflict_bytes_per_ns",
    )
    hbm_conflict_bytes_per_ns: float = fitted(132.0, "B/ns", "rope (NKIBench), as hbm_conflict_ns")
    dma_latency_ns: float = documented(
        1300.0, "ns", "nki-dma-bandwidth-guide: semaphore to first byte"
    )
    descriptors_ns: float = assumed(
        0.0,
        "ns",
        "of a ring for the descriptors of one transfer, where they are made while the kernel runs; "
        "nothing was measured on trn1",
    )
    dma_transpose_fraction: float = documented(
        0.0,
        "1",
        "of the DMA rate (trainium2_arch.rst: up to 90%); 0 where transposing means moving "
        "element by element (perf guide, opt 10: much slower, no number)",
    )
    # Instructions.
    minimum_issue_cycles: int = documented(
        64, "cycles", "isa: MIN_II of Scalar and GpSimd; of Vector too, but conv1d's take less"
    )
    dynamic_issue_cycles: int = documented(
        600, "cycles", "isa: MIN_II_DYNAMIC, of a copy whose place is read at run time"
    )
    access_cycles: float = documented(
        60.0,
        "cycles",
        f"{_ARCH}: about 60 cycles to open an access; bmm's and gqa's Scalar engine (NKIBench) "
        "spend 53 and 59 beyond the elements",
    )
    vector_access_cycles: float = fitted(
        42.0,
        "cycles",
        "for each access that VectorE opens after the last one: conv1d's products of two operands in "
        "SBUF and sums of three elements take 136 cycles a pair (s00), of one in PSUM 84 (s05), and "
        f"pairs of 192 elements 468 (s06). {_ARCH} has 60, partly hidden; trn2's VectorE spends 42",
    )
    two_input_cycles_per_element: float = fitted(
        2.11,
        "cycles",
        "isa: 2N for two SBUF operands; mamba's and rope's Vector engine (NKIBench) are active "
        "for 2.11 N",
    )
    vector_cycles_per_element: float = documented(1.0, "cycles", "isa: N of one operand")
    scalar_cycles_per_element: float = documented(1.0, "cycles", "isa: N")
    gpsimd_cycles_per_element: float = documented(1.0, "cycles", "isa: iota, affine_select")
    scan_cycles_per_element: float = fitted(2.11, "cycles", "as for two operands in SBUF")
    engine_latency_ns: float = measured(
        152.0,
        "ns",
        "perf guide fig. 16: an ACTIVATE of one element takes 159 ns; 704 copies of "
        "transpose_matmul (NKIBench) take 152 ns beyond their elements",
    )
    semaphore_ns: float = measured(
        30.0, "ns", "perf guide opt 5a: 189 ns between dependent 159 ns ops"
    )
    function_ns: float = assumed(
        0.0,
        "ns",
        "by which the result of a function of ScalarE comes later than a copy's; nothing was measured "
        "on trn1",
    )
    accumulator_read_cycles: float = documented(64.0, "cycles", f"{_ARCH}: ActReadAccumulator")
    gpsimd_start_cycles: float = documented(150.0, "cycles", "isa: iota")
    reciprocal_cycles_per_element: float = fitted(
        2.47,
        "cycles",
        "silu's and adamw's Vector engine (NKIBench); isa says 8, which silu rules out",
    )
    quantize_cycles_per_element: float = documented(
        0.25,
        "cycles",
        "trainium3_arch.rst: QuantizeMX takes four elements of a partition a cycle (trn3 only)",
    )
    matmul_pass_overhead_cycles: float = fitted(
        22.0, "cycles", "transpose_matmul (NKIBench): beyond the exposed stationary load"
    )
    fp32_matmul_passes: int = measured(
        2, "1", "NKIBench: PSUM writes and flops of fp32 matmuls count exactly double"
    )
    fp32_matmul_cycles_per_row: float = documented(
        2.0, "cycles", "isa: fp32 costs 4 times bf16; two passes, 2 each"
    )
    matmul_cycles_per_row: float = documented(
        1.0, "cycles", "isa: of 16-bit and 8-bit operands, max(64, N)"
    )
    fp32_exposed_load: float = measured(
        1.0,
        "1",
        "part of the load of a stationary tile, a cycle a column, that no pass hides: "
        "transpose_matmul (NKIBench) pays all of it",
    )
    exposed_load: float = documented(
        0.25, "1", f"the same of narrow operands, {_ARCH}: up to 4 times faster"
    )
    fp32_transpose_passes: int = measured(
        2, "1", "NKIBench: a transpose of fp32 counts and costs as much as another product"
    )
    broadcast_passes: int = measured(
        1, "1", "mamba tutorial v2 and v3: a row is spread by one pass"
    )
    minimum_matmul_cycles: float = documented(64.0, "cycles", f"{_ARCH}: MM_INIT_LATENCY")
    tensor_ramp_fraction: float = documented(
        1.0,
        "1",
        "of its rate that the Tensor engine has while its use is low (Neuron Explorer, understanding "
        "throttling); 1 where no such limit is documented",
    )
    tensor_ramp_ns: float = documented(0.0, "ns", "full use for so long lifts that limit")
    tensor_ramp_use: float = documented(0.0, "1", "use of its rows that keeps it lifted")
    tensor_ramp_reserve_ns: float = documented(
        0.0, "ns", "of full use, by which earlier work can make up for lower use"
    )
    launch_ns: float = measured(
        17500.0, "ns", "img/mamba_v1_profile.png: 12.5 us before the first DMA, 5 us after"
    )
    # What an engine computes otherwise than IEEE fp32 does.
    rsqrt_error: float = assumed(
        0.0, "1", "relative L2 error of the Scalar engine's rsqrt; nobody published one of trn1"
    )
    # How far predictions can be trusted.
    least_measured: float = measured(
        0.91,
        "1",
        "eight of ten kernels of a source that nothing was learned from measure between this and "
        "most_measured times their prediction (benchmarks/timing_intervals.py, 28 families of nine "
        "sources on trn1 and trn2)",
    )
    most_measured: float = measured(1.22, "1", "as least_measured")
    gain_spread: float = measured(
        1.19,
        "1",
        "eight of ten gains from one version of such a kernel to another measure between the predicted "
        "one over this and times this (benchmarks/timing_intervals.py)",
    )
    # Rates that nothing exceeds, which a problem's bound is made of.
    peak_memory_bytes: float = documented(
        410 * 2.0**30, "B/s", "arXiv 2511.15915 (NKIBench): 410 GiB/s, above what DMA reaches"
    )
    peak_dma_bytes: float = documented(
        16 * 27.2e9,
        "B/s",
        "nki-dma-overview: 16 engines of 27.2 GB/s in theory on NeuronCore-v2 and v3, 38.4 on v4",
    )
    # What the generation lifts.
    vector_gpsimd_exclusive: bool = documented(
        True, "1", f"{_ARCH}: they cannot access SBUF in parallel"
    )
    vector_scalar_psum_exclusive: bool = documented(
        True, "1", f"{_ARCH}: they cannot access PSUM in parallel"
    )
    vector_fast_modes: bool = documented(
        False, "1", "trainium2_arch.rst: 2x and 4x modes for 16-bit data"
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
