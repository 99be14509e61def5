"""Latency of a kernel, and the files that the real tools would leave, from the simulated core."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from accelopt.sim import serial
from accelopt.sim.errors import KernelValueError
from accelopt.sim.program import Program

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
LABEL = "accelopt simulated NeuronCore; not a Neuron artifact"


class BenchmarkLatency:
    """Latency on one NeuronCore. The simulated core repeats itself exactly, so all percentiles are
    the same."""

    def __init__(self, microseconds: float) -> None:
        self.microseconds = microseconds

    def get_latency_percentile(self, percentile: int) -> float:
        """The latency in microseconds at one of the percentiles 0, 1, 10, 25, 50, 90, 99, 100."""
        if percentile not in PERCENTILES:
            raise ValueError(f"percentile {percentile} is not one of {PERCENTILES}")
        return self.microseconds


class BenchmarkResult:
    """What nki.benchmark leaves on the kernel as `benchmark_result`."""

    def __init__(self, nc_latency: BenchmarkLatency) -> None:
        self.nc_latency = nc_latency


def benchmark(program: Program) -> BenchmarkResult:
    """The predicted latency of a Program."""
    from accelopt.sim import timing

    return BenchmarkResult(BenchmarkLatency(timing.profile(program).latency_ms * 1000.0))


def keep_files(program: Program, options: dict[str, Any]) -> None:
    """Writes the files that the options of baremetal, benchmark or profile ask for."""
    folder = options.get("working_directory")
    if folder is not None:
        _keep_profile(program, Path(folder), options)
        return
    artifacts = options.get("artifacts_dir")
    if artifacts is not None:
        place = Path(artifacts)
        if place.is_dir() and any(place.iterdir()):
            problem = f"artifacts_dir {place} is not empty."
            raise KernelValueError("artifacts_dir", problem, "Give an empty or new folder.")
        place.mkdir(parents=True, exist_ok=True)
        _write(place / "file.neff", _executable(program))
    if options.get("save_neff_name"):
        _write(Path(options["save_neff_name"]), _executable(program))
    if options.get("save_trace_name"):
        _write(Path(options["save_trace_name"]), _trace(program))


def _keep_profile(program: Program, folder: Path, options: dict[str, Any]) -> None:
    """nki.profile: NEFF, one NTFF an execution, and the summary as JSON."""
    if not folder.is_absolute():
        problem = f"working_directory {folder} is not an absolute path."
        raise KernelValueError("working_directory", problem)
    neff = folder / options.get("save_neff_name", "file.neff")
    if neff.exists() and not options.get("overwrite"):
        problem = f"{neff} exists."
        raise KernelValueError("overwrite", problem, "Pass overwrite=True.")
    (folder / "json_reports").mkdir(parents=True, exist_ok=True)
    _write(neff, _executable(program))
    trace = Path(options.get("save_trace_name", "profile.ntff"))
    content = _trace(program)
    nth = int(options.get("profile_nth", 1))
    last = max(int(options.get("num_execs", nth)), nth)
    for execution in range(nth, last + 1, nth):
        stem = trace.stem if execution == 1 else f"{trace.stem}_exec_{execution}"
        _write(folder / f"{stem}{trace.suffix}", content)
        _write(folder / "json_reports" / f"{stem}.json", content)


def _executable(program: Program) -> dict[str, Any]:
    return {
        "format": "simulated NEFF",
        "made_by": LABEL,
        "kernel": program.name,
        "target": program.target,
        "program": base64.b64encode(serial.dumps(program)).decode(),
    }


def _trace(program: Program) -> dict[str, Any]:
    from accelopt.sim import timing

    profile = timing.profile(program)
    return {
        "format": "simulated NTFF",
        "made_by": LABEL,
        "kernel": program.name,
        "target": program.target,
        "latency_ms": profile.latency_ms,
        "summary": dict(profile.summary),
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def read_neff(path: Path) -> Program:
    """The Program in a simulated NEFF. Raises ValueError for any other file."""
    content = json.loads(path.read_text())
    if content.get("format") != "simulated NEFF":
        raise ValueError(f"{path} is not a simulated NEFF")
    return serial.loads(base64.b64decode(content["program"]))
