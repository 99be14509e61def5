"""A simulated core that traces kernels in forks of one warm process, as a worker does: for tests whose
subject is not how a child starts (`tests/sandbox`, `tests/hostile` and the commands start new ones)."""

from accelopt.kernels.nki.devices.simulated import TRACING, SimulatedDevice
from accelopt.sandbox import ForkServer

_SERVER = ForkServer(TRACING)


def core(target: str = "trn1") -> SimulatedDevice:
    return SimulatedDevice(target, _SERVER.start)
