"""The constants of every NeuronCore generation, and the sources where they are not trn1's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from accelopt.hardware.neuroncore import Hardware, Provenance

TRN1 = Hardware(
    name="trn1",
    calibration="calibrated on fourteen measured kernels and fifteen tutorial timings",
    generation=2,
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
    dma_unaligned_ns=0.0,
    hbm_conflict_stride=1 << 20,
    hbm_conflict_ns=6.5,
    hbm_conflict_bytes_per_ns=132.0,
    dma_latency_ns=1300.0,
    dma_transpose_fraction=0.0,
    minimum_issue_cycles=64,
    dynamic_issue_cycles=600,
    access_cycles=60.0,
    vector_access_cycles=42.0,
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
    quantize_cycles_per_element=0.25,
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
    least_measured=0.78,
    most_measured=1.50,
    gain_spread=1.73,
    peak_memory_bytes=410 * 2.0**30,
    peak_dma_bytes=16 * 27.2e9,
    vector_gpsimd_exclusive=True,
    vector_scalar_psum_exclusive=True,
    copies_alternate=False,
    vector_fast_modes=False,
)

_KDA = "seven problems (measured/trn2_kernels.csv): "


def _measured(unit: str, note: str) -> Provenance:
    return Provenance(unit, "measured", _KDA + note)


def _fitted(unit: str, note: str) -> Provenance:
    return Provenance(unit, "fitted", _KDA + note)


TRN2 = replace(
    TRN1,
    name="trn2",
    calibration="calibrated on 82 measured kernels of seven problems",
    generation=3,
    tensor_ghz=2.4,
    vector_ghz=0.96,
    scalar_ghz=1.2,
    gpsimd_ghz=1.2,
    hbm_bytes_per_ns=848.0,
    sbuf_partition_bytes=224 * 1024,
    dma_bytes_per_ns=53.0,
    dma_buffer_ns=2.1,
    dma_strided_ns=38.0,
    dma_unaligned_ns=6.0,
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
    tensor_ramp_ns=1500.0,
    tensor_ramp_use=0.5085,
    tensor_ramp_reserve_ns=950.0,
    launch_ns=6000.0,
    rsqrt_error=1.46e-5,
    peak_memory_bytes=848e9,
    vector_gpsimd_exclusive=False,
    vector_scalar_psum_exclusive=False,
    copies_alternate=True,
    vector_fast_modes=True,
    sources={
        "generation": Provenance("1", "documented", "trainium2_arch.rst: NeuronCore-v3"),
        "hbm_bytes_per_ns": _measured(
            "B/ns",
            "adamw moves 820 GB/s, silu 800, by one core; trainium2_arch.rst has 2.9 TB/s for "
            "the eight of a device, 362 each when all draw",
        ),
        "dma_bytes_per_ns": _fitted("B/ns", "adamw with rows of 2,304 to 7,296 B"),
        "dma_buffer_ns": _fitted("ns", "adamw with rows of 2,304 to 7,296 B"),
        "dma_strided_ns": _fitted("ns", "bmm and matmul with rows of 512 to 2,048 B"),
        "dma_unaligned_ns": _measured(
            "ns",
            "adamw's chunks of 684 and 1,368 numbers (16 and 32 B past a multiple of 64) keep the DMA "
            "engines busy for 6.2 and 5.8 ns a row more than the five between 576 and 1,824",
        ),
        "hbm_conflict_ns": Provenance("ns", "assumed", "half of trn1's, as HBM is twice as fast"),
        "hbm_conflict_bytes_per_ns": Provenance("B/ns", "assumed", "twice trn1's"),
        "access_cycles": _fitted(
            "cycles", "adamw's VectorE: 50 ns beyond 512 to 1,824 elements; mamba's spends 40"
        ),
        "vector_access_cycles": _fitted("cycles", "as access_cycles"),
        "two_input_cycles_per_element": _fitted("cycles", "adamw's VectorE, 0.535 ns an element"),
        "vector_cycles_per_element": _fitted("cycles", "as for two operands"),
        "scalar_cycles_per_element": _fitted("cycles", "silu's ScalarE, 0.424 ns an element"),
        "gpsimd_cycles_per_element": Provenance("cycles", "assumed", "as VectorE's"),
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
        "tensor_ramp_fraction": Provenance(
            "1",
            "documented",
            "Neuron Explorer, understanding throttling: trn2 and trn3 start at 50%",
        ),
        "tensor_ramp_ns": Provenance(
            "ns",
            "assumed",
            "half of the documented 3 us, as every rate measured here is twice the documented one",
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
        "semaphore_ns": Provenance("ns", "assumed", "half of trn1's, as dma_latency_ns"),
        "launch_ns": _fitted("ns", "silu_v3: DMA is active for 99% of 0.294 ms"),
        "rsqrt_error": _measured(
            "1",
            "add_rmsnorm_matmul_v1 and v2 are off by 1.4635e-5 on every seed, and with operands split "
            "into bf16, 4.45e-6, by 1.528e-5, the root of both squares. It is not the product: "
            "bmm_v2 alone is off by 1.83e-7, matmul_v3 by no more than its split",
        ),
        "peak_memory_bytes": _measured("B/s", "as hbm_bytes_per_ns"),
        "copies_alternate": _measured(
            "1", "bmm's two engines copy about half of PSUM's tiles each"
        ),
    },
)

TRN3 = replace(
    TRN2,
    name="trn3",
    calibration="from documentation only: nothing was measured on trn3, trn2's rates are assumed",
    generation=4,
    vector_ghz=1.2,
    hbm_bytes_per_ns=1056.0,
    sbuf_partition_bytes=256 * 1024,
    dma_bytes_per_ns=66.0,
    peak_memory_bytes=1056e9,
    peak_dma_bytes=16 * 38.4e9,
    sources={
        **{
            name: replace(source, status="assumed", note=f"as on trn2: {source.note}")
            for name, source in TRN2.sources.items()
        },
        "tensor_ramp_fraction": TRN2.source("tensor_ramp_fraction"),
        "generation": Provenance("1", "documented", "trainium3_arch.rst: NeuronCore-v4"),
        "vector_ghz": Provenance("GHz", "documented", "trainium3_arch.rst"),
        "sbuf_partition_bytes": Provenance("B", "documented", "trainium3_arch.rst: 32 MiB"),
        "dma_bytes_per_ns": Provenance(
            "B/ns",
            "assumed",
            "nki-dma-bandwidth-guide has 33 where trn2 has 23; trn2 was measured at twice that",
        ),
        "hbm_bytes_per_ns": Provenance("B/ns", "assumed", "what the DMA engines move"),
        "peak_memory_bytes": Provenance("B/s", "assumed", "what the DMA engines move"),
        "least_measured": Provenance("1", "assumed", "trn2's; nothing was measured"),
        "most_measured": Provenance("1", "assumed", "trn2's; nothing was measured"),
        "gain_spread": Provenance("1", "assumed", "trn2's; nothing was measured"),
    },
)

TARGETS: Mapping[str, Hardware] = {"trn1": TRN1, "trn2": TRN2, "trn3": TRN3}
"""Every generation that kernels can be timed for."""


def calibrated(target: str, constants: Mapping[str, float] | None = None) -> Hardware:
    """The core of a generation, with the constants of one machine in place of the table's."""
    return replace(TARGETS[target], **(constants or {}))  # type: ignore[arg-type]
