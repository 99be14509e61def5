"""What limits a Triton solution, as far as bytes, operations and the measured time tell."""

from __future__ import annotations

from accelopt.evaluation import Bottleneck, Diagnosis, Profile
from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.kernels.methods import methods_that_touch

ROOFLINE = "roofline"
CATEGORIES = {"gmem": "memory", "compute": "compute", "overlap": "latency"}


def of_roofline(bound: Bound, profile: Profile) -> Diagnosis:
    """The least use of memory and arithmetic that the problem needs, over the time it took. What is
    moved or computed in vain counts as idle: nothing was profiled."""
    memory, compute = (ms / profile.latency for ms in (bound.memory_ms, bound.compute_ms))
    shares = {"gmem": memory, "compute": compute, "overlap": max(0.0, 1 - max(memory, compute))}
    reasons = {
        "gmem": f"at least {bound.bytes / 1e6:.1f} MB move: {bound.memory_ms:.4g} ms at peak",
        "compute": f"at least {bound.operations / 1e9:.1f} GFLOP: {bound.compute_ms:.4g} ms at peak",
        "overlap": "the rest: waiting, or work that the problem does not need",
    }
    ranked = sorted(filter(shares.__getitem__, shares), key=lambda name: -shares[name])
    return Diagnosis(
        origin=ROOFLINE,
        utilisation=shares,
        bottlenecks=tuple(
            Bottleneck(
                category=CATEGORIES[name],
                resource=name,
                share=round(shares[name], 6),
                reason=reasons[name],
                methods=methods_that_touch("triton", name),
            )
            for name in ranked
        ),
        compute_sol=compute,
        memory_sol=memory,
        fraction_of_peak=bound.milliseconds / profile.latency,
    )
