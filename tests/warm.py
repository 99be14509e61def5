"""A simulated core that traces kernels in forks of one warm process, as a worker does: for tests whose
subject is not how a child starts (`tests/sandbox`, `tests/hostile` and the commands start new ones)."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accelopt.evaluation import Evaluation, EvaluationRequest
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices.simulated import TRACING, SimulatedDevice
from accelopt.kernels.nki.judging import evaluate
from accelopt.kernels.nki.referee.trials import TrialStore
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


def verdict(folder: Path, kernel: str, reference: str, **more: Any) -> Evaluation:
    """The referee's on the text of a kernel and that of its reference."""
    kernel_file, task = folder / "kernel.py", folder / "reference.py"
    kernel_file.write_text(kernel)
    task.write_text(reference)
    request = EvaluationRequest(kernel=str(kernel_file), task=str(task), **more)
    return evaluate(request, core(request.target), TrialStore(folder / "trials"))
