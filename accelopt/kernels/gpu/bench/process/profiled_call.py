"""The program that `ncu` starts: one call of a solution between the marks that tell it what to count.

It confines itself once the profiler is in it and has counted a first kernel, and before it loads the
solution: files and system calls are closed as in every other child, new sockets as well. What the
profiler needs it has open by then. Namespaces and capabilities stay, which counters may depend on.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

WARM_CALLS = 2
READY, GO, DEVICE = "ready", "go", "device"
"""Files by which this program says that it is there, is told that it has the device alone, and says what
the device is called, which the tool's table leaves out."""
STEP_SECONDS = 0.05


def call_once(payload: Mapping[str, Any]) -> None:
    """Wait for the device, count a kernel of our own, be confined, warm up, and count one call."""
    import torch

    _wait_for_turn(Path(payload["folder"]))
    ours = torch.zeros(1 << 16, device="cuda")
    (Path(payload["folder"]) / DEVICE).write_text(torch.cuda.get_device_name(ours.device))
    _counted(torch, lambda: ours.add_(1.0))
    held = _confine(payload)
    if "seccomp" not in held or not any(step.startswith("landlock") for step in held):
        print("this host cannot confine a process: the solution is not loaded")
        return
    call = (lambda: ours.add_(1.0)) if payload.get("probe") else _candidate(payload)
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            call()
        _counted(torch, call)


def _wait_for_turn(folder: Path) -> None:
    """What takes long to import is imported before."""
    from accelopt.kernels.gpu.bench.process import candidate  # noqa: F401

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401
    (folder / READY).touch()
    while not (folder / GO).exists():
        time.sleep(STEP_SECONDS)


def _counted(torch: Any, call: Callable[[], object]) -> None:
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def _confine(payload: Mapping[str, Any]) -> list[str]:
    from accelopt.sandbox.confinement import confine
    from accelopt.sandbox.drivers import NVIDIA
    from accelopt.sandbox.policy import Policy, runtime_paths

    readable = (*runtime_paths(), *payload.get("readable", ()))
    writable = (str(payload["folder"]), "/dev/null")
    policy = NVIDIA.allow(Policy(readable=readable, writable=writable))
    return confine(policy, capabilities=True)


def _candidate(payload: Mapping[str, Any]) -> Callable[[], object]:
    from accelopt.kernels.gpu.bench.files.input_draws import fresh
    from accelopt.kernels.gpu.bench.process import messages as say
    from accelopt.kernels.gpu.bench.process.candidate import Candidate

    candidate = Candidate(payload)
    candidate.load(say.Load())
    inputs = candidate.inputs.make(fresh())
    return lambda: candidate.call(inputs)


if __name__ == "__main__":
    call_once(json.loads(Path(sys.argv[1]).read_text()))
