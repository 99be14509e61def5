"""neuronxcc.nki.compiler.backends.neuron.indexing: the class of indices, for isinstance."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.index import TileIndex as TileIndex

__all__ = ["TileIndex"]
