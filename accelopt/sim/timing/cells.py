"""Which pieces of which tiles every instance touches.

Storage comes in units: one block of a tensor in one iteration of the loops around its declaration.
Units are cut into cells, the pieces that accesses cover whole, so that what depends on what is a
question about cell numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Tensor
from accelopt.sim.timing.expansion import Instances

CELLS_PER_ACCESS = 8
"""Tiles are cut no finer than lets an access cover this many cells on average."""


@dataclass(frozen=True)
class Unit:
    """One block of a tensor in one iteration of the loops around its declaration."""

    tensor: Tensor
    bytes: int  # per partition
    partitions: int
    site: int  # units declared at one place rotate through the same buffers
    in_loop: bool = False  # declared inside of a loop


@dataclass
class Stream:
    """Dynamic instances in program order, as lists: the passes that follow go through them one at a
    time, and nothing is faster to go through."""

    instances: list[Instances]
    kind: list[int] = field(default_factory=list)  # index into `instances`
    row: list[int] = field(default_factory=list)  # which of its iterations
    reads: list[list[int]] = field(default_factory=list)  # cells
    writes: list[list[int]] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    cell_unit: list[int] = field(default_factory=list)
    sites: list[SourceLine] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kind)


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


def stream(instances: list[Instances], scope: dict[Tensor, int]) -> Stream:
    """All instances in program order with the cells they read and write."""
    scratch = _ordered_hbm(instances)
    uses: dict[Tensor, list[_Use]] = {}
    for owner, item in enumerate(instances):
        operation = item.operation
        for is_write, accesses in ((False, operation.reads), (True, operation.writes)):
            for access in accesses:
                if access.tensor.buffer.on_chip or access.tensor in scratch:
                    use = _use(owner, is_write, access, item, scope)
                    uses.setdefault(access.tensor, []).append(use)
    result = Stream(instances)
    found: dict[tuple[int, bool], list[np.ndarray]] = {}
    site_numbers: dict[tuple[object, ...], int] = {}
    for tensor, tensor_uses in uses.items():
        _cut(tensor, tensor_uses, scope.get(tensor, 0), result, found, site_numbers)
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
    size = access.dtype.itemsize
    row = row_elements(access)
    span = 1 + sum(
        (length - 1) * abs(stride)
        for length, stride in zip(access.shape[1:], access.strides[1:], strict=True)
    )
    partitions = access.partitions if access.strides and access.strides[0] else 1
    if access.indirect or not access.tensor.buffer.on_chip:
        partitions, offset, span = _hull(access, offset)
        row = max(span, 1) if row <= 0 else row
    return _Use(
        owner,
        is_write,
        np.concatenate(columns, axis=1),
        offset // row,
        (offset % row) * size,
        partitions,
        span * size,
    )


def _hull(access: Access, offset: np.ndarray) -> tuple[int, np.ndarray, int]:
    """An HBM access, or one with run-time indices, as the interval that holds it."""
    if access.indirect:
        total = int(np.prod(access.tensor.tile_shape, dtype=np.int64))
        if access.tensor.buffer.on_chip:
            rows = access.tensor.tile_shape[0]
            return rows, np.zeros_like(offset), total // rows
        return 1, np.zeros_like(offset), total
    row = row_elements(access)
    outer = sum(
        (n - 1) * abs(s) // row
        for n, s in zip(access.shape, access.strides, strict=True)
        if abs(s) >= row
    )
    inner = 1 + sum(
        (n - 1) * abs(s) for n, s in zip(access.shape, access.strides, strict=True) if abs(s) < row
    )
    return 1 + outer, offset, min(inner, row)


def row_elements(access: Access) -> int:
    """Elements from one partition to the next; in HBM, of the innermost dimension."""
    shape = access.tensor.tile_shape
    free = shape[1:] if access.tensor.buffer.on_chip else shape[-1:]
    declared = int(np.prod(free, dtype=np.int64)) * access.tensor.dtype.itemsize
    return max(declared // access.dtype.itemsize, 1)


def _cut(
    tensor: Tensor,
    uses: list[_Use],
    depth: int,
    result: Stream,
    found: dict[tuple[int, bool], list[np.ndarray]],
    site_numbers: dict[tuple[object, ...], int],
) -> None:
    """Numbers the units and cells of one tensor and finds each use's cells."""
    width = max(use.scope.shape[1] for use in uses)
    keys = np.concatenate([_padded(use.scope, width) for use in uses])
    unit_of, count = _numbered(keys)
    on_chip = tensor.buffer.on_chip
    total_bytes = (
        int(np.prod(tensor.tile_shape[1:], dtype=np.int64)) * tensor.dtype.itemsize
        if on_chip
        else tensor.tile_shape[-1] * tensor.dtype.itemsize
        if tensor.tile_shape
        else 1
    )
    rows = (
        tensor.tile_shape[0]
        if on_chip
        else max(int(np.prod(tensor.tile_shape[:-1], dtype=np.int64)), 1)
    )
    byte_step, row_step = _steps(uses, total_bytes, rows)
    across, down = -(-total_bytes // byte_step), -(-rows // row_step)
    site_key = (tensor.source, tensor.tile_shape, tensor.buffer, tensor.temporary)
    site = site_numbers.setdefault(site_key, len(site_numbers))
    if site == len(result.sites):
        result.sites.append(tensor.source)
    first_unit, first_cell = len(result.units), len(result.cell_unit)
    unit = Unit(tensor, total_bytes if on_chip else 0, rows, site, depth > 0)
    result.units += [unit] * count
    result.cell_unit += np.repeat(np.arange(first_unit, first_unit + count), across * down).tolist()
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
        found.setdefault((use.owner, use.is_write), []).append(cells.reshape(n, -1))


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


def _steps(uses: list[_Use], total_bytes: int, rows: int) -> tuple[int, int]:
    """Sizes of a cell, in bytes and in partitions."""
    byte_step = _common(total_bytes, [(use.start, use.length) for use in uses])
    row_step = _common(rows, [(use.partition, use.partitions) for use in uses])
    accesses = sum(use.partition.size for use in uses)
    while True:
        covered = sum(
            use.partition.size * -(-use.length // byte_step) * -(-use.partitions // row_step)
            for use in uses
        )
        if covered <= CELLS_PER_ACCESS * accesses + 256:
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


def _order(result: Stream, found: dict[tuple[int, bool], list[np.ndarray]]) -> None:
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
            else:
                cells = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
                collected += cells.tolist()
        target += [collected[at] for at in order.tolist()]
