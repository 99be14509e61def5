"""Nsight Compute on one call of a solution: `collect(task, every) -> Metrics | Unavailable`.

`ncu` runs the solution in a process of its own, confined like every other, while nobody is being
timed; what is timed never runs under it. Whether it may read counters here is found out once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from accelopt.kernels.gpu.bench.judging.children import converse, payload_of
from accelopt.kernels.gpu.bench.judging.task import Task
from accelopt.kernels.gpu.bench.lock import gpu_lock, scratch
from accelopt.kernels.gpu.bench.process import profiled
from accelopt.kernels.gpu.bench.process.calling import passes_destination
from accelopt.kernels.gpu.profiling.metrics import (
    NAMES,
    Metrics,
    Unavailable,
    main_kernel,
    read_kernels,
)
from accelopt.sandbox import scratch_folder
from accelopt.sandbox.conversation import ChildEnded, ChildRaised

HANDLERS = "accelopt.kernels.gpu.bench.process.profiled:handlers"
SECONDS = 300.0
Found: TypeAlias = "Metrics | Unavailable"
_DENIED = ("ERR_NVGPUCTRPERM", "permission to access NVIDIA GPU Performance Counters")


def collect(task: Task, every: int = 1, number: int = 0) -> Found:
    """The counters of one call of `task`'s solution, on fresh inputs.

    Of the kernels that a run diagnoses, `number` counting them from 0, each `every`-th is profiled;
    0 is never. Returns Unavailable where that is not one, where there is no `ncu`, or where it may
    not read counters. Takes seconds: it runs the call once for each group of counters.
    """
    if every < 1 or number % every:
        return Unavailable("it was not asked for")
    if (why := unavailable(task.device)) is not None:
        return why
    return _profile(task)


def unavailable(device: str) -> Unavailable | None:
    """Why nothing can be profiled on this device; None where it can."""
    tool = shutil.which("ncu")
    if device == "cpu":
        return Unavailable("there is no GPU")
    if tool is None:
        return Unavailable("`ncu` is not on the PATH")
    return _probe(tool).failure


class Probe(NamedTuple):
    """Whether counters can be read, and whether the loopback has to be open for that."""

    failure: Unavailable | None
    network: bool = False


@cache
def _probe(tool: str) -> Probe:
    """One product of a small tensor under `ncu`, asked once a process: first with every network closed,
    then, for the tool's two halves may speak through the loopback, with the machine's own open."""
    first: Unavailable | None = None
    for network in (False, True):
        with scratch_folder(scratch()) as folder:
            payload = {"probe": True, "folder": str(folder)}
            found = _run(folder, payload, NAMES[:1], tool, network=network)
        if isinstance(found, Metrics):
            return Probe(None, network)
        first = first or found
    return Probe(first)


def _profile(task: Task) -> Found:
    style = passes_destination(task.solution, task.definition, task.destination_passing_style)
    blobs = tuple(
        str(task.root.resolve() / source.path)
        for source in task.workload.workload.inputs.values()
        if source.path is not None
    )
    with scratch_folder(scratch()) as folder, gpu_lock(task.device, alone=False):
        payload = {
            **payload_of(task, folder),
            "solution": task.solution.model_dump(mode="json", exclude_unset=True),
            "destination_passing_style": style,
        }
        tool = shutil.which("ncu") or "ncu"
        environment = dict(task.environment)
        network = _probe(tool).network
        return _run(folder, payload, NAMES, tool, blobs, environment, network=network)


def _run(
    folder: Path,
    payload: Mapping[str, Any],
    metrics: tuple[str, ...],
    tool: str,
    readable: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    *,
    network: bool = False,
) -> Found:
    """The longest kernel of one call under `ncu`."""
    asked = profiled.Profile(tool=tool, metrics=metrics, payload=json.dumps(payload))
    try:
        with converse(
            HANDLERS, {"folder": str(folder)}, folder, readable=(*readable, _home_of(tool)),
            network=network,
            environment={"TMPDIR": str(folder), "HOME": str(folder), **(environment or {})},
        ) as child:  # fmt: skip
            reply = child.ask(asked, profiled.Printed, SECONDS)
    except (ChildEnded, ChildRaised) as error:
        return Unavailable(f"`ncu` did not end well: {error}")
    kernel = main_kernel(read_kernels(reply.table))
    if kernel is not None and kernel.raw:
        return kernel
    said = f"{reply.table}\n{reply.errors}"
    if any(word in said for word in _DENIED):
        return Unavailable("this user may not read the GPU's counters (ERR_NVGPUCTRPERM)")
    last = [line for line in said.splitlines() if line.strip()]
    return Unavailable(f"`ncu` gave no counters: {_worst(last)}")


def _worst(lines: list[str]) -> str:
    errors = [line for line in lines if "==ERROR==" in line or "Error" in line]
    return (errors or lines or ["it printed nothing"])[-1].strip()[:300]


def _home_of(tool: str) -> str:
    """The folder that Nsight Compute is installed in, as its front end on the PATH tells."""
    return str(Path(tool).resolve().parent)
