"""Loops, coordinates of cores, and what the compiler is told, in nki.language."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from accelopt.sim.dialects.neuronxcc.builder import fail, named
from accelopt.sim.dialects.neuronxcc.language.control import ds, program_ndim
from accelopt.sim.dialects.nki.call_conventions import MENDS
from accelopt.sim.dialects.nki.python_loops import counted
from accelopt.sim.dialects.nki.registers import dynamic_range, fori_loop, while_loop
from accelopt.sim.errors import KernelValueError
from accelopt.sim.tracer import current

affine_range, sequential_range, static_range = (
    named(name, counted, frozenset(), MENDS)
    for name in ("affine_range", "sequential_range", "static_range")
)


class NKIObject:
    """What classes of kernels inherit. The compiler reads the class, not what decorators made of it: its
    fields are all its plain attributes, annotated or not, and those that a call leaves out are None."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        fields = dict(vars(cls).get("__annotations__", {}))
        for name in fields:
            if name not in vars(cls):
                setattr(cls, name, None)
        for name, value in vars(cls).items():
            plain = not name.startswith("__") and not callable(value)
            if plain and not hasattr(value, "__get__") and getattr(value, "__hash__", None):
                fields.setdefault(name, Any)
        cls.__annotations__ = fields

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)


def program_id(axis: int = 0) -> int:
    """Which core of the logical core this is: 0 without a launch grid."""
    grid = current().grid
    if not grid:
        return 0
    if not -len(grid) <= int(axis) < len(grid):
        fail(KernelValueError("program_id", f"the launch grid has {len(grid)} dimensions."))
    return int(grid[axis])  # type: ignore[call-overload,no-any-return]


def num_programs(axes: Any = 0) -> Any:
    """How many cores run the kernel: 1 without a launch grid."""
    shape = current().grid_shape
    if axes is None:
        axes = tuple(range(len(shape)))
    if isinstance(axes, (tuple, list)):
        return tuple(num_programs(axis) for axis in axes)
    return shape[axes] if -len(shape) <= int(axes) < len(shape) else 1


@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Inside, instructions keep their order."""
    yield


__all__ = [
    "NKIObject", "affine_range", "ds", "dynamic_range", "fori_loop", "no_reorder", "num_programs",
    "program_id", "program_ndim", "sequential_range", "static_range", "while_loop",
]  # fmt: skip
