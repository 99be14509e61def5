"""What part of its tile every access covers.

Storage comes in units: one block of a tensor in one iteration of the loops around its declaration. An
access covers some bytes of some partitions of a unit, in every iteration of its operation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.program import Tensor
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Operation


class Touched(NamedTuple):
    """What is touched by the accesses of all operations of one form, but for where it begins."""

    on_chip: bool
    row: int  # elements from one partition to the next; in HBM, of the innermost dimension
    partitions: int
    length: int  # bytes
    size: int  # bytes of an element
    low: int  # elements from the offset down to the first one, where strides are negative
    moves: int  # 0: the address says nothing (a run-time index), else 1
    fills: bool  # a tile that has no blocks, when it begins at 0

    @property
    def columns(self) -> int:
        """Elements of a row from the first to the last that is touched."""
        return self.length // self.size


Cells = list[int]
"""Of one instance. As a use: of all of a tile that has one unit, by an operation that runs once."""


@dataclass(frozen=True, eq=False)
class Spread:
    """One access of one operation in all its iterations."""

    rows: list[list[Cells]]  # where those of every instance go, as one item
    scope: np.ndarray  # (n, k) what selects the unit
    partition: np.ndarray  # (n,) first
    start: np.ndarray  # (n,) first byte in the partition
    partitions: int
    length: int  # bytes


class PlainSpread(NamedTuple):
    """A Spread of an operation that runs once: the same with plain numbers. A kernel that unrolls
    its loops in Python has hundreds of thousands of these."""

    cells: Cells  # where its cells go
    scope: tuple[int, ...]
    partition: int
    start: int
    partitions: int
    length: int


def together(spots: list[PlainSpread]) -> Spread:
    """Accesses of one tensor that cover as much, as if they were iterations of one."""
    _, scope, partition, start, (partitions, *_), (length, *_) = zip(*spots, strict=True)
    selects = np.array(scope, np.int64).reshape(len(spots), len(scope[0]))
    return Spread([], selects, np.array(partition), np.array(start), partitions, length)


Use = Cells | PlainSpread | Spread


class Side(NamedTuple):
    """Where the cells go that operations read, or write: of each that runs once and touches one
    tile; and of the others, by their number, those of every instance for each access. `touched` says
    for each operation which of its accesses have cells."""

    cells: list[Cells]
    rows: dict[int, list[list[Cells]]]
    touched: list[tuple[int, ...]]


class Touches(NamedTuple):
    """Who touches each tensor. No cells are in there yet: how a tile is cut is only known when all
    who touch it are."""

    uses: dict[Tensor, list[Use]]
    reads: Side
    writes: Side


def touches(instances: list[Instances], scope: dict[Tensor, int]) -> Touches:
    """What all operations touch on the chip, and in HBM where it is written and read. `scope` are
    the loops around the declaration of each tensor."""
    found = Touches({}, Side([], {}, []), Side([], {}, []))
    ordered = _ordered_hbm(instances)
    extents = by_form(instances, _extents)
    for owner, (item, (read, written)) in enumerate(zip(instances, extents, strict=True)):
        operation, once = item.operation, item.positions.size == 1
        for accesses, forms, side in (
            (operation.reads, read, found.reads),
            (operation.writes, written, found.writes),
        ):
            cells: Cells = []
            side.cells.append(cells)
            touched = [
                at
                for at, extent in enumerate(forms)
                if extent.on_chip or accesses[at].tensor in ordered
            ]
            side.touched.append(tuple(touched))
            apart = not once or len(touched) > 1
            if apart:
                side.rows[owner] = []
            for at in touched:
                access, extent = accesses[at], forms[at]
                tensor = access.tensor
                if once and apart:
                    cells = []
                    side.rows[owner].append([cells])
                depth = scope.get(tensor, 0)
                offset = access.offset
                use: Use
                if not once:
                    use = _spread(access, extent, item, depth, side.rows[owner])
                elif extent.fills and not (depth or offset.constant or offset.terms):
                    use = cells
                else:
                    use = _spot(access, extent, item, depth, cells)
                users = found.uses.get(tensor)
                if users is None:
                    found.uses[tensor] = [use]
                else:
                    users.append(use)
    return found


def _ordered_hbm(instances: list[Instances]) -> set[Tensor]:
    """HBM tensors that are written and read: an order must be kept through them."""
    read, written = (
        {
            access.tensor
            for item in instances
            for access in (item.operation.writes if is_write else item.operation.reads)
            if not access.tensor.buffer.on_chip
        }
        for is_write in (False, True)
    )
    return read & written


def _spread(
    access: Access, extent: Touched, item: Instances, depth: int, rows: list[list[Cells]]
) -> Spread:
    n = item.positions.size
    blocks = [np.broadcast_to(index.evaluate_many(item.values), (n,)) for index in access.block]
    placement = access.tensor.placement
    if placement is None:
        columns = [item.iterations[:, :depth], *(column[:, None] for column in blocks)]
    else:
        # The kernel placed the blocks itself: one unit an address, whoever is in it.
        address = np.asarray(placement.addresses, dtype=np.int64)[tuple(blocks)]
        columns = [np.broadcast_to(address, (n,))[:, None]]
    offset = np.broadcast_to(access.offset.evaluate_many(item.values), (n,)) + extent.low
    if extent.moves and int((offset % extent.row).max()) + extent.columns > extent.row:
        extent = _everything(access, extent.row)
    return Spread(
        rows,
        np.concatenate(columns, axis=1),
        offset // extent.row * extent.moves,
        offset % extent.row * (extent.size * extent.moves),
        extent.partitions,
        extent.length,
    )


def _spot(
    access: Access, extent: Touched, item: Instances, depth: int, cells: Cells
) -> PlainSpread:
    values = {variable: int(array[0]) for variable, array in item.values.items()}
    blocks = tuple([index.evaluate(values) for index in access.block])
    offset = access.offset.evaluate(values) if access.offset.terms else access.offset.constant
    offset += extent.low
    if extent.moves and offset % extent.row + extent.columns > extent.row:
        extent = _everything(access, extent.row)
    placement = access.tensor.placement
    if placement is None:
        key = (*item.iterations[0, :depth].tolist(), *blocks) if depth else blocks
    else:
        key = (int(np.asarray(placement.addresses)[blocks]),)
    partition, within = divmod(offset, extent.row)
    return PlainSpread(
        cells,
        key,
        partition * extent.moves,
        within * extent.size * extent.moves,
        extent.partitions,
        extent.length,
    )


def _extents(form: Operation) -> tuple[list[Touched], list[Touched]]:
    return [extent_of(access) for access in form.reads], [
        extent_of(access) for access in form.writes
    ]


def extent_of(access: Access) -> Touched:
    """The rectangle of a tile that holds all that an access touches."""
    tensor, row = access.tensor, row_elements(access)
    if access.indirect:
        return _everything(access, row)
    partitions, columns = _reach(access, row)
    whole = tensor.buffer.on_chip and columns == row and partitions == tensor.tile_shape[0]
    return Touched(
        tensor.buffer.on_chip,
        row,
        partitions,
        columns * access.dtype.itemsize,
        access.dtype.itemsize,
        access.tile_reach[0],
        1,
        whole and tensor.block_rank == 0 and tensor.placement is None,
    )


def _everything(access: Access, row: int) -> Touched:
    """All of a tile: of an access whose elements only run time tells, and of one that begins in a
    row and ends in the next."""
    tensor, size = access.tensor, access.dtype.itemsize
    rows = -(-math.prod(tensor.tile_shape) * tensor.dtype.itemsize // (row * size))
    return Touched(tensor.buffer.on_chip, row, max(rows, 1), row * size, size, 0, 0, False)


def _reach(access: Access, row: int) -> tuple[int, int]:
    """Rows, and elements of each, from the first to the last that is touched."""
    pairs = list(zip(access.shape, access.strides, strict=True))
    if access.tensor.buffer.on_chip:
        rows = 1 + (access.partitions - 1) * (abs(access.strides[0]) // row) if pairs else 1
        return rows, 1 + sum((n - 1) * abs(s) for n, s in pairs[1:])
    outer = sum((n - 1) * abs(s) // row for n, s in pairs if abs(s) >= row)
    inner = 1 + sum((n - 1) * abs(s) for n, s in pairs if abs(s) < row)
    return 1 + outer, min(inner, row)


def row_elements(access: Access) -> int:
    """Elements from one partition to the next; in HBM, of the innermost dimension."""
    shape = access.tensor.tile_shape
    free = shape[1:] if access.tensor.buffer.on_chip else shape[-1:]
    declared = math.prod(free) * access.tensor.dtype.itemsize
    return max(declared // access.dtype.itemsize, 1)
