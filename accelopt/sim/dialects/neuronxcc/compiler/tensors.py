"""neuronxcc.nki.compiler.backends.neuron.tensor: the class of tiles, for isinstance."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.tensor import TensorView as local_tile

__all__ = ["local_tile"]
