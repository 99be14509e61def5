"""The constants of every NeuronCore generation, and the sources where they are not trn1's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from accelopt.hardware.neuroncore import Hardware, assumed, documented, fitted, measured

TRN1 = Hardware(
    name="trn1",
    calibration="calibrated on fourteen measured kernels and fifteen tutorial timings",
)

_ARCH = "trainium2_arch.rst"
_PROFILES = "eight instruction-level profiles (measured/trn2_instructions.csv): "


TRN2 = TRN1.changed(
    name="trn2",
    calibration="calibrated on measured kernels of several sources (docs/timing.md)",
    generation=documented(3, "1", f"{_ARCH}: NeuronCore-v3"),
    tensor_ghz=2.4,
    vector_ghz=0.96,
    scalar_ghz=1.2,
    gpsimd_ghz=1.2,
    hbm_bytes_per_ns=documented(
        716.0, "B/ns", "profile metadata; 2.9 TB/s for the eight of a device"
    ),
    sbuf_partition_bytes=224 * 1024,
    dma_bytes_per_ns=documented(
        27.2, "B/ns", "profile metadata: 435 GB/s for 16 engines; a packet of 4 KiB takes 158 ns"
    ),
    dma_buffer_ns=measured(
        4.0, "ns", _PROFILES + "packets of 4 B to 4 KiB take 8 ns and their bytes, two lists"
    ),
    dma_strided_ns=measured(
        0.0,
        "ns",
        "rows of 1 KiB that lie apart move at 350 GB/s (fusion_mlp_bf16, trn2_public.csv)",
    ),
    dma_unaligned_ns=measured(
        12.0,
        "ns",
        "adamw's chunks of 684 and 1,368 numbers (16 and 32 B past a multiple of 64) keep the DMA "
        "engines busy for 12.4 and 11.6 ns a row more than the five between 576 and 1,824",
    ),
    hbm_conflict_ns=fitted(0.0, "ns", "rope's rows of 512 B to 16 KiB, 1 MiB apart: none is seen"),
    hbm_conflict_bytes_per_ns=fitted(265.0, "B/ns", "rope: 258 to 293 GB/s"),
    dma_latency_ns=documented(
        1300.0,
        "ns",
        f"nki-dma-bandwidth-guide: semaphore to first byte; {_PROFILES}1.2 to 1.4 us with "
        "descriptors by hardware, 1.8 to 2.0 by software",
    ),
    descriptors_ns=measured(
        650.0,
        "ns",
        "blocked products of bf16 and copies of 256 B rows (trn2_public.csv) take 650 to 660 a "
        "transfer by software; nki-dge.rst: about 600 by hardware, within dma_latency_ns",
    ),
    dma_transpose_fraction=0.9,
    access_cycles=documented(60.0, "cycles", "as on trn1"),
    vector_access_cycles=documented(60.0, "cycles", "as on trn1"),
    two_input_cycles_per_element=documented(
        1.0, "cycles", f"{_ARCH}: 256 of fp32, of two operands; chipboost's sums take as long"
    ),
    scalar_cycles_per_element=fitted(1.02, "cycles", "silu's ScalarE, 0.85 ns an element"),
    scan_cycles_per_element=fitted(2.0, "cycles", "mamba_v4's VectorE, 512 and 1,024 wide"),
    engine_latency_ns=measured(
        155.0, "ns", _PROFILES + "copies and reductions take 152 to 158 ns beyond their elements"
    ),
    function_ns=measured(120.0, "ns", _PROFILES + "512 exponentials take 707 ns, copies 585"),
    reciprocal_cycles_per_element=documented(
        8.0, "cycles", f"isa; {_PROFILES}8 elements take 35 ns longer than 4"
    ),
    matmul_pass_overhead_cycles=measured(
        6.0, "cycles", _PROFILES + "512 columns of bf16 216.5 ns, 128 of them 55"
    ),
    matmul_cycles_per_row=documented(1.0, "cycles", f"{_ARCH}: 79 TFLOP/s at 2.4 GHz"),
    fp32_matmul_cycles_per_row=documented(
        2.0, "cycles", f"{_ARCH}: 20 TFLOP/s; {_PROFILES}428 ns a pass of 512 columns, two of them"
    ),
    fp32_exposed_load=measured(0.0, "1", _PROFILES + "products follow each other without a gap"),
    exposed_load=measured(0.0, "1", _PROFILES + "products follow each other without a gap"),
    fp32_transpose_passes=measured(1, "1", "bmm counts one instruction a transpose"),
    broadcast_passes=measured(
        2, "1", "mamba_v2: 1,728 ns for a row of 512, at the half rate of what uses one row"
    ),
    tensor_ramp_fraction=documented(
        0.5, "1", "Neuron Explorer, understanding throttling: trn2 and trn3 start at 50%"
    ),
    tensor_ramp_ns=documented(
        3000.0, "ns", "Neuron Explorer, understanding throttling: about 3 us"
    ),
    tensor_ramp_use=measured(
        0.5085,
        "1",
        "about 50% by the document; bmm_v1, whose products and transposes use 50.8% of the rows, "
        "runs at half rate, and bmm's baseline, with 53%, mostly at the full one",
    ),
    tensor_ramp_reserve_ns=fitted(
        1900.0, "ns", "bmm_d1_bblk2 and bblk4: how long products of half the rows stay fast"
    ),
    launch_ns=measured(
        8700.0,
        "ns",
        "by how much benchmarks of the executables of eight profiles (trn2_public.csv) take longer than "
        "from the first DMA to the last byte: 6.3 to 11.3 us",
    ),
    rsqrt_error=measured(
        1.46e-5,
        "1",
        "add_rmsnorm_matmul_v1 and v2 are off by 1.4635e-5 on every seed, and with operands split "
        "into bf16, 4.45e-6, by 1.528e-5, the root of both squares. It is not the product: "
        "bmm_v2 alone is off by 1.83e-7, matmul_v3 by no more than its split",
    ),
    peak_memory_bytes=documented(435e9, "B/s", "as dma_bytes_per_ns"),
    vector_gpsimd_exclusive=False,
    vector_scalar_psum_exclusive=False,
    vector_fast_modes=True,
    semaphore_ns=assumed(30.0, "ns", "as on trn1"),
)

TRN3 = replace(
    TRN2,
    sources={
        name: replace(source, status="assumed", note=f"as on trn2: {source.note}")
        for name, source in TRN2.sources.items()
    }
    | {"tensor_ramp_fraction": TRN2.source("tensor_ramp_fraction")},
).changed(
    name="trn3",
    calibration="from documentation only: nothing was measured on trn3, trn2's rates are assumed",
    generation=documented(4, "1", "trainium3_arch.rst: NeuronCore-v4"),
    vector_ghz=documented(1.2, "GHz", "trainium3_arch.rst"),
    hbm_bytes_per_ns=assumed(
        1160.0, "B/ns", "trn2's by trainium3_arch.rst, which has 4.7 TB/s where trn2 has 2.9"
    ),
    sbuf_partition_bytes=documented(256 * 1024, "B", "trainium3_arch.rst: 32 MiB"),
    dma_bytes_per_ns=assumed(
        38.0,
        "B/ns",
        "trn2's by trainium3.rst, which has 4.9 TB/s for eight cores where trn2 has 3.5",
    ),
    peak_memory_bytes=assumed(16 * 38e9, "B/s", "what the DMA engines move"),
    peak_dma_bytes=16 * 38.4e9,
    least_measured=assumed(0.91, "1", "trn2's; nothing was measured"),
    most_measured=assumed(1.22, "1", "trn2's; nothing was measured"),
    gain_spread=assumed(1.19, "1", "trn2's; nothing was measured"),
)

TARGETS: Mapping[str, Hardware] = {"trn1": TRN1, "trn2": TRN2, "trn3": TRN3}
"""Every generation that kernels can be timed for."""


def calibrated(target: str, constants: Mapping[str, float] | None = None) -> Hardware:
    """The core of a generation, with the constants of one machine in place of the table's."""
    return TARGETS[target].changed(**(constants or {}))
