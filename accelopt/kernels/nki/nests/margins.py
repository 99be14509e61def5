"""Room at the ends of arrays in HBM that are read beyond them, where a condition excludes what is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from accelopt.algorithm.algorithm import Algorithm
from accelopt.algorithm.index import ZERO, Index
from accelopt.kernels.nki.nests.reading import Reading, inputs_of


class Margins(NamedTuple):
    """An array whose dimensions from the first one that is left lie one after the other, as in memory,
    with `low` elements before and `high` after them; `given` is its shape without."""

    given: tuple[int, ...]
    first: int
    low: int
    high: int

    @property
    def outer(self) -> int:
        """How often there are margins: for each element of the dimensions before."""
        return math.prod(self.given[: self.first])

    @property
    def step(self) -> int:
        """Elements from one begin of margins to the next."""
        return self.low + math.prod(self.given[self.first :]) + self.high

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array with its margins."""
        return (*self.given[: self.first], self.step)

    def flat(self, indices: Sequence[Index]) -> Index:
        """The indices from the first dimension that is left as one."""
        place = ZERO
        for index, extent in zip(indices[self.first :], self.given[self.first :], strict=True):
            place = place * extent + index
        return place

    def place(self, indices: Sequence[Index]) -> tuple[Index, ...]:
        """Indices of the array as those of the array with its margins."""
        return (*indices[: self.first], self.flat(indices) + self.low)


def margins_of(algorithm: Algorithm, reading: Reading) -> dict[str, Margins]:
    """The arrays that are read beyond their ends, with as much room as is read there."""
    shapes = {array.name: array.shape for array in algorithm.inputs}
    shapes |= {d.out: tuple(a.extent for a in d.axes) for d in algorithm.definitions}
    places: dict[str, list[tuple[Index, ...]]] = {}
    for meaning in reading.meanings.values():
        for root in meaning.roots:
            for value in inputs_of(root):
                if value.kind == "input":
                    places.setdefault(value.array, []).append(value.indices)
    found: dict[str, Margins] = {}
    for name, all_indices in places.items():
        shape = shapes[name]
        left = [
            n
            for indices in all_indices
            for n, (index, extent) in enumerate(zip(indices, shape, strict=True))
            if index.bounds[0] < 0 or index.bounds[1] >= extent
        ]
        if left:
            bare = Margins(shape, min(left), 0, 0)
            ends = [bare.flat(indices).bounds for indices in all_indices]
            low = max(0, -min(low for low, _ in ends))
            high = max(0, max(high for _, high in ends) - bare.step + 1)
            found[name] = Margins(shape, min(left), low, high)
    return found
