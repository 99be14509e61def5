"""The least time of some work on one NeuronCore: what everybody asks who says how near a kernel is to what
the hardware can do. It stands beside the rates, below who counts the work of a problem
(`algorithm.least_work`)."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from accelopt.hardware.neuroncore import Hardware

ASPECTS = {
    "memory": "bytes between HBM and the core",
    "mm": "matrix products in 16 bits",
    "vec": "work element by element",
}
"""What can set a least time, by the names in published headroom tables."""


class Lanes(NamedTuple):
    """Who may do some work element by element (engines as `Hardware.ghz` calls them), and whether all
    operands and results may have 16 bits or fewer."""

    engines: frozenset[str]
    narrow: bool


class Work(NamedTuple):
    """What cannot be avoided. `copied_bytes` are those written of what an input holds already: they may
    go from HBM to HBM in one transfer. `columns` are elements a partition, by who may work on them. `cores`
    that share one HBM share the work."""

    read_bytes: int
    write_bytes: int
    copied_bytes: int = 0
    fp32_flops: int = 0
    narrow_flops: int = 0
    columns: tuple[tuple[Lanes, int], ...] = ()
    cores: int = 1


class LeastTime(NamedTuple):
    """Milliseconds that each aspect of some work takes at least, with the others hidden behind it."""

    memory: float
    mm: float
    vec: float

    @property
    def latency_ms(self) -> float:
        """The time of the slowest aspect."""
        return max(self)

    @property
    def key(self) -> str:
        """The slowest aspect, one of `ASPECTS`."""
        return max(self._fields, key=lambda name: float(getattr(self, name)))

    def fraction(self, latency_ms: float) -> float:
        """The part of its time that a kernel could not avoid; above 1 is impossible."""
        return self.latency_ms / latency_ms


def least_time(work: Work, spec: Hardware) -> LeastTime:
    """The time of some work at the rates of its cores: bytes through their DMA engines and through HBM,
    products on the Tensor engine in the formats that `work` gives, elements on the other engines."""
    hbm = work.read_bytes + work.write_bytes
    moved = hbm - min(work.copied_bytes, work.read_bytes)
    slow = spec.fp32_matmul_passes * spec.fp32_matmul_cycles_per_row
    products = work.fp32_flops * slow + work.narrow_flops * spec.matmul_cycles_per_row
    return LeastTime(
        memory=max(hbm / spec.hbm_limit, moved / spec.dma_limit / work.cores) * 1e-6,
        mm=products / spec.peak_bf16_flops_per_ns / work.cores * 1e-6,
        vec=_elements_ns(work, spec) / work.cores * 1e-6,
    )


def _elements_ns(work: Work, spec: Hardware) -> float:
    """The time of the busiest engines: for each set of them, what nobody else may do, shared out
    among them as well as can be. An element is worth most where it takes the smallest part of an
    engine's time, so no way of sharing takes less."""
    rates = {
        "vector": spec.vector_ghz / spec.vector_cycles_per_element,
        "scalar": spec.scalar_ghz / spec.scalar_cycles_per_element,
        "gpsimd": spec.gpsimd_ghz / spec.gpsimd_cycles_per_element,
    }
    mode = max(spec.fastest_vector_mode, 2)  # of 16 bits; sums have it on every generation
    longest = 0.0
    for count in range(1, len(rates) + 1):
        for engines in map(frozenset, combinations(rates, count)):
            ns = sum(
                elements / (mode if lanes.narrow and "vector" in lanes.engines else 1)
                for lanes, elements in work.columns
                if lanes.engines <= engines
            )
            longest = max(longest, ns / sum(rates[engine] for engine in engines))
    return longest
