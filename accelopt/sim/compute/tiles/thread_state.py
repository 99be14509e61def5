"""What one thread of execution owns: loop registers, storages, engine registers, scratch memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from accelopt.sim.affine import LoopVariable
from accelopt.sim.compute.analysis.storage import Storage, aligned_bytes
from accelopt.sim.program import Loop, Tensor


@dataclass(eq=False)
class Lane:
    """One thread's state. `registers` hold the loops' values, `positions` how many iterations each
    loop has finished; `accumulators` are the reduction registers, by core and engine."""

    slots: dict[LoopVariable, int]
    storages: dict[Tensor, Storage]
    registers: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    accumulators: dict[tuple[int, str], np.ndarray] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    _scratch: dict[int, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registers = [0] * len(self.slots)
        self.positions = [0] * len(self.slots)

    def fork(self, loop: Loop) -> Lane:
        """A lane for another thread that shares a loop's iterations: tensors that are private to
        an iteration get memory of their own."""
        storages = {
            tensor: Storage(storage.layout) if loop in storage.layout.private else storage
            for tensor, storage in self.storages.items()
        }
        return Lane(self.slots, storages)

    def follow(self, other: Lane) -> None:
        """Takes over the loop values of another lane."""
        self.registers[:] = other.registers
        self.positions[:] = other.positions

    def scratch(self, shape: tuple[int, ...], dtype: np.dtype, number: int = 0) -> np.ndarray:
        """Memory for an instruction's intermediate values; the next instruction that asks for the
        same number gets the same memory."""
        size = math.prod(shape) * dtype.itemsize
        held = self._scratch.get(number)
        if held is None or held.nbytes < size:
            held = self._scratch[number] = aligned_bytes(max(size, 1 << 18))
        return held[:size].view(dtype).reshape(shape)
