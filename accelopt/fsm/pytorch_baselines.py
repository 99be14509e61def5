"""What PyTorch takes for the same problem, where it is written in PyTorch."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from accelopt.awaiting import in_thread
from accelopt.evaluation import Case
from accelopt.kernels.gpu.language import Solutions
from accelopt.stages.run import Run
from accelopt.store import content_key

KIND = "pytorch"
COMPILED = "\n\nimport torch as _torch\n\nrun = _torch.compile(run)\n"


class Baselines(NamedTuple):
    """Milliseconds; infinite where there is no such baseline."""

    eager_ms: float = inf
    compiled_ms: float = inf


async def measure_pytorch(case: Case, run: Run) -> Baselines:
    """PyTorch's times for the problem on this GPU, measured once a run."""
    language, journal = run.workshop.language, run.workshop.journal
    if not isinstance(language, Solutions):
        return Baselines()
    key = content_key(language.reference(case))
    kept = journal.find(KIND, key)
    if kept is None:
        eager = await in_thread(language.time_reference, case)
        compiled = await in_thread(language.time_reference, case, COMPILED)
        kept = {"eager_ms": eager, "compiled_ms": compiled}
        journal.append(KIND, key, kept)
    return Baselines(*(inf if ms is None else float(str(ms)) for ms in kept.values()))
