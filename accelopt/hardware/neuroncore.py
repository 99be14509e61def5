"""What a NeuronCore is described by: constants, each with its unit and its source, as tables have them."""

from __future__ import annotations

import operator
from ast import literal_eval
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf
from typing import Any, Literal, NamedTuple, Self, cast

from accelopt.tables import packaged_table

Evidence = Literal["documented", "measured", "fitted", "assumed"]


@dataclass(frozen=True)
class Provenance:
    """Where a constant comes from."""

    unit: str
    status: Evidence
    note: str


class Constant(NamedTuple):
    """A value, and its source where a table has one beside it."""

    value: Any
    source: Provenance | None = None


Constants = Mapping[str, Constant]


def constants_of(table: str) -> Mapping[str, Constants]:
    """The constants in a table of the package, by what they are of."""
    found: dict[str, dict[str, Constant]] = defaultdict(dict)
    for row in packaged_table(table):
        status = cast(Evidence, row["status"])
        source = Provenance(row["unit"], status, row["note"]) if status else None
        found[row["of"]][row["constant"]] = Constant(_value(row["value"]), source)
    return found


def _value(text: str) -> Any:
    """A number, a product of numbers, a truth or a tuple, or else a word."""
    try:
        return reduce(operator.mul, map(literal_eval, text.split(" * ")))
    except ValueError:
        return inf if text == "inf" else text


@dataclass(frozen=True)
class Sourced:
    """A dataclass whose constants say where they come from."""

    sources: Mapping[str, Provenance] = field(default_factory=dict, kw_only=True)

    @classmethod
    def stated(cls, table: Constants, **told: Any) -> Self:
        """What a table says all constants of; `told` are the fields that are none."""
        values = {name: one.value for name, one in table.items()}
        return cls(**told, **values, sources=_sources(table))

    def source(self, name: str) -> Provenance:
        """Unit, status and note of a constant; KeyError for a name that is none."""
        return self.sources[name]

    def changed(self, table: Constants | None = None, /, **told: Any) -> Self:
        """The same with other values; of those that come without, units and sources stay."""
        values = {name: one.value for name, one in (table or {}).items()}
        return replace(self, **told, **values, sources={**self.sources, **_sources(table or {})})

    def constants(self) -> tuple[str, ...]:
        """The names of all constants."""
        return tuple(self.sources)


def _sources(table: Constants) -> dict[str, Provenance]:
    return {name: one.source for name, one in table.items() if one.source}


@dataclass(frozen=True)
class Hardware(Sourced):
    """The constants of one NeuronCore generation, as `neuroncores.csv` has them. `calibration` says on what the
    whole was fitted."""

    name: str
    calibration: str
    # Clocks and peaks.
    generation: int
    tensor_ghz: float
    vector_ghz: float
    scalar_ghz: float
    gpsimd_ghz: float
    hbm_bytes_per_ns: float
    # Memories.
    sbuf_partition_bytes: int
    sbuf_reserved_bytes: int
    psum_partition_bytes: int
    psum_bank_bytes: int
    partitions: int
    # DMA.
    dma_engines: int
    dma_partitions_per_engine: int
    dma_bytes_per_ns: float
    dma_buffer_ns: float
    dma_strided_ns: float
    dma_strided_ns_per_byte: float
    dma_unaligned_ns: float
    hbm_conflict_stride: int
    hbm_conflict_ns: float
    hbm_conflict_bytes_per_ns: float
    dma_latency_ns: float
    descriptors_ns: float
    dma_transpose_fraction: float
    # Instructions.
    minimum_issue_cycles: int
    dynamic_issue_cycles: int
    access_cycles: float
    vector_access_cycles: float
    two_input_cycles_per_element: float
    vector_cycles_per_element: float
    scalar_cycles_per_element: float
    gpsimd_cycles_per_element: float
    scan_cycles_per_element: float
    engine_latency_ns: float
    semaphore_ns: float
    function_ns: float
    accumulator_read_cycles: float
    gpsimd_start_cycles: float
    reciprocal_cycles_per_element: float
    quantize_cycles_per_element: float
    matmul_pass_overhead_cycles: float
    fp32_matmul_passes: int
    fp32_matmul_cycles_per_row: float
    matmul_cycles_per_row: float
    fp32_exposed_load: float
    exposed_load: float
    fp32_transpose_passes: int
    broadcast_passes: int
    minimum_matmul_cycles: float
    tensor_ramp_fraction: float
    tensor_ramp_ns: float
    tensor_ramp_use: float
    tensor_ramp_reserve_ns: float
    launch_ns: float
    # What an engine computes otherwise than IEEE fp32 does.
    rsqrt_error: float
    # How far predictions can be trusted.
    least_measured: float
    most_measured: float
    gain_spread: float
    # Rates that nothing exceeds, which a problem's bound is made of.
    peak_memory_bytes: float
    peak_dma_bytes: float
    # What the generation lifts.
    vector_gpsimd_exclusive: bool
    vector_scalar_psum_exclusive: bool
    vector_fast_modes: bool

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
    def reads_in_turn(self) -> bool:
        """Whether the Vector engine reads two tiles in SBUF one after the other."""
        return self.two_input_cycles_per_element > self.vector_cycles_per_element

    @property
    def fastest_vector_mode(self) -> int:
        """By how much the Vector engine's fastest mode takes elements faster than fp32's."""
        return 4 if self.vector_fast_modes else 1

    def matmul_cycles(self, rows: int, columns: int, slow: bool) -> float:
        """One pass of the Tensor engine: `rows` moving rows past `columns` stationary columns, whose load nothing
        hides in part; `slow` at the rate of fp32."""
        per_row = self.fp32_matmul_cycles_per_row if slow else self.matmul_cycles_per_row
        exposed = self.fp32_exposed_load if slow else self.exposed_load
        load = exposed * columns + self.matmul_pass_overhead_cycles
        return max(per_row * rows, self.minimum_matmul_cycles) + load

    def matmul_ns(self, rows: int, columns: int, dtype: str = "float32") -> float:
        """All passes of a product of such operands."""
        slow = dtype == "float32"
        passes = self.fp32_matmul_passes if slow else 1
        return passes * self.matmul_cycles(rows, columns, slow) / self.tensor_ghz

    def ghz(self, engine: str) -> float:
        """The clock of one of the four compute engines, or of the sequencers (assumed)."""
        return {
            "tensor": self.tensor_ghz,
            "vector": self.vector_ghz,
            "scalar": self.scalar_ghz,
            "gpsimd": self.gpsimd_ghz,
            "sync": self.gpsimd_ghz,
        }[engine]
