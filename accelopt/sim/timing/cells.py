"""Which pieces of which tiles every instance touches.

Storage comes in units: one block of a tensor in one iteration of the loops around its declaration.
Units are cut into cells, the pieces that accesses cover whole, so that what depends on what is a
question about cell numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.program import Tensor
from accelopt.sim.timing.expansion import Instances
from accelopt.sim.timing.stream import Stream, Unit

CELLS_PER_ACCESS = 8
"""Tiles are cut no finer than lets an access cover this many cells on average."""


@dataclass(frozen=True, eq=False)
class _Use:
    """One access of one operation in all its iterations."""

    owner: int
    is_write: bool
    scope: np.ndarray  # (n, k) what selects the unit
    partition: np.ndarray  # (n,) first
    start: np.ndarray  # (n,) first byte in the partition
    partitions: int
    length: int  # bytes


class _Spot(NamedTuple):
    """A _Use of an operation that runs once: the same with plain numbers. A kernel that unrolls its
    loops in Python has hundreds of thousands of these."""

    owner: int
    is_write: bool
    scope: tuple[int, ...]
    partition: int
    start: int
    partitions: int
    length: int
    whole: bool  # all of the tile

    def widened(self) -> _Use:
        """As arrays of length one."""
        return _Use(
            self.owner,
            self.is_write,
            np.array([self.scope], dtype=np.int64).reshape(1, len(self.scope)),
            np.array([self.partition]),
            np.array([self.start]),
            self.partitions,
            self.length,
        )


Found = dict[tuple[int, bool], list[list[list[int]]]]
"""Per operation and direction, for each access: the cells of every instance."""


def stream(instances: list[Instances], scope: dict[Tensor, int]) -> Stream:
    """All instances in program order with the cells they read and write."""
    scratch = _ordered_hbm(instances)
    uses: dict[Tensor, list[_Use | _Spot]] = {}
    for owner, item in enumerate(instances):
        operation = item.operation
        for is_write, accesses in ((False, operation.reads), (True, operation.writes)):
            for access in accesses:
                if access.tensor.buffer.on_chip or access.tensor in scratch:
                    found_use = _spot if item.positions.size == 1 else _use
                    use = found_use(owner, is_write, access, item, scope)
                    uses.setdefault(access.tensor, []).append(use)
    result = Stream(instances)
    found: Found = {}
    site_numbers: dict[tuple[object, ...], int] = {}
    for tensor, tensor_uses in uses.items():
        spots = [use for use in tensor_uses if isinstance(use, _Spot)]
        site = _site(tensor, result, site_numbers)
        if len(spots) == len(tensor_uses):
            _cut_spots(tensor, spots, site, scope.get(tensor, 0), result, found)
        else:
            arrays = [use.widened() if isinstance(use, _Spot) else use for use in tensor_uses]
            _cut(tensor, arrays, site, scope.get(tensor, 0), result, found)
    _order(result, found)
    return result


def _ordered_hbm(instances: list[Instances]) -> set[Tensor]:
    """HBM tensors that are written and read: an order must be kept through them."""
    read: set[Tensor] = set()
    written: set[Tensor] = set()
    for item in instances:
        read.update(a.tensor for a in item.operation.reads)
        written.update(a.tensor for a in item.operation.writes)
    return {tensor for tensor in read & written if not tensor.buffer.on_chip}


def _use(
    owner: int, is_write: bool, access: Access, item: Instances, scope: dict[Tensor, int]
) -> _Use:
    n = item.positions.size
    depth = scope.get(access.tensor, 0)
    blocks = [np.broadcast_to(index.evaluate_many(item.values), (n,)) for index in access.block]
    placement = access.tensor.placement
    if placement is None:
        columns = [item.iterations[:, :depth], *(column[:, None] for column in blocks)]
    else:
        # The kernel placed the blocks itself: one unit an address, whoever is in it.
        address = np.asarray(placement.addresses, dtype=np.int64)[tuple(blocks)]
        columns = [np.broadcast_to(address, (n,))[:, None]]
    offset = np.broadcast_to(access.offset.evaluate_many(item.values), (n,))
    partitions, span, moves = _extent(access)
    row = row_elements(access)
    size = access.dtype.itemsize
    return _Use(
        owner,
        is_write,
        np.concatenate(columns, axis=1),
        offset // row * moves,
        offset % row * (size * moves),
        partitions,
        span * size,
    )


def _spot(
    owner: int, is_write: bool, access: Access, item: Instances, scope: dict[Tensor, int]
) -> _Spot:
    values = {variable: int(array[0]) for variable, array in item.values.items()}
    blocks = tuple(index.evaluate(values) for index in access.block)
    offset = access.offset.evaluate(values) if access.offset.terms else access.offset.constant
    placement = access.tensor.placement
    if placement is None:
        depth = scope.get(access.tensor, 0)
        outer = tuple(item.iterations[0, :depth].tolist()) if depth else ()
        key = (*outer, *blocks)
    else:
        key = (int(np.asarray(placement.addresses)[blocks]),)
    partitions, span, moves = _extent(access)
    row = row_elements(access)
    partition, within = divmod(offset, row)
    size = access.dtype.itemsize
    whole = (
        offset == 0
        and span == row
        and access.tensor.buffer.on_chip
        and partitions == access.tensor.tile_shape[0]
    )
    return _Spot(
        owner,
        is_write,
        key,
        partition * moves,
        within * size * moves,
        partitions,
        span * size,
        whole,
    )


def _extent(access: Access) -> tuple[int, int, int]:
    """Partitions, and elements of each from the first to the last that is touched; and 0 when the
    address says nothing (a run-time index), else 1."""
    tensor = access.tensor
    if access.indirect:
        total = math.prod(tensor.tile_shape)
        rows = tensor.tile_shape[0] if tensor.buffer.on_chip else 1
        return rows, total // rows, 0
    if not tensor.buffer.on_chip:
        return *_hull(access), 1
    span = 1
    for length, stride in zip(access.shape[1:], access.strides[1:], strict=True):
        span += (length - 1) * abs(stride)
    return (access.partitions if access.strides and access.strides[0] else 1), span, 1


def _hull(access: Access) -> tuple[int, int]:
    """Rows of an HBM tensor's innermost dimension, and elements of each, that hold an access."""
    row = row_elements(access)
    pairs = list(zip(access.shape, access.strides, strict=True))
    outer = sum((n - 1) * abs(s) // row for n, s in pairs if abs(s) >= row)
    inner = 1 + sum((n - 1) * abs(s) for n, s in pairs if abs(s) < row)
    return 1 + outer, min(inner, row)


def row_elements(access: Access) -> int:
    """Elements from one partition to the next; in HBM, of the innermost dimension."""
    shape = access.tensor.tile_shape
    free = shape[1:] if access.tensor.buffer.on_chip else shape[-1:]
    declared = math.prod(free) * access.tensor.dtype.itemsize
    return max(declared // access.dtype.itemsize, 1)


def _site(tensor: Tensor, result: Stream, site_numbers: dict[tuple[object, ...], int]) -> int:
    """The number of the place where a tensor is declared."""
    key = (tensor.source, tensor.tile_shape, tensor.buffer, tensor.temporary)
    site = site_numbers.setdefault(key, len(site_numbers))
    if site == len(result.sites):
        result.sites.append(tensor.source)
    return site


def _size(tensor: Tensor) -> tuple[int, int]:
    """Bytes of a row and rows: partitions on-chip, the innermost dimension in HBM."""
    shape, size = tensor.tile_shape, tensor.dtype.itemsize
    if tensor.buffer.on_chip:
        return math.prod(shape[1:]) * size, shape[0]
    return (shape[-1] if shape else 1) * size, max(math.prod(shape[:-1]), 1)


def _cut(
    tensor: Tensor, uses: list[_Use], site: int, depth: int, result: Stream, found: Found
) -> None:
    """Numbers the units and cells of one tensor and finds each use's cells."""
    width = max(use.scope.shape[1] for use in uses)
    keys = np.concatenate([_padded(use.scope, width) for use in uses])
    unit_of, count = _numbered(keys)
    total_bytes, rows = _size(tensor)
    byte_step, row_step = _steps(
        [(use.partition.size, use.length, use.partitions) for use in uses],
        _common(total_bytes, [(use.start, use.length) for use in uses]),
        _common(rows, [(use.partition, use.partitions) for use in uses]),
        total_bytes,
    )
    across, down = -(-total_bytes // byte_step), -(-rows // row_step)
    first_cell = _declare(tensor, count, across * down, site, depth, result)
    at = 0
    for use in uses:
        n = use.partition.size
        units = unit_of[at : at + n]
        at += n
        columns = _range(use.start, use.length, byte_step, across)
        lines = _range(use.partition, use.partitions, row_step, down)
        cells = (
            first_cell
            + units[:, None, None] * (across * down)
            + lines[:, :, None] * across
            + columns[:, None, :]
        )
        found.setdefault((use.owner, use.is_write), []).append(cells.reshape(n, -1).tolist())


def _cut_spots(
    tensor: Tensor, spots: list[_Spot], site: int, depth: int, result: Stream, found: Found
) -> None:
    """As `_cut`, for a tensor that only operations without iterations touch."""
    if all(spot.whole and not spot.scope for spot in spots):
        cell = [[_declare(tensor, 1, 1, site, depth, result)]]
        for spot in spots:
            found.setdefault((spot.owner, spot.is_write), []).append(cell)
        return
    numbers: dict[tuple[int, ...], int] = {}
    for key in sorted({spot.scope for spot in spots}):
        numbers[key] = len(numbers)
    total_bytes, rows = _size(tensor)
    byte_step, row_step = _steps(
        [(1, spot.length, spot.partitions) for spot in spots],
        math.gcd(total_bytes, *(n for spot in spots for n in (spot.start, spot.length))),
        math.gcd(rows, *(n for spot in spots for n in (spot.partition, spot.partitions))),
        total_bytes,
    )
    across, down = -(-total_bytes // byte_step), -(-rows // row_step)
    first_cell = _declare(tensor, len(numbers), across * down, site, depth, result)
    for spot in spots:
        base = first_cell + numbers[spot.scope] * across * down
        last_column = min((spot.start + spot.length - 1) // byte_step, across - 1)
        last_line = min((spot.partition + spot.partitions - 1) // row_step, down - 1)
        cells = [
            base + line * across + column
            for line in range(spot.partition // row_step, last_line + 1)
            for column in range(spot.start // byte_step, last_column + 1)
        ]
        found.setdefault((spot.owner, spot.is_write), []).append([cells])


def _declare(tensor: Tensor, count: int, cells: int, site: int, depth: int, result: Stream) -> int:
    """Adds the units and cells of a tensor to the stream; returns the first cell."""
    first_unit, first_cell = len(result.units), len(result.cell_unit)
    size = _size(tensor) if tensor.buffer.on_chip else (0, tensor.tile_shape[0])
    unit = Unit(tensor, size[0], size[1], site, depth)
    result.units += [unit] * count
    for number in range(first_unit, first_unit + count):
        result.cell_unit += [number] * cells
    return first_cell


def _padded(scope: np.ndarray, width: int) -> np.ndarray:
    if scope.shape[1] == width:
        return scope
    return np.pad(scope, ((0, 0), (0, width - scope.shape[1])))


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, int]:
    """A number for each distinct row, in the order of the rows' values."""
    if keys.shape[1] == 0:
        return np.zeros(keys.shape[0], np.int64), 1
    combined = np.zeros(keys.shape[0], np.int64)
    for column in keys.T:
        low = int(column.min())
        combined = combined * (int(column.max()) - low + 1) + (column - low)
    unique, inverse = np.unique(combined, return_inverse=True)
    return inverse.reshape(-1), unique.size


def _steps(
    accesses: list[tuple[int, int, int]], byte_step: int, row_step: int, total_bytes: int
) -> tuple[int, int]:
    """Sizes of a cell, in bytes and in partitions, no finer than CELLS_PER_ACCESS allows. Accesses
    come as how many, bytes, partitions."""
    byte_step, row_step = max(byte_step, 1), max(row_step, 1)
    allowed = CELLS_PER_ACCESS * sum(count for count, _, _ in accesses) + 256
    while True:
        covered = sum(
            count * -(-length // byte_step) * -(-partitions // row_step)
            for count, length, partitions in accesses
        )
        if covered <= allowed:
            return byte_step, row_step
        if byte_step < total_bytes:
            byte_step *= 2
        else:
            row_step *= 2


def _common(total: int, ranges: list[tuple[np.ndarray, int]]) -> int:
    step = total
    for start, length in ranges:
        step = math.gcd(step, length, int(np.gcd.reduce(start)))
    return max(step, 1)


def _range(start: np.ndarray, length: int, step: int, count: int) -> np.ndarray:
    """(n, k) numbers of the cells that intervals cover; short ones repeat their last."""
    first = start // step
    last = np.minimum((start + max(length, 1) - 1) // step, count - 1)
    most = int((last - first).max()) + 1
    cells: np.ndarray = np.minimum(first[:, None] + np.arange(most)[None, :], last[:, None])
    return cells


def _order(result: Stream, found: Found) -> None:
    """Puts all instances in program order."""
    positions = np.concatenate([item.positions for item in result.instances])
    order = np.argsort(positions, kind="stable")
    kinds = np.concatenate(
        [np.full(item.positions.size, at) for at, item in enumerate(result.instances)]
    )
    rows = np.concatenate([np.arange(item.positions.size) for item in result.instances])
    result.kind = kinds[order].tolist()
    result.row = rows[order].tolist()
    for is_write, target in ((False, result.reads), (True, result.writes)):
        collected: list[list[int]] = []
        for owner, item in enumerate(result.instances):
            parts = found.get((owner, is_write))
            if parts is None:
                collected += [[] for _ in range(item.positions.size)]
            elif len(parts) == 1:
                collected += parts[0]
            else:
                collected += [list(chain(*rows)) for rows in zip(*parts, strict=True)]
        target += [collected[at] for at in order.tolist()]
