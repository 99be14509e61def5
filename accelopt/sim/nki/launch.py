"""What happens when a kernel is called on the host: trace, verify, execute, measure, keep files."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim import compute, dtypes, rules
from accelopt.sim.nki import measurement
from accelopt.sim.nki.kernel import HOST_MODES, Kernel, flatten, trace_kernel
from accelopt.sim.program import Program
from accelopt.sim.trace import AbstractTensor

MEASURED_MODES = frozenset({"benchmark", "profile"})


def run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The kernel's results for these arguments, as NumPy arrays. Kernels of the older kind write
    into their arguments instead."""
    program = trace_kernel(kernel, args, kwargs)
    rules.check(program)
    if kernel.mode in HOST_MODES:
        measurement.keep_files(program, kernel.options)
    if kernel.mode in MEASURED_MODES:
        measured = kernel.options.get("measured_by") or kernel
        kernel.benchmark_result = measured.benchmark_result = measurement.benchmark(program)
        return shape_results(program, _undefined(program))
    arrays = argument_arrays(args, kwargs)
    outputs = compute.execute(program, arrays, wide_floats=kernel.mode == "simulation")
    if kernel.writes_parameters and _only_arguments(program):
        _write_back(program, _tensors(args, kwargs), outputs)
        return None
    return shape_results(program, outputs)


def _undefined(program: Program) -> tuple[np.ndarray | None, ...]:
    """What a measuring run returns: arrays of the right shapes, whose contents mean nothing."""
    return tuple(
        None
        if result is None
        else np.zeros(program.shape_of_result(number) or (), dtypes.stored(result.dtype))
        for number, result in enumerate(program.results)
    )


def _only_arguments(program: Program) -> bool:
    return all(result in program.arguments for result in program.results)


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that are tensors of the Program, in its order."""
    leaves = flatten([*args, *kwargs.values()])
    return [
        v for v in leaves if isinstance(v, AbstractTensor) or (isinstance(v, np.ndarray) and v.ndim)
    ]


def _write_back(program: Program, given: list[Any], outputs: tuple[np.ndarray | None, ...]) -> None:
    places = dict(zip(program.arguments, given, strict=True))
    for tensor, values in zip(program.results, outputs, strict=True):
        place = places[tensor] if tensor is not None else None
        if isinstance(place, np.ndarray) and values is not None and values is not place:
            place[...] = values


def argument_arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[np.ndarray]:
    """The arrays among the arguments, in the order of the Program's tensors; specifications
    without data (nt.tensor[[shape], dtype]) become zeros, as the real tool feeds dummy data."""
    return [
        np.zeros(value.shape, dtype=value.dtype) if isinstance(value, AbstractTensor) else value
        for value in _tensors(args, kwargs)
    ]


def shape_results(program: Program, results: tuple[np.ndarray | None, ...]) -> Any:
    """One array, a tuple, or None, as the kernel returned."""
    if program.returns_sequence:
        return tuple(results)
    return results[0] if results else None
