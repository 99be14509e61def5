"""neuronxcc.nki as the simulated NeuronCore offers it (the Beta 1 dialect, SDK 2.26.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelopt.sim.dialects.neuronxcc import compiler, isa, language, typing
from accelopt.sim.dialects.neuronxcc.absent import AbsentCallable
from accelopt.sim.dialects.neuronxcc.kernel import Kernel
from accelopt.sim.dialects.neuronxcc.neuronxcc_tensor import NeuronxccTensor as tensor

__all__ = [
    "FrameworkKernel", "baremetal", "benchmark", "compiler", "isa", "jit", "language", "profile",
    "simulate_kernel", "tensor", "trace", "typing",
]  # fmt: skip

FrameworkKernel = AbsentCallable("nki.FrameworkKernel")


def jit(func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Decorates a kernel, with or without arguments. Modes auto, baremetal and simulation run it
    on NumPy arrays; benchmark and profile also measure; trace makes a kernel for other kernels."""
    if func is None:
        return lambda inner: Kernel(inner, mode=mode, **kwargs)
    return Kernel(func, mode=mode, **kwargs)


def trace(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Decorates a kernel that other kernels call, or one that writes its outputs into arguments."""
    return jit(func, mode="trace", **kwargs)


def baremetal(kernel: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """A kernel compiled and run on a device without a framework: here, on the simulated core, which
    leaves no compiled file and no trace."""
    return jit(kernel, mode="baremetal", **kwargs)


def benchmark(kernel: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """As baremetal; after a call `benchmark_result.nc_latency.get_latency_percentile(p)` of the
    kernel is its latency in microseconds."""
    return jit(kernel, mode="benchmark", **kwargs)


def profile(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """As benchmark; there is nothing that a profiler could read."""
    return jit(func, mode="profile", **kwargs)


def simulate_kernel(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs a kernel (or a gridded kernel) on NumPy arrays."""
    wrapped = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    return Kernel(wrapped, mode="simulation")(*args, **kwargs)
