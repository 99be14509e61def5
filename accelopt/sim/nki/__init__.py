"""neuronxcc.nki as the simulated NeuronCore offers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelopt.sim.nki.kernel import Kernel
from accelopt.sim.nki.tensor import TensorView as tensor

__all__ = ["baremetal", "benchmark", "jit", "simulate_kernel", "tensor", "trace"]


def jit(function: Callable[..., Any] | None = None, mode: str = "auto", **options: Any) -> Any:
    """Decorates a kernel, with or without arguments."""
    if function is None:
        return lambda inner: Kernel(inner, mode=mode, **options)
    return Kernel(function, mode=mode, **options)


def trace(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorates a kernel that other kernels call."""
    return jit(function, mode="trace", **options)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs a kernel (or a gridded kernel) on NumPy arrays."""
    return (kernel if isinstance(kernel, Kernel) else Kernel(kernel))(*args, **kwargs)


def baremetal(kernel: Any = None, **options: Any) -> Any:
    """A kernel compiled and run on the device: here, the simulated one."""
    if kernel is None:
        return lambda inner: baremetal(inner, **options)
    return kernel if isinstance(kernel, Kernel) else Kernel(kernel, **options)


benchmark = baremetal
