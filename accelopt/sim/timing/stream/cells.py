"""Which pieces of which tiles every instance touches.

Units are cut into cells, the pieces that accesses cover whole, so that what depends on what is a
question about cell numbers.
"""

from __future__ import annotations

import math
from itertools import chain

import numpy as np

from accelopt.sim.program import Tensor
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.stream import Stream, Unit
from accelopt.sim.timing.stream.touches import (
    Cells,
    PlainSpread,
    Side,
    Spread,
    Touches,
    Use,
    together,
    touches,
)

CELLS_PER_ACCESS = 8
"""Tiles are cut evenly no finer than lets an access cover this many cells on average."""

EDGES_PER_ACCESS = 64
"""And exactly where accesses begin and end, where no finer cut is even, as long as that lets an access
cover this many: coarser cells make instructions wait for what they do not touch."""


def stream(instances: list[Instances], scope: dict[Tensor, int]) -> Stream:
    """All instances in program order with the cells they read and write."""
    found = touches(instances, scope)
    result = Stream(instances)
    site_numbers: dict[tuple[object, ...], int] = {}
    for tensor, uses in found.uses.items():
        site = _site(tensor, result, site_numbers)
        _cut(tensor, uses, site, scope.get(tensor, 0), result)
    _order(result, found)
    return result


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


def _cut(tensor: Tensor, given: list[Use], site: int, depth: int, result: Stream) -> None:
    """Numbers the units and cells of one tensor and gives each use its cells."""
    whole = [use for use in given if isinstance(use, list)]
    if len(whole) == len(given):
        cell = _declare(tensor, 1, [1], site, depth, result)
        for cells in whole:
            cells.append(cell)
        return
    total_bytes, rows = _size(tensor)
    uses = [use for use in given if isinstance(use, Spread)]
    spots: dict[tuple[int, int], list[PlainSpread]] = {}  # by what they cover
    for use in given:
        if not isinstance(use, Spread):
            spot = PlainSpread(use, (), 0, 0, rows, total_bytes) if isinstance(use, list) else use
            spots.setdefault((spot.partitions, spot.length), []).append(spot)
    plain = [(alike, together(alike)) for alike in spots.values()]
    uses += [use for _, use in plain]
    width = max(use.scope.shape[1] for use in uses)
    keys = np.concatenate([_padded(use.scope, width) for use in uses])
    unit_of, count = _numbered(keys)
    finest = _common(total_bytes, [(use.start, use.length) for use in uses])
    finest_rows = _common(rows, [(use.partition, use.partitions) for use in uses])
    byte_step, row_step = _steps(
        [(use.partition.size, use.length, use.partitions) for use in uses],
        finest,
        finest_rows,
        total_bytes,
    )
    edges = np.append(np.arange(0, total_bytes, byte_step), total_bytes)
    if (byte_step, row_step) != (finest, finest_rows):
        exact = _edges(uses, edges)
        covered = sum(
            int((last - first + 1).sum()) * -(-use.partitions // finest_rows)
            for use in uses
            for first, last in [_first_and_last(exact, use)]
        )
        if covered <= _allowed(EDGES_PER_ACCESS, sum(use.partition.size for use in uses)):
            edges, row_step = exact, finest_rows
    down = -(-rows // row_step)
    across = edges.size - 1
    weights = (np.diff(edges) // math.gcd(*np.diff(edges).tolist())).tolist() * down
    first_cell = _declare(tensor, count, weights, site, depth, result)
    at = 0
    for use in uses:
        n = use.partition.size
        units = unit_of[at : at + n]
        at += n
        columns = _between(edges, use)
        lines = _range(use.partition, use.partitions, row_step, down)
        cells = (
            first_cell
            + units[:, None, None] * (across * down)
            + lines[:, :, None] * across
            + columns[:, None, :]
        )
        use.rows.append(cells.reshape(n, -1).tolist())
    for alike, use in plain:
        for spot, numbers in zip(alike, use.rows[0], strict=True):
            spot.cells.extend(dict.fromkeys(numbers))  # short ones repeat their last


def _edges(uses: list[Spread], even: np.ndarray) -> np.ndarray:
    """Where accesses begin and end."""
    ends = [use.start + max(use.length, 1) for use in uses]
    exact = np.unique(np.concatenate([even[[0, -1]], *[use.start for use in uses], *ends]))
    within: np.ndarray = exact[exact <= even[-1]]
    return within


def _first_and_last(edges: np.ndarray, use: Spread) -> tuple[np.ndarray, np.ndarray]:
    """(n,) each: the first and the last of the pieces that a use's intervals cover."""
    first = np.searchsorted(edges, use.start, "right") - 1
    end = np.searchsorted(edges, use.start + max(use.length, 1))
    return first, np.minimum(end - 1, edges.size - 2)


def _between(edges: np.ndarray, use: Spread) -> np.ndarray:
    """(n, k) numbers of the pieces that a use's intervals cover; short ones repeat their last."""
    first, last = _first_and_last(edges, use)
    most = int((last - first).max()) + 1
    cells: np.ndarray = np.minimum(first[:, None] + np.arange(most)[None, :], last[:, None])
    return cells


def _declare(
    tensor: Tensor, count: int, weights: list[int], site: int, depth: int, result: Stream
) -> int:
    """Adds the units and cells of a tensor to the stream; returns the first cell."""
    first_unit, first_cell = len(result.units), len(result.cell_unit)
    size = _size(tensor) if tensor.buffer.on_chip else (0, tensor.tile_shape[0])
    unit = Unit(tensor, size[0], size[1], site, depth)
    result.units += [unit] * count
    for number in range(first_unit, first_unit + count):
        result.cell_unit += [number] * len(weights)
        result.cell_weight += weights
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
    allowed = _allowed(CELLS_PER_ACCESS, sum(count for count, _, _ in accesses))
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


def _allowed(cells: int, accesses: int) -> int:
    return cells * accesses + 256


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


def _order(result: Stream, found: Touches) -> None:
    """Puts all instances in program order."""
    sizes = np.array([item.positions.size for item in result.instances])
    order = np.argsort(np.concatenate([i.positions for i in result.instances]), kind="stable")
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    result.kind = np.repeat(np.arange(sizes.size), sizes)[order].tolist()
    result.row = (np.arange(starts.size) - starts)[order].tolist()
    at = order.tolist()
    result.read_cells = [_counted(found.reads, owner) for owner in range(sizes.size)]
    for side, target in ((found.reads, result.reads), (found.writes, result.writes)):
        collected: list[Cells] = []
        for owner, cells in enumerate(side.cells):
            parts = side.rows.get(owner)
            if parts is None:
                collected.append(cells)
            elif len(parts) == 1:
                collected += parts[0]
            elif parts:
                collected += [list(chain(*rows)) for rows in zip(*parts, strict=True)]
            else:
                collected += [[] for _ in range(sizes[owner])]
        target += [collected[number] for number in at]


def _counted(side: Side, owner: int) -> tuple[tuple[int, int], ...]:
    """Which accesses of an operation have cells, and how many."""
    touched, parts = side.touched[owner], side.rows.get(owner)
    if parts is None:
        return tuple((at, len(side.cells[owner])) for at in touched)
    return tuple((at, len(part[0])) for at, part in zip(touched, parts, strict=True))
