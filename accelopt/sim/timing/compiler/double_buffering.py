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
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Decisions
from accelopt.sim.timing.stream.stream import Stream
from accelopt.sim.timing.stream.unit_uses import UnitUses

KIB = 1024


class _Tiles(NamedTuple):
    """The tiles in SBUF: units, with the positions of their first and last use, in order of the
    first."""

    units: np.ndarray
    first: np.ndarray
    last: np.ndarray
    bytes: np.ndarray  # per partition
    depth: np.ndarray  # loops around the declaration
    stays: np.ndarray  # True where it cannot be loaded again

    def between(self, begin: int, end: int) -> _Tiles:
        """Those that are first used at a position from `begin` up to, and without, `end`."""
        low, high = np.searchsorted(self.first, (begin, end))
        return _Tiles(*(column[low:high] for column in self))

    def chosen(self, some: np.ndarray) -> _Tiles:
        """Some of them."""
        return _Tiles(*(column[some] for column in self))

    def level(self, begin: int, end: int) -> np.ndarray:
        """Bytes a partition that are live at each position from `begin` to `end`."""
        change = np.zeros(end - begin + 1, np.int64)
        np.add.at(change, self.first - begin, self.bytes)
        np.add.at(change, self.last + 1 - begin, -self.bytes)
        return np.cumsum(change)[:-1]


class _Members(NamedTuple):
    """The instances of a loop: positions in program order, with the round that each belongs to.
    Rounds that follow each other have numbers that do, with a gap where the loop begins anew."""

    depth: int
    at: np.ndarray
    round: np.ndarray


class _Crowded(NamedTuple):
    """A round that does not fit together with the one before: the bytes a partition that both need,
    the last instruction of each engine in the one before, and the loads of this one."""

    need: int
    last: list[int]
    loads: list[int]


def separate_rounds(stream: Stream, spec: Hardware, decisions: Decisions) -> dict[int, list[int]]:
    """The loads that wait for the round before: for each instruction, those that come when it has been
    issued."""
    uses = UnitUses(stream, lambda unit: unit.tensor.buffer is Buffer.SBUF)
    size, capacity = len(stream), spec.sbuf_usable_bytes
    if 2 * uses.peak() <= capacity:
        return {}
    tiles, touched = _tiles(stream, uses), [set(units) for units in uses.here]
    staying = tiles.chosen(tiles.stays).level(0, size)
    behind: dict[int, list[int]] = {}
    held: Counter[tuple[int, int]] = Counter()  # loads of a kind, and what two rounds need
    for members in _loops_that_load(stream):
        for one in _crowded(stream, touched, tiles, staying, members, capacity):
            for load in one.loads:
                held[stream.kind[load], one.need] += 1
                for instruction in one.last:
                    behind.setdefault(instruction, []).append(load)
    for (kind, need), count in held.items():
        decisions.add(
            f"waits for the round before: two would need {need / KIB:,.0f} KiB of SBUF's "
            f"{capacity // KIB:,}",
            stream.instances[kind].operation.source,
            count,
        )
    return behind


def _tiles(stream: Stream, uses: UnitUses) -> _Tiles:
    again = defining_loads(stream)
    rows = sorted(
        (positions[0], positions[-1], unit) for unit, positions in enumerate(uses.at) if positions
    )
    first, last, units = np.array(rows, np.int64).reshape(-1, 3).T
    chosen = [stream.units[unit] for unit in units]
    return _Tiles(
        units,
        first,
        last,
        np.array([unit.bytes for unit in chosen], np.int64),
        np.array([unit.depth for unit in chosen], np.int64),
        np.array([not again[unit] for unit in units], bool),
    )


