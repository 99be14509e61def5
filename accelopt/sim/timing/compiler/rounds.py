"""Rounds of a loop that do not overlap, because SBUF cannot hold the tiles of two.

A tile of a loop is one place, which the compiler doubles to work on two rounds at once. Where the
tiles of two rounds do not fit beside what stays, it doubles none of them: what the next round loads
waits until this one's last instruction has been issued, and only the stores go on. What stays and was
only loaded is no obstacle, since it can be loaded again (of NKIBench's matmul_add_rmsnorm 54 tiles of
weights are).

Seen where a row takes much of SBUF (measured/): in the layernorm of 8,192 columns, whose rounds take
the sum of their passes and of one load, in the mamba tutorial's v2 and v3 at 7,168 columns, not at
2,048, and on trn2 in silu by two rows of 28 KiB at a time and in mamba_v1. Loads of an inner loop,
piece by piece, run on (the tutorial's blocked matrix products).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from accelopt.hardware import Hardware
from accelopt.sim.program import Buffer, Loop
from accelopt.sim.timing.compiler.residency import defining_loads
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Decision
from accelopt.sim.timing.stream.stream import Stream

KIB = 1024


class _Tiles(NamedTuple):
    """The tiles in SBUF: units, with the positions of their first and last use."""

    units: np.ndarray
    first: np.ndarray
    last: np.ndarray
    bytes: np.ndarray  # per partition
    depth: np.ndarray  # loops around the declaration
    stays: np.ndarray  # True where it cannot be loaded again

    def level(self, chosen: np.ndarray, size: int) -> np.ndarray:
        """Bytes a partition of the chosen tiles that are live at each of `size` positions."""
        change = np.zeros(size + 1, np.int64)
        np.add.at(change, self.first[chosen], self.bytes[chosen])
        np.add.at(change, self.last[chosen] + 1, -self.bytes[chosen])
        return np.cumsum(change)[:-1]


def separate_rounds(
    stream: Stream, spec: Hardware, decisions: list[Decision]
) -> dict[int, list[int]]:
    """The loads that wait for the round before: for each instruction, those that come when it has been
    issued."""
    touched = _touched(stream)
    tiles = _tiles(stream, touched)
    everything = np.ones(tiles.units.size, bool)
    capacity = spec.sbuf_usable_bytes
    if 2 * tiles.level(everything, len(stream)).max(initial=0) <= capacity:
        return {}
    behind: dict[int, list[int]] = {}
    for loop, depth in _loops_that_load(stream).items():
        held: Counter[tuple[int, int]] = Counter()  # loads of a kind, and what two rounds need
        rounds = _rounds(stream, loop, depth)
        for need, last, loads in _crowded(stream, touched, tiles, rounds, depth, capacity):
            for load in loads:
                held[stream.kind[load], need] += 1
                for instruction in last:
                    behind.setdefault(instruction, []).append(load)
        decisions += [
            Decision(
                "separate_rounds",
                f"waits for the round before: two would need {need / KIB:,.0f} KiB of SBUF's "
                f"{capacity // KIB:,}",
                stream.instances[kind].operation.source,
                count,
            )
            for (kind, need), count in held.items()
        ]
    return behind


def _touched(stream: Stream) -> list[set[int]]:
    """The units in SBUF that each instance reads or writes."""
    in_sbuf = [unit.tensor.buffer is Buffer.SBUF for unit in stream.units]
    cell_unit = stream.cell_unit
    return [
        {unit for cells in pair for cell in cells if in_sbuf[unit := cell_unit[cell]]}
        for pair in zip(stream.reads, stream.writes, strict=True)
    ]


def _tiles(stream: Stream, touched: list[set[int]]) -> _Tiles:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, units in enumerate(touched):
        for unit in units:
            first.setdefault(unit, at)
            last[unit] = at
    again = defining_loads(stream)
    chosen = list(first)
    return _Tiles(
        np.array(chosen, np.int64),
        np.array([first[unit] for unit in chosen], np.int64),
        np.array([last[unit] for unit in chosen], np.int64),
        np.array([stream.units[unit].bytes for unit in chosen], np.int64),
        np.array([stream.units[unit].depth for unit in chosen], np.int64),
        np.array([not again[unit] for unit in chosen], bool),
    )


def _loops_that_load(stream: Stream) -> dict[Loop, int]:
    """Loops with a load of their own into a tile of their own, and how deep they are."""
    is_load = by_form(stream.instances, lambda form: form.is_dma and not form.is_store)
    found: dict[Loop, int] = {}
    for load, item in zip(is_load, stream.instances, strict=True):
        if load and item.loops:
            found[item.loops[-1]] = len(item.loops)
    return found


def _rounds(stream: Stream, loop: Loop, depth: int) -> np.ndarray:
    """Which round of a loop each instance belongs to, -1 for those outside and for loads repeated in
    a later one: rounds that follow each other have numbers that do, with a gap where the loop begins
    anew."""
    numbers: list[np.ndarray] = []
    begins: list[int] = []
    size = 0
    for item in stream.instances:
        rows = max(item.iterations.shape[0], 1)
        own = np.full(rows, -1, np.int64)
        if len(item.loops) >= depth and item.loops[depth - 1] is loop and item.iterations.size:
            own[:] = 0
            for level in range(depth):
                trips = item.loops[level].variable.trips + (level == depth - 1)
                own = own * trips + item.iterations[:, level]
        numbers.append(own)
        begins.append(size)
        size += rows
    flat = np.concatenate(numbers)
    kind = np.asarray(stream.kind, np.int64)
    row = np.asarray(stream.row, np.int64)
    outside = np.array([not item.loops for item in stream.instances], bool)[kind]
    place = np.asarray(begins, np.int64)[kind] + np.where(outside, 0, row)
    found = np.where(outside, -1, flat[place])
    found[found < np.maximum.accumulate(found)] = -1
    return found


def _crowded(
    stream: Stream,
    touched: list[set[int]],
    tiles: _Tiles,
    rounds: np.ndarray,
    depth: int,
    capacity: int,
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Rounds that do not fit together with the one before: the bytes a partition that both need, the
    last instruction of each engine in the one before, and the loads of this one."""
    begin, end = rounds[tiles.first], rounds[tiles.last]
    local = (tiles.depth >= depth) & (begin == end) & (begin >= 0)
    size = len(stream)
    own = tiles.level(local, size)
    rest = tiles.level(~local & tiles.stays, size)
    inside = np.flatnonzero(rounds >= 0)
    starts = np.flatnonzero(np.diff(rounds[inside], prepend=-2))
    own_peak = np.maximum.reduceat(own[inside], starts)
    rest_peak = np.maximum.reduceat(rest[inside], starts)
    number = rounds[inside][starts]
    need = rest_peak[1:] + own_peak[1:] + own_peak[:-1]
    crowded = (np.diff(number) == 1) & (need > capacity) & (own_peak[1:] > 0)
    bounds = [*starts.tolist(), inside.size]
    mine = set(tiles.units[local].tolist())
    direct = set(tiles.units[local & (tiles.depth == depth)].tolist())
    is_load = by_form(stream.instances, lambda form: form.is_dma and not form.is_store)
    for before in np.flatnonzero(crowded).tolist():
        this = inside[bounds[before + 1] : bounds[before + 2]].tolist()
        loads = [
            at
            for at in this
            if is_load[kind := stream.kind[at]]
            and len(stream.instances[kind].loops) == depth
            and not direct.isdisjoint(touched[at])
        ]
        if loads:
            last: dict[int, int] = {}
            for at in inside[bounds[before] : bounds[before + 1]].tolist():
                form = stream.instances[stream.kind[at]].form
                if not form.is_dma and not mine.isdisjoint(touched[at]):
                    last[form.queue] = at
            yield int(need[before]), list(last.values()), loads
