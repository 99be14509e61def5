"""What the hardware is made of: one frozen entry a NeuronCore generation, every number once.

Every constant carries its unit, its source and how far it can be trusted: `documented` (the vendor
says so), `measured` (follows from a published measurement without choosing anything), `fitted`
(chosen so that predictions meet the measurements named in the source) or `assumed`. The source that
stands at a field is trn1's; where another generation has one of its own, its entry says so.
Documents are of `aws-neuron/aws-neuron-sdk` at v2.26.1; `perf guide` is nki_perf_guide.rst, `arch
guide` nki/arch/trainium_inferentia2_arch.rst, `isa` nki/api/nki/isa. "NKIBench" are the fourteen
kernels measured on trn1 that `benchmarks/timing_accuracy.py` replays, "tutorials" the fifteen
timings of the SDK's matmul and mamba tutorials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Status = Literal["documented", "measured", "fitted", "assumed"]


@dataclass(frozen=True)
class Source:
    """Where a constant comes from."""

    unit: str
    status: Status
    note: str


def constant(unit: str, status: Status, note: str, **default: Any) -> Any:
    """A field of a `Sourced` dataclass, with where it comes from."""
    return field(metadata={"source": Source(unit, status, note)}, **default)


@dataclass(frozen=True)
class Sourced:
    """A dataclass whose constants say where they come from. `sources` are those that differ from
    what stands at the field."""

    sources: Mapping[str, Source] = field(default_factory=dict, kw_only=True)

    def source(self, name: str) -> Source:
        """Unit, status and note of a constant; KeyError for a name that is none."""
        if name in self.sources:
            return self.sources[name]
        found: Source = {item.name: item for item in fields(self)}[name].metadata["source"]
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
    dma_even_row_ns: float = constant(
        "ns", "assumed", "what a row of whole multiples of 512 B costs more than its neighbours"
    )
    dma_even_row_most_ns: float = constant(
        "ns",
        "assumed",
        "the most that dma_even_row_ns may be; nothing of the kind was seen on trn1",
    )
    hbm_conflict_stride: int = constant(
        "B",
        "fitted",
        "rope (NKIBench): rows 1 MiB apart collide in HBM: they move as if through one channel, whatever engines carry them",
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
    dma_transpose_fraction: float = constant(
        "1",
        "documented",
        "of the DMA rate (trainium2_arch.rst: up to 90%); 0 where transposing means moving "
        "element by element (perf guide, opt 10: much slower, no number)",
    )
    # Instructions.
    minimum_issue_cycles: int = constant(
        "cycles", "documented", "isa: MIN_II of Vector, Scalar and GpSimd"
    )
    access_cycles: float = constant(
        "cycles",
        "documented",
        f"{_ARCH}: about 60 cycles to open an access; bmm's and gqa's Scalar engine (NKIBench) "
        "spend 53 and 59 beyond the elements",
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
    accumulator_read_cycles: float = constant(
        "cycles", "documented", f"{_ARCH}: ActReadAccumulator"
    )
    gpsimd_start_cycles: float = constant("cycles", "documented", "isa: iota")
    reciprocal_cycles_per_element: float = constant(
        "cycles",
        "fitted",
        "silu's and adamw's Vector engine (NKIBench); isa says 8, which silu rules out",
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
        "16 of the 19 layernorms and conv1ds, on which no constant was fitted, measure between this "
        "and most_measured times their prediction",
    )
    most_measured: float = constant("1", "measured", "as least_measured")
    # Peaks that percentages of a problem's bound refer to.
    peak_memory_bytes: float = constant(
        "B/s", "documented", "arXiv 2511.15915 (NKIBench): 410 GiB/s, above what DMA reaches"
    )
    peak_vector_flops: float = constant(
        "1/s", "documented", "arXiv 2511.15915: two engines of 128 lanes at 1.12 GHz"
    )
    peak_fp32_flops: float = constant("1/s", "documented", "arXiv 2511.15915: 23.75 TFLOP/s")
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


TRN1 = Hardware(
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
    dma_even_row_ns=0.0,
    dma_even_row_most_ns=0.0,
    hbm_conflict_stride=1 << 20,
    hbm_conflict_ns=6.5,
    hbm_conflict_bytes_per_ns=132.0,
    dma_latency_ns=1300.0,
    dma_transpose_fraction=0.0,
    minimum_issue_cycles=64,
    access_cycles=60.0,
    two_input_cycles_per_element=2.11,
    vector_cycles_per_element=1.0,
    scalar_cycles_per_element=1.0,
    gpsimd_cycles_per_element=1.0,
    scan_cycles_per_element=2.11,
    engine_latency_ns=152.0,
    semaphore_ns=30.0,
    accumulator_read_cycles=64.0,
    gpsimd_start_cycles=150.0,
    reciprocal_cycles_per_element=2.47,
    matmul_pass_overhead_cycles=22.0,
    fp32_matmul_passes=2,
    fp32_matmul_cycles_per_row=2.0,
    matmul_cycles_per_row=1.0,
    fp32_exposed_load=1.0,
    exposed_load=0.25,
    fp32_transpose_passes=2,
    broadcast_passes=1,
    minimum_matmul_cycles=64.0,
    tensor_ramp_fraction=1.0,
    tensor_ramp_ns=0.0,
    tensor_ramp_use=0.0,
    tensor_ramp_reserve_ns=0.0,
    launch_ns=17500.0,
    rsqrt_error=0.0,
    least_measured=0.60,
    most_measured=1.45,
    peak_memory_bytes=410 * 2.0**30,
    peak_vector_flops=2 * 128 * 1.12e9,
    peak_fp32_flops=23.75e12,
    vector_gpsimd_exclusive=True,
    vector_scalar_psum_exclusive=True,
    copies_alternate=False,
    vector_fast_modes=False,
)

_KDA = "seven problems (measured/trn2_kernels.csv): "


def _measured(unit: str, note: str) -> Source:
    return Source(unit, "measured", _KDA + note)


def _fitted(unit: str, note: str) -> Source:
    return Source(unit, "fitted", _KDA + note)


TRN2 = replace(
    TRN1,
    name="trn2",
    calibration="calibrated on 82 measured kernels of seven problems",
    tensor_ghz=2.4,
    vector_ghz=0.96,
    scalar_ghz=1.2,
    gpsimd_ghz=1.2,
    hbm_bytes_per_ns=848.0,
    sbuf_partition_bytes=224 * 1024,
    dma_bytes_per_ns=53.0,
    dma_buffer_ns=2.1,
    dma_strided_ns=38.0,
    dma_even_row_most_ns=20.4,
    hbm_conflict_ns=3.25,
    hbm_conflict_bytes_per_ns=264.0,
    dma_latency_ns=650.0,
    dma_transpose_fraction=0.9,
    access_cycles=42.0,
    two_input_cycles_per_element=0.514,
    vector_cycles_per_element=0.514,
    scalar_cycles_per_element=0.509,
    gpsimd_cycles_per_element=0.514,
    scan_cycles_per_element=1.0,
    engine_latency_ns=152.0,
    semaphore_ns=15.0,
    reciprocal_cycles_per_element=3.8,
    matmul_pass_overhead_cycles=6.0,
    matmul_cycles_per_row=0.5,
    fp32_matmul_cycles_per_row=1.0,
    fp32_exposed_load=0.0,
    exposed_load=0.0,
    fp32_transpose_passes=1,
    broadcast_passes=2,
    tensor_ramp_fraction=0.5,
    tensor_ramp_ns=920.0,
    tensor_ramp_use=0.51,
    tensor_ramp_reserve_ns=1500.0,
    launch_ns=6000.0,
    rsqrt_error=1.46e-5,
    least_measured=0.85,
    most_measured=1.35,
    peak_memory_bytes=848e9,
    peak_vector_flops=540e9,
    peak_fp32_flops=39.3e12,
    vector_gpsimd_exclusive=False,
    vector_scalar_psum_exclusive=False,
    copies_alternate=True,
    vector_fast_modes=True,
    sources={
        "hbm_bytes_per_ns": _measured(
            "B/ns",
            "adamw moves 820 GB/s, silu 800, by one core; trainium2_arch.rst has 2.9 TB/s for "
            "the eight of a device, 362 each when all draw",
        ),
        "dma_bytes_per_ns": _fitted("B/ns", "adamw with rows of 2,304 to 7,296 B"),
        "dma_buffer_ns": _fitted("ns", "adamw with rows of 2,304 to 7,296 B"),
        "dma_strided_ns": _fitted("ns", "bmm and matmul with rows of 512 to 2,048 B"),
        "dma_even_row_ns": Source(
            "ns",
            "assumed",
            "silu's rows of 4 to 28 KiB show nothing of it, adamw's do: see the most",
        ),
        "dma_even_row_most_ns": _measured(
            "ns",
            "adamw_v1 (8,192 B) and its chunks of 768, 1,152, 1,536 and 2,304 numbers take 20 to 22 ns "
            "a row more than chunks between them; 512 and 1,024 take 14 and 5. Why is not known",
        ),
        "hbm_conflict_ns": Source("ns", "assumed", "half of trn1's, as HBM is twice as fast"),
        "hbm_conflict_bytes_per_ns": Source("B/ns", "assumed", "twice trn1's"),
        "access_cycles": _fitted(
            "cycles", "adamw's VectorE: 50 ns beyond 512 to 1,824 elements; mamba's spends 40"
        ),
        "two_input_cycles_per_element": _fitted("cycles", "adamw's VectorE, 0.535 ns an element"),
        "vector_cycles_per_element": _fitted("cycles", "as for two operands"),
        "scalar_cycles_per_element": _fitted("cycles", "silu's ScalarE, 0.424 ns an element"),
        "gpsimd_cycles_per_element": Source("cycles", "assumed", "as VectorE's"),
        "scan_cycles_per_element": _fitted("cycles", "mamba_v4's VectorE, 512 and 1,024 wide"),
        "reciprocal_cycles_per_element": _fitted(
            "cycles", "VectorE limits the published silu and adamw; isa says 8 at half this rate"
        ),
        "matmul_pass_overhead_cycles": _fitted("cycles", "matmul: 432 ns for 512 columns"),
        "matmul_cycles_per_row": _measured(
            "cycles", "matmul_v3: 111 ns for a product of 512 bf16 columns"
        ),
        "fp32_matmul_cycles_per_row": _measured(
            "cycles", "matmul_v2_b4: 432 ns for 512 columns, in two instructions (bmm's notes)"
        ),
        "fp32_exposed_load": _measured("1", "matmul_v2_b4: nothing is left for it"),
        "exposed_load": _measured("1", "matmul_v3: nothing is left for it"),
        "fp32_transpose_passes": _measured("1", "bmm counts one instruction a transpose"),
        "broadcast_passes": _measured(
            "1", "mamba_v2: 864 ns for a row of 512, at the half rate of what uses one row"
        ),
        "tensor_ramp_fraction": Source(
            "1",
            "documented",
            "Neuron Explorer, understanding throttling: trn2 and trn3 start at 50%",
        ),
        "tensor_ramp_ns": _fitted(
            "ns",
            "bmm's versions; documented is about 3 us, and every rate measured here is twice the "
            "documented one",
        ),
        "tensor_ramp_use": _measured(
            "1",
            "about 50% by the document; bmm_v1, whose products and transposes use 50.8% of the rows, "
            "runs at half rate, and bmm's baseline, with 53%, mostly at the full one",
        ),
        "tensor_ramp_reserve_ns": _fitted(
            "ns", "bmm_d1_bblk2 and bblk4: how long products of half the rows stay fast"
        ),
        "dma_latency_ns": _measured(
            "ns",
            "bmm_probe_bf16 stores 4,096 tiles in 1.56 ms from four buffers, each free after its "
            "copy, this and the transfer; half of trn1's, as every rate is twice the documented",
        ),
        "semaphore_ns": Source("ns", "assumed", "half of trn1's, as dma_latency_ns"),
        "launch_ns": _fitted("ns", "silu_v3: DMA is active for 99% of 0.294 ms"),
        "rsqrt_error": _measured(
            "1",
            "add_rmsnorm_matmul_v1 and v2 are off by 1.4635e-5 on every seed, and with operands split "
            "into bf16, 4.45e-6, by 1.528e-5, the root of both squares. It is not the product: "
            "bmm_v2 alone is off by 1.83e-7, matmul_v3 by no more than its split",
        ),
        "peak_memory_bytes": _measured("B/s", "as hbm_bytes_per_ns"),
        "least_measured": _measured(
            "1",
            "90% of 58 kernels of five problems, predicted by constants fitted on the other four, "
            "lie between this and most_measured (timing_accuracy.py --fit)",
        ),
        "most_measured": _measured("1", "as least_measured"),
        "peak_vector_flops": _measured("1/s", "VectorE and ScalarE at the rates above"),
        "peak_fp32_flops": _measured("1/s", "the Tensor engine at the rate above"),
        "copies_alternate": _measured(
            "1", "bmm's two engines copy about half of PSUM's tiles each"
        ),
    },
)

TRN3 = replace(
    TRN2,
    name="trn3",
    calibration="from documentation only: nothing was measured on trn3, trn2's rates are assumed",
    vector_ghz=1.2,
    hbm_bytes_per_ns=1056.0,
    sbuf_partition_bytes=256 * 1024,
    dma_bytes_per_ns=66.0,
    peak_memory_bytes=1056e9,
    sources={
        **{
            name: replace(source, status="assumed", note=f"as on trn2: {source.note}")
            for name, source in TRN2.sources.items()
        },
        "tensor_ramp_fraction": TRN2.source("tensor_ramp_fraction"),
        "vector_ghz": Source("GHz", "documented", "trainium3_arch.rst"),
        "sbuf_partition_bytes": Source("B", "documented", "trainium3_arch.rst: 32 MiB"),
        "dma_bytes_per_ns": Source(
            "B/ns",
            "assumed",
            "nki-dma-bandwidth-guide has 33 where trn2 has 23; trn2 was measured at twice that",
        ),
        "hbm_bytes_per_ns": Source("B/ns", "assumed", "what the DMA engines move"),
        "peak_memory_bytes": Source("B/s", "assumed", "what the DMA engines move"),
        "least_measured": Source("1", "assumed", "trn2's; nothing was measured"),
        "most_measured": Source("1", "assumed", "trn2's; nothing was measured"),
    },
)

TARGETS: Mapping[str, Hardware] = {"trn1": TRN1, "trn2": TRN2, "trn3": TRN3}
"""Every generation that kernels can be timed for."""
