"""nki.isa: one call, one NeuronCore instruction, its destination first (NKI 0.3 to 0.7)."""

from __future__ import annotations

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.builder import names_of
from accelopt.sim.dialects.nki import versions
from accelopt.sim.dialects.nki.call_conventions import Issued as NkiInstruction
from accelopt.sim.dialects.nki.isa import (
    elementwise,
    enums,
    indexed,
    microscaling,
    products,
    reductions,
    scalars,
    transfers,
)
from accelopt.sim.dialects.nki.registers import NkiScalar, VirtualRegister

_NAMES = names_of(
    elementwise, enums, indexed, microscaling, products, reductions, scalars, transfers
)
globals().update(_NAMES)
globals().update(versions.changed("nki.isa", _NAMES))
__all__ = [*_NAMES, "NkiInstruction", "NkiScalar", "VirtualRegister"]

__getattr__ = absent_names(
    "nki.isa",
    {
        "activate2 exponential rand2": "It is trn3's; use nisa.activation and nl.rand.",
        "rng set_rng_seed rand_set_state rand_get_state": "The device's random bits are not "
        "documented; use nl.rand.",
        **versions.advice("nki.isa"),
    },
    __all__,
)
