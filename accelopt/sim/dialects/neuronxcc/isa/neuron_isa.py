"""neuronxcc.nki.isa.neuron_isa: instructions under their older address."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.isa.transfers import dma_copy

__all__ = ["dma_copy"]
