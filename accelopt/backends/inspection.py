"""What the simulated core says of a kernel without running it: predicted time, and where it goes.

Runs in a worker's child process, and gives its answer as an Evaluation without the referee's
checks: the profile is the prediction, the notes are sentences.
"""

from __future__ import annotations

import linecache
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from accelopt.devices import Argument, KernelFailure, TensorArgument
from accelopt.devices.simulated import SimulatedDevice
from accelopt.records import Evaluation, Profile, Status
from accelopt.sim import timing
from accelopt.sim.errors import KernelError
from accelopt.sim.spec import SPECS
from accelopt.sim.timing.operation import QUEUE_NAMES

INSPECTION = "accelopt.backends.inspection:inspect_job"
INSPECTION_SECONDS = 120.0
INSPECTION_BYTES = 6 << 30
MOST_LINES = 5
MEBIBYTE = 1 << 20


def inspection_payload(
    kernel: str, arguments: list[tuple[tuple[int, ...], str] | float], target: str
) -> dict[str, object]:
    """What `inspect_job` takes: the kernel's path, and shape and dtype of each tensor argument."""
    return {"kernel": kernel, "arguments": arguments, "target": target}


def inspect_job(payload: Mapping[str, Any]) -> Evaluation:
    """Trace, verify and time the kernel that `payload` names."""
    arguments: list[Argument] = [
        TensorArgument(tuple(value[0]), value[1]) if isinstance(value, list) else value
        for value in payload["arguments"]
    ]
    try:
        executable = SimulatedDevice(payload["target"]).compile(payload["kernel"], arguments)
        found = timing.profile(executable.program, SPECS[payload["target"]])
    except KernelFailure as failure:
        return Evaluation(status=failure.status, message=failure.message)
    except KernelError as error:
        return Evaluation(status=Status.COMPILE_ERROR, message=str(error))
    latency = found.latency_ms
    profile = Profile(
        latency=latency,
        min_ms=latency,
        max_ms=latency,
        rel_diffs=0.0,
        metrics=found.summary,
        target=found.target,
        simulated=True,
    )
    return Evaluation(status=Status.CORRECT, profile=profile, notes=tuple(sentences(found)))


def sentences(found: timing.KernelProfile) -> list[str]:
    """The source lines that keep each engine busy longest, and the spills by tensor."""
    busy: dict[tuple[str, str, int], float] = defaultdict(float)
    totals: dict[str, float] = defaultdict(float)
    for at, kind in enumerate(found.stream.kind):
        operation = found.stream.instances[kind].operation
        queue = QUEUE_NAMES[operation.queue]
        occupied = found.timeline.free[at] - found.timeline.start[at]
        busy[queue, operation.source.file, operation.source.line] += occupied
        totals[queue] += occupied
    slowest = sorted(busy.items(), key=lambda item: -item[1])[:MOST_LINES]
    lines = [
        f"Line {line} ({_text(file, line)}) takes {occupied / totals[queue]:.0%} of the time that "
        f"{_spoken(queue)} busy."
        for (queue, file, line), occupied in slowest
        if totals[queue]
    ]
    spilled = sorted(found.spills.items(), key=lambda item: -_bytes(item[1]))[:MOST_LINES]
    lines += [
        f"{name} does not stay in SBUF: {_bytes(moved) / MEBIBYTE:.1f} MiB are moved again for it."
        for name, moved in spilled
        if _bytes(moved)
    ]
    return lines


def _bytes(spills: Any) -> float:
    return float(spills.saved + spills.reloaded + spills.loaded_again)


def _spoken(queue: str) -> str:
    return "DMA is" if queue == "dma" else f"the {queue} engine is"


def _text(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f"`{text[:80]}`" if text else "source not found"
