"""The `nki` package as the simulated NeuronCore offers it (NKI 0.3 to 0.7, Neuron SDK 2.29 to 2.33)."""

from __future__ import annotations

from accelopt.sim.dialects.nki import isa, language
from accelopt.sim.dialects.nki.kernel import Kernel, jit, simulate

__version__ = "0.7.0+accelopt.sim"
__all__ = ["Kernel", "isa", "jit", "language", "simulate"]
