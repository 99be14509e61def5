"""A profile's counters as sentences: traffic against bandwidth, engines, spills, transposes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from accelopt.evaluation import Profile
from accelopt.hardware import TARGETS
from accelopt.hardware.front_ends import simulated_on

MEBIBYTE = 1 << 20


class _Engine(NamedTuple):
    field: str
    name: str


ENGINES = (
    _Engine("hfu_estimated_percent", "tensor engine (of its peak rate)"),
    _Engine("vector_engine_active_time_percent", "vector engine"),
    _Engine("scalar_engine_active_time_percent", "scalar engine"),
    _Engine("gpsimd_engine_active_time_percent", "GpSimd engine"),
)

ACTIVE_FIELDS = {
    "dma": "dma_active_time_percent",
    "tensor": "tensor_engine_active_time_percent",
    "vector": "vector_engine_active_time_percent",
    "scalar": "scalar_engine_active_time_percent",
    "gpsimd": "gpsimd_engine_active_time_percent",
}


def explain_counters(profile: Profile, bandwidth: float) -> tuple[str, ...]:
    """Sentences on `profile`, most telling first. `bandwidth` of HBM for one core in B/ns."""
    metrics = profile.metrics
    sentences = [f"One run takes {profile.latency:.4g} ms{_where(profile)}."]
    traffic = metrics.get("hbm_read_bytes", 0.0) + metrics.get("hbm_write_bytes", 0.0)
    share = traffic / (profile.latency * 1e6 * bandwidth)
    if traffic:
        sentences.append(
            f"HBM traffic is {metrics.get('hbm_read_bytes', 0) / MEBIBYTE:.1f} MiB read and "
            f"{metrics.get('hbm_write_bytes', 0) / MEBIBYTE:.1f} MiB written, "
            f"{share:.0%} of the peak bandwidth over the run."
        )
    active = sorted(((metrics.get(e.field, 0.0), e.name) for e in ENGINES), reverse=True)
    if listed := ", ".join(f"{name} {fraction:.0%}" for fraction, name in active if fraction > 0):
        sentences.append(f"Activity: {listed}.")
    spilled = metrics.get("spill_save_bytes", 0.0) + metrics.get("spill_reload_bytes", 0.0)
    if spilled:
        sentences.append(f"{spilled / MEBIBYTE:.1f} MiB go to HBM and back as spills.")
    transposes, operations = metrics.get("transpose_flops", 0.0), metrics.get("hardware_flops", 0.0)
    if operations and transposes / operations > 0.01:
        sentences.append(f"Transposes are {transposes / operations:.0%} of tensor-engine work.")
    if not profile.stable:
        sentences.append("The timing is not stable from run to run.")
    return tuple(sentences)


def _where(profile: Profile) -> str:
    if not profile.simulated:
        return f" on {profile.target}"
    return f" ({simulated_on(profile.target, profile.compiler)})"


def busy_shares(metrics: Mapping[str, float]) -> dict[str, float]:
    """Busy share of each resource as profiled; DMA from bytes over time when no field says it."""
    shares = {
        resource: float(metrics[field])
        for resource, field in ACTIVE_FIELDS.items()
        if field in metrics
    }
    if "dma" not in shares and metrics.get("latency"):
        moved = metrics.get("hbm_read_bytes", 0.0) + metrics.get("hbm_write_bytes", 0.0)
        peak = TARGETS["trn1"].dma_peak_bytes_per_ns * 1e6
        shares["dma"] = min(1.0, moved / (metrics["latency"] * peak))
    if "tensor" not in shares and "hfu_estimated_percent" in metrics:
        # fp32 products count twice against the 16-bit peak: a busy tensor engine shows half.
        shares["tensor"] = min(1.0, 2.0 * float(metrics["hfu_estimated_percent"]))
    return shares
