"""The constants of a machine from the latencies of microkernels: bounded least squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from accelopt.hardware import Hardware
from accelopt.sim import timing
from accelopt.sim.program import Program

CONSTANTS = (
    "dma_bytes_per_ns",
    "dma_buffer_ns",
    "access_cycles",
    "vector_access_cycles",
    "scalar_cycles_per_element",
    "vector_cycles_per_element",
    "two_input_cycles_per_element",
    "reciprocal_cycles_per_element",
    "scan_cycles_per_element",
    "fp32_matmul_cycles_per_row",
    "matmul_cycles_per_row",
    "launch_ns",
)
"""What the microkernels can tell apart; clocks and sizes are documented."""

FREEDOM = 4.0
"""How many times larger or smaller than the table's a constant may be."""


class Fit(NamedTuple):
    """The machine, and how far its predictions are from the measurements: the worst of them, as a
    fraction."""

    hardware: Hardware
    worst: float


def predicted(programs: Sequence[Program], core: Hardware) -> np.ndarray:
    """Latencies in ms, (n,). What HBM gives is not known before the fit: no less than DMA takes."""
    memory = max(core.hbm_bytes_per_ns, core.dma_peak_bytes_per_ns)
    core = replace(core, hbm_bytes_per_ns=memory)
    return np.array([timing.profile(program, core).latency_ms for program in programs])


def fit(programs: Sequence[Program], measured_ms: Sequence[float], start: Hardware) -> Fit:
    """The constants with which the programs take the measured times; all others stay `start`'s."""
    from scipy.optimize import least_squares  # heavy; nothing else needs it

    measured = np.log(np.asarray(measured_ms, float))

    def machine(factors: np.ndarray) -> Hardware:
        values: Mapping[str, Any] = {
            name: getattr(start, name) * float(np.exp(factor))
            for name, factor in zip(CONSTANTS, factors, strict=True)
        }
        return replace(start, **values)

    def residuals(factors: np.ndarray) -> np.ndarray:
        missing: np.ndarray = np.log(predicted(programs, machine(factors))) - measured
        return missing

    bound = np.log(FREEDOM)
    solved = least_squares(
        residuals,
        np.zeros(len(CONSTANTS)),
        bounds=(-bound, bound),
        diff_step=[0.02] * len(CONSTANTS),
        max_nfev=12,
        xtol=1e-4,
        ftol=1e-6,
    )
    worst = float(np.abs(np.expm1(residuals(solved.x))).max())
    return Fit(machine(solved.x), worst)
