"""How long a Program takes on a NeuronCore, and why. Needs no data.

    lowering ▸ expansion ▸ cells ▸ merging ▸ residency ▸ dependence ▸ schedule ▸ counters

`profile` runs the chain; every step is a function of its own, every emulated decision of the
compiler a named pass that `Compiler` can switch off.
"""

from __future__ import annotations

from accelopt.sim.timing.profile import Compiler, KernelProfile, profile

__all__ = ["Compiler", "KernelProfile", "profile"]
