"""How long a Program takes on a NeuronCore, and why. Needs no data.

    lowering ▸ fusion ▸ expansion ▸ cells ▸ merging ▸ residency ▸ dependence ▸ schedule ▸ counters

`profile` runs the chain; every step is a function of its own, every emulated decision of the
compiler a named pass that `Compiler` can switch off.
"""

from __future__ import annotations

from accelopt.sim.timing.account.explanation import LineCost, LowerBound
from accelopt.sim.timing.compiler.spilling import Spills
from accelopt.sim.timing.profile import (
    MOST_ASKED,
    UNRESOLVED,
    Compiler,
    KernelProfile,
    LatencyRange,
    Scenario,
    interval,
    latencies,
    profile,
    profiles,
)

__all__ = [
    "MOST_ASKED",
    "UNRESOLVED",
    "Compiler",
    "KernelProfile",
    "LatencyRange",
    "LineCost",
    "LowerBound",
    "Scenario",
    "Spills",
    "interval",
    "latencies",
    "profile",
    "profiles",
]
