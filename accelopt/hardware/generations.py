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
    descriptors_ns=0.0,
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
    function_ns=0.0,
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
    least_measured=0.865,
    most_measured=1.22,
    gain_spread=1.20,
    peak_memory_bytes=410 * 2.0**30,
    peak_dma_bytes=16 * 27.2e9,
    vector_gpsimd_exclusive=True,
    vector_scalar_psum_exclusive=True,
    copies_alternate=False,
    vector_fast_modes=False,
)

_ARCH = "trainium2_arch.rst"
_PROFILES = "eight instruction-level profiles (measured/trn2_instructions.csv): "


def _documented(unit: str, note: str) -> Provenance:
    return Provenance(unit, "documented", note)


def _measured(unit: str, note: str) -> Provenance:
    return Provenance(unit, "measured", note)


def _fitted(unit: str, note: str) -> Provenance:
    return Provenance(unit, "fitted", note)


TRN2 = replace(
    TRN1,
    name="trn2",
    calibration="calibrated on measured kernels of several sources (docs/timing.md)",
    generation=3,
    tensor_ghz=2.4,
    vector_ghz=0.96,
    scalar_ghz=1.2,
    gpsimd_ghz=1.2,
    hbm_bytes_per_ns=716.0,
    sbuf_partition_bytes=224 * 1024,
    dma_bytes_per_ns=27.2,
    dma_buffer_ns=4.0,
    dma_strided_ns=0.0,
    dma_unaligned_ns=12.0,
    hbm_conflict_ns=0.0,
    hbm_conflict_bytes_per_ns=265.0,
    dma_latency_ns=1300.0,
    descriptors_ns=650.0,
    dma_transpose_fraction=0.9,
    access_cycles=60.0,
    vector_access_cycles=60.0,
    two_input_cycles_per_element=1.03,
    vector_cycles_per_element=1.03,
    scalar_cycles_per_element=1.02,
    gpsimd_cycles_per_element=1.03,
    scan_cycles_per_element=2.0,
    engine_latency_ns=155.0,
    function_ns=120.0,
    reciprocal_cycles_per_element=8.0,
    matmul_pass_overhead_cycles=6.0,
    matmul_cycles_per_row=1.0,
    fp32_matmul_cycles_per_row=2.0,
    fp32_exposed_load=0.0,
    exposed_load=0.0,
    fp32_transpose_passes=1,
    broadcast_passes=2,
    tensor_ramp_fraction=0.5,
    tensor_ramp_ns=3000.0,
    tensor_ramp_use=0.5085,
    tensor_ramp_reserve_ns=1900.0,
    launch_ns=9500.0,
    rsqrt_error=1.46e-5,
    peak_memory_bytes=435e9,
    vector_gpsimd_exclusive=False,
    vector_scalar_psum_exclusive=False,
    copies_alternate=True,
    vector_fast_modes=True,
    sources={
        "generation": _documented("1", f"{_ARCH}: NeuronCore-v3"),
        "hbm_bytes_per_ns": _documented(
            "B/ns", "profile metadata; 2.9 TB/s for the eight of a device"
        ),
        "dma_bytes_per_ns": _documented(
            "B/ns", "profile metadata: 435 GB/s for 16 engines; a packet of 4 KiB takes 158 ns"
        ),
        "dma_buffer_ns": _measured(
            "ns", _PROFILES + "packets of 4 B to 4 KiB take 8 ns and their bytes, two lists"
        ),
        "dma_strided_ns": _measured(
            "ns", "rows of 1 KiB that lie apart move at 350 GB/s (fusion_mlp_bf16, trn2_public.csv)"
        ),
        "dma_unaligned_ns": _measured(
            "ns",
            "adamw's chunks of 684 and 1,368 numbers (16 and 32 B past a multiple of 64) keep the DMA "
            "engines busy for 12.4 and 11.6 ns a row more than the five between 576 and 1,824",
        ),
        "hbm_conflict_ns": _fitted(
            "ns", "rope's rows of 512 B to 16 KiB, 1 MiB apart: none is seen"
        ),
        "hbm_conflict_bytes_per_ns": _fitted("B/ns", "rope: 258 to 293 GB/s"),
        "descriptors_ns": _measured(
            "ns",
            "blocked products of bf16 and copies of 256 B rows (trn2_public.csv) take 650 to 660 a "
            "transfer; nki-dge.rst: about 600 by hardware",
        ),
        "access_cycles": _documented("cycles", "as on trn1"),
        "vector_access_cycles": _documented("cycles", "as on trn1"),
        "two_input_cycles_per_element": _fitted("cycles", "adamw's VectorE, 1.07 ns an element"),
        "vector_cycles_per_element": _fitted("cycles", "as for two operands"),
        "scalar_cycles_per_element": _fitted("cycles", "silu's ScalarE, 0.85 ns an element"),
        "gpsimd_cycles_per_element": Provenance("cycles", "assumed", "as VectorE's"),
        "scan_cycles_per_element": _fitted("cycles", "mamba_v4's VectorE, 512 and 1,024 wide"),
        "engine_latency_ns": _measured(
            "ns", _PROFILES + "copies and reductions take 152 to 158 ns beyond their elements"
        ),
        "function_ns": _measured("ns", _PROFILES + "512 exponentials take 707 ns, copies 585"),
        "reciprocal_cycles_per_element": _documented(
            "cycles", f"isa; {_PROFILES}8 elements take 35 ns longer than 4"
        ),
        "matmul_pass_overhead_cycles": _measured(
            "cycles", _PROFILES + "512 columns of bf16 216.5 ns, 128 of them 55"
        ),
        "matmul_cycles_per_row": _documented("cycles", f"{_ARCH}: 79 TFLOP/s at 2.4 GHz"),
        "fp32_matmul_cycles_per_row": _documented(
            "cycles", f"{_ARCH}: 20 TFLOP/s; {_PROFILES}428 ns a pass of 512 columns, two of them"
        ),
        "fp32_exposed_load": _measured("1", _PROFILES + "products follow each other without a gap"),
        "exposed_load": _measured("1", _PROFILES + "products follow each other without a gap"),
        "fp32_transpose_passes": _measured("1", "bmm counts one instruction a transpose"),
        "broadcast_passes": _measured(
            "1", "mamba_v2: 1,728 ns for a row of 512, at the half rate of what uses one row"
        ),
        "tensor_ramp_fraction": _documented(
            "1", "Neuron Explorer, understanding throttling: trn2 and trn3 start at 50%"
        ),
        "tensor_ramp_ns": _documented(
            "ns", "Neuron Explorer, understanding throttling: about 3 us"
        ),
        "tensor_ramp_use": _measured(
            "1",
            "about 50% by the document; bmm_v1, whose products and transposes use 50.8% of the rows, "
            "runs at half rate, and bmm's baseline, with 53%, mostly at the full one",
        ),
        "tensor_ramp_reserve_ns": _fitted(
            "ns", "bmm_d1_bblk2 and bblk4: how long products of half the rows stay fast"
        ),
        "dma_latency_ns": _documented("ns", "nki-dma-bandwidth-guide: semaphore to first byte"),
        "semaphore_ns": Provenance("ns", "assumed", "as on trn1"),
        "launch_ns": _fitted(
            "ns", "fusion_mlp at 128 x 128 x 512 and copy_tiled (trn2_public.csv)"
        ),
        "rsqrt_error": _measured(
            "1",
            "add_rmsnorm_matmul_v1 and v2 are off by 1.4635e-5 on every seed, and with operands split "
            "into bf16, 4.45e-6, by 1.528e-5, the root of both squares. It is not the product: "
            "bmm_v2 alone is off by 1.83e-7, matmul_v3 by no more than its split",
        ),
        "peak_memory_bytes": _documented("B/s", "as dma_bytes_per_ns"),
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
    hbm_bytes_per_ns=1160.0,
    sbuf_partition_bytes=256 * 1024,
    dma_bytes_per_ns=38.0,
    peak_memory_bytes=16 * 38e9,
    peak_dma_bytes=16 * 38.4e9,
    sources={
        **{
            name: replace(source, status="assumed", note=f"as on trn2: {source.note}")
            for name, source in TRN2.sources.items()
        },
        "tensor_ramp_fraction": TRN2.source("tensor_ramp_fraction"),
        "generation": _documented("1", "trainium3_arch.rst: NeuronCore-v4"),
        "vector_ghz": _documented("GHz", "trainium3_arch.rst"),
        "sbuf_partition_bytes": _documented("B", "trainium3_arch.rst: 32 MiB"),
        "dma_bytes_per_ns": Provenance(
            "B/ns",
            "assumed",
            "trn2's by trainium3.rst, which has 4.9 TB/s for eight cores where trn2 has 3.5",
        ),
        "hbm_bytes_per_ns": Provenance(
            "B/ns", "assumed", "trn2's by trainium3_arch.rst, which has 4.7 TB/s where trn2 has 2.9"
        ),
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
