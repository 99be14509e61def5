"""What happens to a traced kernel that was called on the host: its results, as NumPy arrays, and its
latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from accelopt.sim import compute, dtypes, serial
from accelopt.sim.dialects.neuronxcc.arguments import tensors_of
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


PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)


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