def _loops_that_load(stream: Stream) -> Iterator[_Members]:
    """The loops with a load of their own. A load that is repeated in a later round is of none."""
    is_load = by_form(stream.instances, lambda form: form.is_dma and not form.is_store)
    kinds: dict[Loop, list[int]] = {
        item.loops[-1]: []
        for load, item in zip(is_load, stream.instances, strict=True)
        if load and item.loops
    }
    depths: dict[Loop, int] = {}
    for kind, item in enumerate(stream.instances):
        for depth, loop in enumerate(item.loops, 1):
            if loop in kinds:
                kinds[loop].append(kind)
                depths[loop] = depth
    row = np.asarray(stream.row, np.int64)
    kind_of = np.asarray(stream.kind, np.int64)
    order = np.argsort(kind_of, kind="stable")
    ends = np.searchsorted(kind_of[order], np.arange(len(stream.instances) + 1))
    for loop, mine in kinds.items():
        places = [order[ends[kind] : ends[kind + 1]] for kind in mine]
        rounds = [
            _rounds(stream.instances[kind], depths[loop], row[place])
            for kind, place in zip(mine, places, strict=True)
        ]
        at = np.concatenate(places)
        in_order = np.argsort(at)
        at, number = at[in_order], np.concatenate(rounds)[in_order]
        on_time = number >= np.maximum.accumulate(number)
        yield _Members(depths[loop], at[on_time], number[on_time])


def _rounds(item: Instances, depth: int, rows: np.ndarray) -> np.ndarray:
    """The number of the round of its loop at `depth` that each iteration belongs to."""
    number = np.zeros(rows.size, np.int64)
    for level in range(depth):
        trips = item.loops[level].variable.trips + (level == depth - 1)
        number = number * trips + item.iterations[rows, level]
    return number


def _crowded(
    stream: Stream,
    touched: list[set[int]],
    tiles: _Tiles,
    staying: np.ndarray,
    members: _Members,
    capacity: int,
) -> Iterator[_Crowded]:
    """The rounds of one loop that do not fit `capacity` together with the round before: what either
    holds at its fullest of the loop's own tiles, beside all else that is `staying`."""
    if not members.at.size:
        return
    depth, at = members.depth, members.at
    begin, end = int(at[0]), int(at[-1]) + 1
    number = np.full(end - begin, -1, np.int64)
    number[at - begin] = members.round
    local = tiles.between(begin, end)
    local = local.chosen((local.depth >= depth) & (local.last < end))
    first, last = number[local.first - begin], number[local.last - begin]
    local = local.chosen((first == last) & (first >= 0))
    own = local.level(begin, end)[at - begin]
    rest = staying[at] - local.chosen(local.stays).level(begin, end)[at - begin]
    starts = np.flatnonzero(np.diff(members.round, prepend=-2))
    own_peak = np.maximum.reduceat(own, starts)
    need = np.maximum.reduceat(rest, starts)[1:] + own_peak[1:] + own_peak[:-1]
    follows = np.diff(members.round[starts]) == 1
    crowded = np.flatnonzero(follows & (need > capacity) & (own_peak[1:] > 0))
    bounds = [*starts.tolist(), at.size]
    mine = set(local.units.tolist())
    direct = set(local.units[local.depth == depth].tolist())
    for before in crowded.tolist():
        this = at[bounds[before + 1] : bounds[before + 2]].tolist()
        loads = [one for one in this if _loads_into(stream, one, depth, direct, touched)]
        if loads:
            issued: dict[int, int] = {}
            for one in at[bounds[before] : bounds[before + 1]].tolist():
                form = stream.instances[stream.kind[one]].form
                if not form.is_dma and not mine.isdisjoint(touched[one]):
                    issued[form.queue] = one
            yield _Crowded(int(need[before]), list(issued.values()), loads)


def _loads_into(
    stream: Stream, at: int, depth: int, tiles: set[int], touched: list[set[int]]
) -> bool:
    """True for a load that stands in a loop, in none inside of it, and fills a tile of that loop."""
    item = stream.instances[stream.kind[at]]
    is_load = item.form.is_dma and not item.form.is_store
    return is_load and len(item.loops) == depth and not tiles.isdisjoint(touched[at])
