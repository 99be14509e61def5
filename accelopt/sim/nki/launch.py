"""What happens when a kernel is called on the host: trace, verify, execute."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim import compute, rules
from accelopt.sim.nki.kernel import Kernel, flatten, trace_kernel
from accelopt.sim.program import Program


def run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The kernel's results for these arguments, as NumPy arrays."""
    program = trace_kernel(kernel, args, kwargs)
    rules.check(program)
    arrays = argument_arrays(args, kwargs)
    return shape_results(program, compute.execute(program, arrays))


def argument_arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[np.ndarray]:
    """The arrays among the arguments, in the order of the Program's tensors."""
    leaves = flatten([*args, *kwargs.values()])
    return [leaf for leaf in leaves if isinstance(leaf, np.ndarray) and leaf.ndim]


def shape_results(program: Program, results: tuple[np.ndarray | None, ...]) -> Any:
    """One array, a tuple, or None, as the kernel returned."""
    if program.returns_sequence:
        return tuple(results)
    return results[0] if results else None
