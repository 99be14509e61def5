"""Nsight Compute on one call of a solution: `collect(task, every) -> Metrics | Unavailable`.

`ncu` itself is trusted; the program that it starts confines itself before it loads the solution
(`process.profiled`). Once it is there it has the device alone: counters are the device's, whoever works
on it, and one profiler at a time may have them. What is timed never runs under it. Whether counters can
be read here is found out once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from accelopt.kernels.gpu.bench.files.index_tensors import materialise
from accelopt.kernels.gpu.bench.gpu_lock import gpu_lock, scratch
from accelopt.kernels.gpu.bench.judging.child_processes import caches, payload_of
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.process.entry_points import passes_destination
from accelopt.kernels.gpu.bench.process.profiled_call import DEVICE, GO, READY, STEP_SECONDS
from accelopt.kernels.gpu.profiling.metrics import (
    NAMES,
    Metrics,
    Unavailable,
    main_kernel,
    read_kernels,
)
from accelopt.sandbox import scratch_folder
from accelopt.sandbox.drivers import NVIDIA
from accelopt.sandbox.policy import search_path
from accelopt.sandbox.starting import variables_of
from accelopt.time_limits import NCU_SECONDS

PROGRAM = "accelopt.kernels.gpu.bench.process.profiled_call"
Profiled: TypeAlias = "Metrics | Unavailable"
NOT_ASKED = Unavailable("it was not asked for")
PAUSES = (1.0, 4.0)  # seconds, before it is tried again where another profiler has the counters
_TAKEN = "driver resource was unavailable"
_DENIED = ("ERR_NVGPUCTRPERM", "permission to access NVIDIA GPU Performance Counters")


def collect(task: Task, every: int = 1, number: int = 0) -> Profiled:
    """The counters of one call of `task`'s solution, on fresh inputs.

    Of the kernels that a run diagnoses, `number` counting them from 0, each `every`-th is profiled;
    0 is never. Returns Unavailable where that is not one, where there is no `ncu`, or where it may
    not read counters. Takes seconds: it runs the call once for each group of counters.
    """
    if every < 1 or number % every:
        return NOT_ASKED
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
    return _probe(tool, device)


@cache
def _probe(tool: str, device: str) -> Unavailable | None:
    """A product of a small tensor under `ncu`, asked once a process: whether counters can be read in a
    process that has confined itself."""
    with scratch_folder(scratch()) as folder:
        payload = {"probe": True, "folder": str(folder), "device": device}
        found = _run(folder, payload, NAMES[:1], tool)
    return found if isinstance(found, Unavailable) else None


def _profile(task: Task) -> Profiled:
    style = passes_destination(task.solution, task.definition, task.destination_passing_style)
    materialise(task.root, task.definition, task.workload.workload)
    blobs = tuple(
        str(task.root.resolve() / source.path)
        for source in task.workload.workload.inputs.values()
        if source.path is not None
    )
    with scratch_folder(scratch()) as folder:
        payload = {
            **payload_of(task, folder),
            "solution": task.solution.model_dump(mode="json", exclude_unset=True),
            "destination_passing_style": style,
            "readable": blobs,
        }
        tool = shutil.which("ncu") or "ncu"
        return _run(folder, payload, NAMES, tool, dict(task.environment))


def _run(
    folder: Path,
    payload: Mapping[str, Any],
    metrics: tuple[str, ...],
    tool: str,
    environment: Mapping[str, str] | None = None,
) -> Profiled:
    """The longest kernel of one call under `ncu`, the first of all kernels being our own."""
    told = folder / "profiled.json"
    told.write_text(json.dumps(payload))
    command = [
        tool, "--csv", "--page", "raw", "--profile-from-start", "off", "--clock-control", "none",
        "--cache-control", "all", "--target-processes", "application-only",
        "--metrics", ",".join(metrics),
        sys.executable, "-B", "-m", PROGRAM, str(told),
    ]  # fmt: skip
    own = variables_of(folder, os.cpu_count() or 1, NVIDIA.variables)
    variables = {**own, **caches(folder), "PYTHONPATH": search_path(), **(environment or {})}
    printed = _printed(command, folder, variables, payload["device"])
    for pause in PAUSES:
        if isinstance(printed, Unavailable) or _TAKEN not in printed:
            break
        time.sleep(pause)
        printed = _printed(command, folder, variables, payload["device"])
    if isinstance(printed, Unavailable):
        return printed
    kernel = main_kernel(read_kernels(printed, own=1))
    if kernel is not None and kernel.raw:
        named = folder / DEVICE
        name = named.read_text() if named.exists() else ""
        return kernel.model_copy(update={"device_name": name})
    if any(word in printed for word in _DENIED):
        return Unavailable("this user may not read the GPU's counters (ERR_NVGPUCTRPERM)")
    last = [line for line in printed.splitlines() if line.strip()]
    return Unavailable(f"`ncu` gave no counters: {_worst(last)}")


def _printed(
    command: list[str], folder: Path, variables: Mapping[str, str], device: str
) -> str | Unavailable:
    """All that a program prints; it and what it started are ended at the limit. While it starts, others
    may have the device; from where it says that it is ready it has it alone."""
    for name in (READY, GO):
        (folder / name).unlink(missing_ok=True)
    process = subprocess.Popen(
        command, cwd=folder, env=dict(variables), text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        _await_ready(process, folder)
        with gpu_lock(device, alone=True):
            (folder / GO).touch()
            return process.communicate(timeout=NCU_SECONDS)[0]
    except subprocess.TimeoutExpired:
        return Unavailable(f"`ncu` took more than {NCU_SECONDS:g} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await_ready(process: subprocess.Popen[str], folder: Path) -> None:
    """Until the program is ready, or has ended. Raises TimeoutExpired."""
    limit = time.monotonic() + NCU_SECONDS
    while not (folder / READY).exists() and process.poll() is None:
        if time.monotonic() > limit:
            raise subprocess.TimeoutExpired(process.args, NCU_SECONDS)
        time.sleep(STEP_SECONDS)


def _worst(lines: list[str]) -> str:
    """What went wrong first; that the program ended with an error comes of it."""
    errors = [line.strip() for line in lines if "==ERROR==" in line or "Error" in line]
    if errors and errors[0].endswith(":"):  # the reason stands in the next line
        errors = errors[1:] or errors
    return (errors or [line.strip() for line in lines[-1:]] or ["it printed nothing"])[0][:300]
