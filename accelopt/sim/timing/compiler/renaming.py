"""Tiles that are filled again get storage of their own.

A kernel that fills one tile over and over, in code that Python unrolled or in iterations that it
promises to be independent, reads nothing of what was there before. Nothing but the name makes one
filling wait for the readers of the last; a compiler renames. Two things it leaves alone: addresses that
the kernel chose itself, and the iterations of a sequential loop, which are said to depend on each
other (a single buffer there runs at a fraction: nki-autotune, moves.md).
"""

from __future__ import annotations

from collections import Counter
from math import prod

from accelopt.sim.program import LoopKind
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Decisions, Operation
from accelopt.sim.timing.stream.stream import Stream


def rename_refilled(stream: Stream, bounds: CompilerBounds, decisions: Decisions) -> None:
    """Gives a tile a new unit, in place, wherever an instance writes to it and nothing of its
    contents is read afterwards."""
    cells_of = stream.cells_of_units()
    fresh = _fresh_starts(stream, cells_of, bounds)
    if len(set(fresh.values())) == len(fresh):
        return
    begun: set[int] = set()
    now: dict[int, int] = {}  # cell as declared -> cell that holds its contents at present
    renamed: Counter[int] = Counter()
    for at in range(len(stream)):
        stream.reads[at] = [now.get(cell, cell) for cell in stream.reads[at]]
        unit = fresh.get(at)
        if unit is not None and unit in begun:
            renamed[stream.units[unit].site] += 1
            _renew(stream, unit, cells_of[unit], now)
        writes = stream.writes[at]
        begun.update(stream.cell_unit[cell] for cell in writes)
        stream.writes[at] = [now.get(cell, cell) for cell in writes]
    for site, count in renamed.items():
        decisions.add("filled again in other storage", stream.sites[site], count)


def _fresh_starts(stream: Stream, cells_of: list[range], bounds: CompilerBounds) -> dict[int, int]:
    """Instances that write to a unit of whose contents nothing is read afterwards, with the unit.
    Backwards: a cell is wanted from its reader up to the write that replaces it."""
    replaces = whole_writes(stream, cells_of)
    tied = [
        _sequential_depth(item) if item.loops and bounds.rewrites else 0
        for item in stream.instances
    ]
    wanted = bytearray(len(stream.cell_unit))
    level = [0] * len(stream.units)
    found: dict[int, int] = {}
    cell_unit = stream.cell_unit
    for at in range(len(stream) - 1, -1, -1):
        reads, writes = stream.reads[at], stream.writes[at]
        if replaces[at]:
            unit = cell_unit[writes[0]]
            for cell in writes:
                level[unit] -= wanted[cell]
                wanted[cell] = 0
            free = stream.units[unit].depth >= tied[stream.kind[at]]
            if level[unit] == 0 and free and set(writes).isdisjoint(reads):
                found[at] = unit
        for cell in reads:
            level[cell_unit[cell]] += 1 - wanted[cell]
            wanted[cell] = 1
    return found


def whole_writes(stream: Stream, cells_of: list[range] | None = None) -> bytearray:
    """Of each instance 1 when it replaces every element of every cell that it writes to."""
    bytes_of = by_form(stream.instances, _replaced_bytes)
    weight, cell_unit = stream.cell_weight, stream.cell_unit
    piece_bytes = [
        unit.bytes * unit.partitions / max(sum(weight[cells.start : cells.stop]), 1)
        for unit, cells in zip(stream.units, cells_of or stream.cells_of_units(), strict=True)
    ]
    found = bytearray(len(stream))
    for at, (kind, writes) in enumerate(zip(stream.kind, stream.writes, strict=True)):
        replaced = bytes_of[kind]
        if writes and replaced:
            size = sum([weight[cell] for cell in set(writes)]) * piece_bytes[cell_unit[writes[0]]]
            found[at] = replaced >= size
    return found


def _replaced_bytes(operation: Operation) -> int:
    """Bytes that an instance of an operation replaces for certain; 0 for sums, masks and run-time
    addresses."""
    if operation.accumulates or len(operation.writes) != 1:
        return 0
    access = operation.writes[0]
    masked = operation.instruction is not None and operation.instruction.mask.constraints
    tensor = access.tensor
    if masked or access.indirect or not tensor.buffer.on_chip or tensor.placement is not None:
        return 0
    lengths = zip(access.shape, access.strides, strict=True)
    return prod(length for length, stride in lengths if stride) * access.dtype.itemsize


def _sequential_depth(item: Instances) -> int:
    """Loops down to the innermost sequential one: a tile declared outside of that is one tile."""
    carried = [loop.kind is LoopKind.SEQUENTIAL and loop.variable.trips > 1 for loop in item.loops]
    return max((depth for depth, is_carried in enumerate(carried, 1) if is_carried), default=0)


def _renew(stream: Stream, unit: int, cells: range, now: dict[int, int]) -> None:
    number = len(stream.units)
    stream.units.append(stream.units[unit])
    for cell in cells:
        now[cell] = len(stream.cell_unit)
        stream.cell_unit.append(number)
        stream.cell_weight.append(stream.cell_weight[cell])
