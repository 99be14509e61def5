"""What happens to a traced kernel that was called on the host: its results, as NumPy arrays, its
latency, and the files that the real tools would leave."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accelopt.sim import compute, dtypes, serial
from accelopt.sim.errors import KernelValueError
from accelopt.sim.program import Program
from accelopt.sim.trace import AbstractTensor

Outputs = Sequence[np.ndarray | None]


def execute(
    program: Program, arguments: Sequence[Any], *, wide_floats: bool, writes_parameters: bool
) -> Any:
    """The kernel's results for these arguments: what is executed has gone through the bytes in which
    Programs travel, as everywhere. Kernels of the older kind write into their arguments
    instead. Specifications without data (nt.tensor[[shape], dtype]) become zeros, as the real tool
    feeds dummy data."""
    program = serial.transferred(program)
    given = tensors_of(arguments)
    arrays = [
        np.zeros(value.shape, dtype=value.dtype) if isinstance(value, AbstractTensor) else value
        for value in given
    ]
    outputs = compute.execute(program, arrays, wide_floats=wide_floats)
    if writes_parameters and all(result in program.arguments for result in program.results):
        write_back(program, given, outputs)
        return None
    return shape_results(program, outputs)


def undefined_results(program: Program) -> Any:
    """What a measuring run returns: arrays of the right shapes, whose contents mean nothing."""
    outputs = [
        None
        if result is None
        else np.zeros(program.shape_of_result(number) or (), dtypes.stored(result.dtype))
        for number, result in enumerate(program.results)
    ]
    return shape_results(program, outputs)


def write_back(program: Program, given: Sequence[Any], outputs: Outputs) -> None:
    """Arguments that the kernel wrote, in the caller's arrays."""
    places = dict(zip(program.arguments, given, strict=True))
    for tensor, values in zip(program.results, outputs, strict=True):
        place = None if tensor is None else places.get(tensor)
        if isinstance(place, np.ndarray) and values is not None and values is not place:
            place[...] = values


def shape_results(program: Program, results: Outputs) -> Any:
    """One array, a tuple, or None, as the kernel returned."""
    if program.returns_sequence:
        return tuple(results)
    return results[0] if results else None


def tensors_of(arguments: Sequence[Any]) -> list[Any]:
    """The arguments that are tensors of the Program, in its order, also inside of lists and tuples."""
    found: list[Any] = []
    for value in arguments:
        if isinstance(value, AbstractTensor) or (isinstance(value, np.ndarray) and value.ndim > 0):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += tensors_of(value)
    return found


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
