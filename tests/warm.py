"""A simulated core that traces kernels in forks of one warm process, as a worker does: for tests whose
subject is not how a child starts (`tests/sandbox`, `tests/hostile` and the commands start new ones)."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices.simulated import TRACING, SimulatedDevice
from accelopt.sandbox import ForkServer

_SERVER = ForkServer(TRACING)


def core(target: str = "trn1") -> SimulatedDevice:
    return SimulatedDevice(target, _SERVER.start)


def computed(source: str | Path, given: Sequence[Any], target: str = "trn1") -> list[np.ndarray]:
    """What a kernel, a file or its text, computes of arrays and numbers."""
    with tempfile.TemporaryDirectory() as folder:
        path = source if isinstance(source, Path) else Path(folder) / "kernel.py"
        if isinstance(source, str):
            path.write_text(source)
        specs = [argument_of(value) for value in given]
        arrays = [np.copy(value) if isinstance(value, np.ndarray) else value for value in given]
        return core(target).compile(str(path), specs).run(arrays)
