"""neuronxcc.nki.isa.constants: the enumerations under their older address."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.isa.enums import (
    dge_mode,
    engine,
    nc_version,
    oob_mode,
    reduce_cmd,
)

__all__ = ["dge_mode", "engine", "nc_version", "oob_mode", "reduce_cmd"]
