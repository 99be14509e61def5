"""One call of a solution under Nsight Compute: the confined process that starts `ncu`, and the one that
`ncu` starts, which is this module run as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelopt.sandbox.conversation import Handlers, Message

WARM_CALLS = 2
SECONDS = 280.0


class Profile(Message):
    """Call the solution in `payload` (JSON) once, counting `metrics`."""

    tool: str
    metrics: tuple[str, ...]
    payload: str


class Printed(Message):
    """What `ncu` printed."""

    table: str
    errors: str


class Profiler:
    """Starts `ncu` on this module, in the folder of this process."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.folder = Path(payload["folder"])

    def profile(self, asked: Profile) -> Printed:
        """The table of all kernels that the one call started."""
        told = self.folder / "profiled.json"
        told.write_text(asked.payload)
        command = [
            asked.tool, "--csv", "--page", "raw", "--profile-from-start", "off",
            "--clock-control", "none", "--cache-control", "all",
            "--metrics", ",".join(asked.metrics),
            sys.executable, "-S", "-m", __name__, str(told),
        ]  # fmt: skip
        # Without `site`, which reads what is closed here; all that it would find stands in the path.
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env=variables
        )
        return Printed(table=done.stdout, errors=done.stderr[-4000:])


def call_once(payload: Mapping[str, Any]) -> None:
    """Warm up, then one call between the marks that tell the profiler what to count."""
    import torch

    call = _probe if payload.get("probe") else _candidate(payload)
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            call()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def _probe() -> None:
    import torch

    torch.ones(1 << 16, device="cuda").mul_(2.0)


def _candidate(payload: Mapping[str, Any]) -> Any:
    from accelopt.kernels.gpu.bench.files.draws import fresh
    from accelopt.kernels.gpu.bench.process import messages as say
    from accelopt.kernels.gpu.bench.process.candidate import Candidate

    candidate = Candidate(payload)
    candidate.load(say.Load())
    inputs = candidate.inputs.make(fresh())
    return lambda: candidate.call(inputs)


def handlers(payload: Mapping[str, Any]) -> Handlers:
    """What the process that starts `ncu` answers."""
    return {Profile: Profiler(payload).profile}


if __name__ == "__main__":
    call_once(json.loads(Path(sys.argv[1]).read_text()))
