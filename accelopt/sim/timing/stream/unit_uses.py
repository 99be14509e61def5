"""Where the units of one memory are touched, in program order, and how much of it they take meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accelopt.sim.timing.stream.stream import Stream, Unit


class UnitUses:
    """The uses of the units that are `chosen`: `here` has the units that each instance touches, `at` the
    positions at which each unit is touched (none of others)."""

    def __init__(self, stream: Stream, chosen: Callable[[Unit], bool]) -> None:
        mine = list(map(chosen, stream.units))
        self.bytes = [unit.bytes for unit in stream.units]
        self.at: list[list[int]] = [[] for _ in stream.units]
        self.here: list[list[int]] = []
        cell_unit = stream.cell_unit
        for position, (reads, writes) in enumerate(zip(stream.reads, stream.writes, strict=True)):
            units = {cell_unit[cell] for cell in reads}
            units.update(cell_unit[cell] for cell in writes)
            touched = [unit for unit in units if mine[unit]]
            self.here.append(touched)
            for unit in touched:
                self.at[unit].append(position)

    def live(self) -> np.ndarray:
        """Bytes a partition at each position: of each unit from its first use to its last."""
        change = np.zeros(len(self.here) + 1, np.int64)
        for size, positions in zip(self.bytes, self.at, strict=True):
            if positions:
                change[positions[0]] += size
                change[positions[-1] + 1] -= size
        return np.cumsum(change)[:-1]

    def peak(self) -> int:
        """The most bytes a partition at once."""
        return int(self.live().max(initial=0))
