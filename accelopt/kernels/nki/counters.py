"""A profile's counters as sentences: traffic against bandwidth, engines, spills, transposes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from accelopt.evaluation import Profile
from accelopt.hardware import TRN1
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
FP32_BUSY = 0.2  # fp32 products reach a quarter of the peak rate that HFU refers to
IDLE = 0.5  # when no engine is busy for this fraction of the time, waiting is what costs


def explain_counters(
    profile: Profile, bandwidth: float = TRN1.peak_memory_bytes, *, verdict: bool = True
) -> tuple[str, ...]:
    """Sentences on `profile`, most telling first. `bandwidth` of HBM for one core in bytes/s.

    `verdict` names what limits the kernel as far as counters tell; leave it out where a simulation
    of the kernel knows better.
    """
    metrics = profile.metrics
    seconds = profile.latency / 1e3
    sentences = [f"One run takes {profile.latency:.4g} ms{_where(profile)}."]
    traffic = metrics.get("hbm_read_bytes", 0.0) + metrics.get("hbm_write_bytes", 0.0)
    share = traffic / seconds / bandwidth if traffic else 0.0
    if traffic:
        sentences.append(
            f"HBM traffic is {metrics.get('hbm_read_bytes', 0) / MEBIBYTE:.1f} MiB read and "
            f"{metrics.get('hbm_write_bytes', 0) / MEBIBYTE:.1f} MiB written, "
            f"{share:.0%} of the peak bandwidth over the run."
        )
    sentences += _busiest(metrics, share, verdict)
    spilled = metrics.get("spill_save_bytes", 0.0) + metrics.get("spill_reload_bytes", 0.0)
    if spilled:
        sentences.append(f"{spilled / MEBIBYTE:.1f} MiB go to HBM and back as spills.")
    transposes, operations = metrics.get("transpose_flops", 0.0), metrics.get("hardware_flops", 0.0)
    if operations and transposes / operations > 0.01:
        sentences.append(f"Transposes are {transposes / operations:.0%} of tensor-engine work.")
    if not profile.stable:
        sentences.append("The timing is not stable from run to run.")
    return tuple(sentences)


def _busiest(metrics: Mapping[str, float], share: float, verdict: bool) -> list[str]:
    """The engines by activity, and whether any of them or the memory explains the time."""
    active = sorted(((metrics.get(e.field, 0.0), e.name) for e in ENGINES), reverse=True)
    listed = ", ".join(f"{name} {fraction:.0%}" for fraction, name in active if fraction > 0)
    if not listed:
        return []
    most, name = active[0]
    sentences = [f"Activity: {listed}."]
    if not verdict:
        return sentences
    if metrics.get("hfu_estimated_percent", 0.0) >= FP32_BUSY > share:
        sentences.append("It is bound by the tensor engine, if its operands are fp32.")
    elif max(most, share) < IDLE:
        sentences.append(
            "Neither memory nor any engine is busy for half of the time: the kernel waits on "
            "dependences, small transfers or fixed costs of many small instructions."
        )
    elif share >= most:
        sentences.append("It is bound by HBM bandwidth.")
    else:
        sentences.append(f"It is bound by the {name}.")
    return sentences


def _where(profile: Profile) -> str:
    if not profile.simulated:
        return f" on {profile.target}"
    return f" ({simulated_on(profile.target, profile.compiler)})"
