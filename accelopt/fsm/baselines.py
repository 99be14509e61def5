"""What PyTorch takes for the same problem, where it is written in PyTorch."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from accelopt.evaluation import Case
from accelopt.stages.run import Run


class Baselines(NamedTuple):
    """Milliseconds; infinite where there is no such baseline."""

    eager_ms: float = inf
    compiled_ms: float = inf


async def measure_pytorch(case: Case, run: Run) -> Baselines:
    """PyTorch's times for the problem."""
    return Baselines()
