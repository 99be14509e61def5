"""Where kernels run. A simulated NeuronCore and a real one fulfil the same protocol.

Nothing above this room asks which of the two it has.
"""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.errors import ConfigError
from accelopt.kernels.nki.devices.protocol import (
    BACKWARDS,
    CompiledKernel,
    Device,
    Inexactness,
    KernelArgument,
    KernelFailure,
    LowPrecision,
    TensorArgument,
    Timings,
)

__all__ = [
    "BACKWARDS",
    "CompiledKernel",
    "Device",
    "Inexactness",
    "KernelArgument",
    "KernelFailure",
    "LowPrecision",
    "TensorArgument",
    "Timings",
    "choose",
]


def choose(
    target: str = "trn1",
    core: int = 0,
    constants: Mapping[str, float] | None = None,
    compiler: str = "",
) -> Device:
    """Real Trainium when the Neuron SDK and a core are there, else the simulated NeuronCore, with the
    `constants` of a calibrated machine and the front end of a version. Raises ConfigError for a core that is there and
    cannot be opened."""
    from accelopt.kernels.nki.devices.trainium import TrainiumDevice, available, closed, generation

    if available():
        if said := closed():
            raise ConfigError(said)
        return TrainiumDevice(core=core, target=generation() or target)
    from accelopt.kernels.nki.devices.simulated import SimulatedDevice

    return SimulatedDevice(target, constants=constants, compiler=compiler)
