"""Loops, indices and the coordinates of SPMD programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from accelopt.sim.dialects.neuronxcc.builder import TOLERATED, fail, named
from accelopt.sim.dialects.neuronxcc.index import MeshGridMaker, arange, number_of
from accelopt.sim.dialects.neuronxcc.tensor import DynamicSlice
from accelopt.sim.errors import KernelValueError
from accelopt.sim.loops import KernelRange, StaticRange
from accelopt.sim.program import LoopKind
from accelopt.sim.tracer import current

__all__ = [
    "affine_range", "arange", "ds", "mgrid", "nc", "num_programs", "program_id", "program_ndim",
    "sequential_range", "spmd_dim", "static_range",
]  # fmt: skip

mgrid = MeshGridMaker()


def ds(start: Any, size: int) -> DynamicSlice:
    """A slice of constant size whose start may be a loop index."""
    return DynamicSlice(start, size)


def _range(name: str, made: Callable[[int, int, int], Any], says: str) -> Callable[..., Any]:
    def function(start: Any, stop: Any = None, step: Any = 1) -> Any:
        first, last = (0, start) if stop is None else (start, stop)
        return made(number_of(first), number_of(last), number_of(step))

    function.__doc__ = says
    return named(name, function, TOLERATED | {"multi_buffer"})


def _loop(kind: LoopKind) -> Callable[[int, int, int], KernelRange]:
    return lambda start, stop, step: KernelRange(kind, start, stop, step)


affine_range = _range(
    "affine_range", _loop(LoopKind.AFFINE), "A loop whose iterations are independent."
)
sequential_range = _range(
    "sequential_range", _loop(LoopKind.SEQUENTIAL), "A loop whose iterations run in order."
)
static_range = _range(
    "static_range", StaticRange, "A loop that is unrolled: its index is a Python number."
)


def program_id(axis: int) -> Any:
    """This program's coordinate in the launch grid."""
    grid = current().grid
    if not -len(grid) <= int(axis) < len(grid):
        mend = "Launch it as name[grid](...); in a file to check, write kernel = name[grid] below."
        problem = f"the launch grid has {len(grid)} dimensions, not {int(axis) + 1}."
        fail(KernelValueError("program_id", problem, mend))
    return grid[axis]


def num_programs(axes: Any = None) -> Any:
    """Sizes of the launch grid; without axes their product."""
    shape = current().grid_shape
    if axes is None:
        return math.prod(shape)
    if isinstance(axes, (tuple, list)):
        return tuple(shape[n] for n in axes)
    if not -len(shape) <= int(axes) < len(shape):
        return 1
    return shape[axes]


def program_ndim() -> int:
    """Number of grid dimensions; 0 without a grid."""
    return len(current().grid_shape)


class GridDimension:
    """A dimension of the launch grid with a hint on how physical cores share it; the simulated
    core runs the programs one after the other."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __mul__(self, factor: Any) -> GridDimension:
        return GridDimension(self.size * int(getattr(factor, "size", factor)))

    __rmul__ = __mul__

    def __int__(self) -> int:
        return self.size

    __index__ = __int__


def nc(cores: int) -> GridDimension:
    """A grid dimension spread over physical cores."""
    return GridDimension(int(cores))


def spmd_dim(*dimensions: Any) -> GridDimension:
    """A grid dimension made of parts, one of which may be nl.nc(n)."""
    return GridDimension(math.prod(int(getattr(d, "size", d)) for d in dimensions))
