"""A kernel's PTX and its Nsight Compute counters, or why there are none."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from accelopt.kernels.gpu.bench.judging.compile_check import CompileVerdict
from accelopt.kernels.gpu.profiling.metrics import Metrics
from accelopt.nodes import Node

NO_PTX, NO_COUNTERS = (
    "there is no PTX of this kernel",
    "Nsight Compute read no counters of this kernel",
)


class CompilerOutput(NamedTuple):
    """A kernel's PTX, or why there is none; its counters, or why there are none."""

    ptx: str = ""
    metrics: Metrics | None = None
    no_ptx: str = NO_PTX
    no_metrics: str = NO_COUNTERS


@runtime_checkable
class Compiles(Protocol):
    """A kernel language whose kernels have PTX."""

    async def compiler_output(self, node: Node) -> CompilerOutput:
        """What its compiler and profiler say of a kernel."""

    async def compiled(self, node: Node) -> CompileVerdict:
        """What its compiler makes of a kernel."""
