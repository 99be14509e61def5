"""Tiles as element numbers: for run-time indices, and masked tiles that leave their tensor."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access, Indirect
from accelopt.sim.errors import KernelIndexError

if TYPE_CHECKING:
    from accelopt.sim.compute.tiles.operands import LaneSite

Keys = Sequence[Hashable]


class Elements:
    """The tile as element numbers in its storage, for what no strided view can describe."""

    def __init__(self, site: LaneSite, access: Access, keys: Keys) -> None:
        self.site, self.access, self.keys = site, access, keys
        self._address = site.address(access)
        self._indices = [
            (_index_values(site, item, access, keys), item.stride, item.size)
            for item in access.indirect
        ]
        grid: np.ndarray = np.zeros((1,) * len(access.shape), dtype=np.int64)
        for position, (size, stride) in enumerate(zip(access.shape, access.strides, strict=True)):
            axis = np.arange(size, dtype=np.int64) * stride
            grid = grid + axis.reshape((-1,) + (1,) * (len(access.shape) - position - 1))
        self._grid = grid
        self._by_row = (
            len(access.indirect) == 1
            and not access.indirect[0].group
            and access.strides[0] == 0
            and access.indirect[0].index.elements == access.indirect[0].index.shape[0]
            and access.indirect[0].index.shape[0] == access.shape[0]
        )

    def load(self, pattern: np.ndarray | None) -> np.ndarray:
        """The elements of the current iteration, a new array; anything where the pattern is False.
        Raises IndexError for what lies outside of the tensor."""
        rows = self._rows()
        if rows is not None:
            found: np.ndarray = rows[0][rows[1]]
            return found
        return self.read(self.numbers(pattern))

    def save(self, values: np.ndarray, pattern: np.ndarray | None) -> None:
        """Stores the elements of the current iteration where the pattern is True."""
        rows = self._rows() if pattern is None else None
        if rows is not None:
            rows[0][rows[1]] = values
        else:
            self.write(self.numbers(pattern), values, pattern)

    def _rows(self) -> tuple[np.ndarray, np.ndarray] | None:
        """When one index chooses whole rows: a view of all rows, and the numbers of those wanted.
        None when that does not describe the tile, or an index is out of range."""
        if not self._by_row:
            return None
        values, stride, size = self._indices[0]
        index = values().reshape(-1)
        if index.min(initial=0) < 0 or index.max(initial=0) >= size:
            return None
        window = self.site.window.slices(self.keys, self.access.shape)[1:]
        first_row = (slice(0, 1), *window)
        free = self._grid[first_row][0]
        start = self._address() // self.access.dtype.itemsize + int(free.flat[0])
        if (
            start < 0
            or start + (size - 1) * stride + int(free.max() - free.flat[0]) >= self._total()
        ):
            return None
        flat = self._flat()
        strides = (stride, *self.access.strides[1:])
        shape = (size, *free.shape)
        steps = tuple(s * flat.itemsize for s in strides)
        return np.ndarray(shape, flat.dtype, flat, start * flat.itemsize, steps), index

    def shape(self) -> tuple[int, ...]:
        """The tile's shape in the current iteration's window."""
        slices = self.site.window.slices(self.keys, self.access.shape)
        return tuple(
            len(range(*s.indices(n))) for s, n in zip(slices, self.access.shape, strict=True)
        )

    def numbers(self, wanted: np.ndarray | None, skip: bool = False) -> np.ndarray:
        """Element numbers of the tile in the current iteration, int64; -1 where a run-time index
        is out of range and `skip` allows it. `wanted` is where the elements matter: elsewhere any
        number is fine. Raises IndexError for what lies outside of the tensor."""
        window = self.site.window.slices(self.keys, self.access.shape)
        start = self._address() // self.access.dtype.itemsize
        numbers = self._grid[window] + start
        wrong: np.ndarray | None = None
        beyond: list[tuple[np.ndarray, np.ndarray, int]] = []
        for values, stride, size in self._indices:
            index = values()
            numbers = numbers + index * stride
            outside = (index < 0) | (index >= size)
            if outside.any():
                wrong = outside if wrong is None else wrong | outside
                beyond.append((index, outside, size))
        total = self._total()
        outside = (numbers < 0) | (numbers >= total)
        if wrong is not None:
            outside = outside | np.broadcast_to(wrong, numbers.shape)
        if outside.any():
            if not skip:
                asked = outside if wanted is None else outside & wanted
                self._refuse(numbers, asked, total, beyond)
            numbers = np.where(outside, -1, numbers)
        return numbers

    def _total(self) -> int:
        return self.site.storage(self.access).layout.size // self.access.dtype.itemsize

    def _refuse(
        self,
        numbers: np.ndarray,
        outside: np.ndarray,
        total: int,
        beyond: list[tuple[np.ndarray, np.ndarray, int]],
    ) -> None:
        """Raises IndexError with NumPy's words for a flat array, as the SDK's simulator does (2.26.1,
        its example of out-of-bounds access), because of one that says which index it was; `beyond`
        are indices, where they are out of range, and their bounds."""
        if not outside.any():
            return
        name = self.access.tensor.name
        text = f"index {int(numbers[outside][0])} is out of bounds for axis 0 with size {total}"
        said = f"{text} (elements of '{name}')."
        for index, wrong, size in beyond:
            asked = np.broadcast_to(wrong, outside.shape) & outside
            if asked.any():
                first = int(np.broadcast_to(index, outside.shape)[asked][0])
                said = f"the run-time index {first} of '{name}' is not one of 0 to {size - 1}."
                break
        raise IndexError(text) from KernelIndexError(
            "indirect_index_out_of_bounds",
            said,
            "Keep run-time indices inside of the tensor, or pass oob_mode.skip.",
            self.site.instruction.source,
        )

    def _flat(self) -> np.ndarray:
        return self.site.storage(self.access).buffer.view(dtypes.stored(self.access.dtype))

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """The elements, a new array; anything where the number is -1."""
        found: np.ndarray = self._flat()[np.maximum(numbers, 0)]
        return found

    def write(self, numbers: np.ndarray, values: np.ndarray, where: np.ndarray | None) -> None:
        """Stores values, but where the number is -1 or `where` is False."""
        values = np.broadcast_to(values, numbers.shape)
        allowed = numbers >= 0
        if where is not None:
            allowed &= where
        self._flat()[numbers[allowed]] = values[allowed]

    def add(self, numbers: np.ndarray, values: np.ndarray, where: np.ndarray | None) -> None:
        """Adds values in float32; elements that occur twice get both."""
        values = np.broadcast_to(values, numbers.shape)
        allowed = numbers >= 0
        if where is not None:
            allowed &= where
        flat = self._flat()
        if flat.dtype in (dtypes.FLOAT32, dtypes.FLOAT64):
            np.add.at(flat, numbers[allowed], values[allowed])
            return
        places, inverse = np.unique(numbers[allowed], return_inverse=True)
        total = flat[places].astype(np.float32)
        np.add.at(total, inverse, values[allowed])
        flat[places] = dtypes.convert(total, flat.dtype)


def _index_values(
    site: LaneSite, item: Indirect, access: Access, keys: Keys
) -> Callable[[], np.ndarray]:
    """Run-time indices that broadcast against a tile, int64."""
    index, rank, group = item.index, len(access.shape), item.group
    if group:
        shared = site.whole(index)

        def of_groups() -> np.ndarray:
            values = shared().astype(np.int64).reshape(-1, group, index.free_elements)
            lines = values.transpose(0, 2, 1).reshape(len(values), -1)[:, : access.free_elements]
            return lines.repeat(group, axis=0).reshape(access.shape)

        return of_groups
    if index.shape[0] == access.shape[0]:
        index = column(index, rank)
    read = site.view(index, keys[rank - len(index.shape) :])
    return lambda: read().astype(np.int64)


def column(access: Access, rank: int) -> Access:
    """A (P, 1) tile as a tile of a higher rank whose free axes have length 1."""
    missing = rank - len(access.shape)
    if missing <= 0:
        return access
    return replace(
        access, shape=access.shape + (1,) * missing, strides=access.strides + (0,) * missing
    )
