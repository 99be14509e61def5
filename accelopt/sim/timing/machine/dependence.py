"""Who must wait for whom: values, overwrites, and buffers that are used again.

Units that one declaration makes rotate through a few buffers. A new unit takes the place of the one that
was made so many before, and whoever writes a part of it waits for everybody who touched that part of
the old one: semaphores guard addresses. One that is still to be read keeps its place, and the new one
waits for all who have touched it. How many buffers there are decides how far loads run ahead of the work
on what they bring.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

from accelopt.hardware import Hardware
from accelopt.sim.program import Buffer
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Decisions
from accelopt.sim.timing.stream.stream import Stream


@dataclass
class DependenceGraph:
    """Dependences between instances. `successors[i]` wait until i's result is there, `followers[i]`
    only until i has started, `behind[i]` until it has been issued; few have any of the last two.
    `wanted` are the positions by which transfers are ordered, where not by their own. `after` are who
    waits until a core has issued so many products, whichever."""

    successors: list[list[int]]
    followers: dict[int, list[int]]
    behind: dict[int, list[int]]
    waits: list[int]  # how many instances each one waits for
    wanted: list[int] = field(default_factory=list)
    after: dict[tuple[int, int], list[int]] = field(default_factory=dict)


def depend(
    stream: Stream,
    spec: Hardware,
    bounds: CompilerBounds | None,
    *,
    spilled: frozenset[int] = frozenset(),
    behind: dict[int, list[int]] | None = None,
    signals: dict[int, list[int]] | None = None,
    decisions: Decisions | None = None,
) -> DependenceGraph:
    """The graph of one stream. Without bounds only the capacity limits how many buffers a
    declaration has. Tiles take turns in the usable part of their core's SBUF; when capacity has
    forced spills there (in the cores `spilled`), what is kept has filled that part, and the
    compiler's reserve is what lets anything be fetched ahead (gqa and bmm_softmax of NKIBench need
    it). `signals` are whose results an instance waits for besides: barriers between cores."""
    n = len(stream)
    graph = DependenceGraph([[] for _ in range(n)], {}, behind or {}, [0] * n)
    rooms = _Rooms(stream, spec, bounds, spilled)
    if decisions is not None:
        rooms.tell(decisions)
    cells = len(stream.cell_unit)
    writers: list[list[int] | None] = [None] * cells
    readers: list[list[int] | None] = [None] * cells
    accumulating = [item.operation.accumulates for item in stream.instances]
    successors, followers, waits = graph.successors, graph.followers, graph.waits
    for at in range(n):
        before = rooms.enter(at)
        started = rooms.began(at) - before
        for cell in stream.reads[at]:
            found = writers[cell]
            if found:
                before.update(found)
            known = readers[cell]
            if known is None:
                readers[cell] = [at]
            elif known[-1] != at:
                known.append(at)
        add = accumulating[stream.kind[at]]
        for cell in stream.writes[at]:
            found = writers[cell]
            known = readers[cell]
            if add and found and not known:
                if found[-1] != at:
                    started.add(found[0])
                    found.append(at)
                continue
            old = cell
            while not found and not known and old in rooms.place_of:
                old = rooms.place_of[old]
                found, known = writers[old], readers[old]
            if known:
                before.update(known)
                readers[cell] = None
            if found:
                before.update(found)
            writers[cell] = [at]
        if signals:
            before.update(signals.get(at, ()))
        before.discard(at)
        for other in before:
            successors[other].append(at)
        waits[at] = len(before)
        for first in started - before:
            followers.setdefault(first, []).append(at)
            waits[at] += 1
    for others in graph.behind.values():
        for other in others:
            waits[other] += 1
    return graph


_Memory = tuple[int, Buffer]
"""SBUF, PSUM or the registers of a core."""
REGISTER_BYTES = 64 * 4
"""Of a sequencer (SDK 2.33, `nki.isa.register_alloc`)."""


class _Rooms:
    """Buffers of SBUF and PSUM, given out in program order."""

    def __init__(
        self, stream: Stream, spec: Hardware, bounds: CompilerBounds | None,
        spilled: frozenset[int],
    ) -> None:  # fmt: skip
        self.stream = stream
        self.capacity: dict[_Memory, int] = {}
        for core in range(stream.cores):
            usable = spec.sbuf_partition_bytes if core in spilled else spec.sbuf_usable_bytes
            self.capacity[core, Buffer.SBUF] = usable
            self.capacity[core, Buffer.PSUM] = spec.psum_partition_bytes
            self.capacity[core, Buffer.REGISTER] = REGISTER_BYTES
        self.used = dict.fromkeys(self.capacity, 0)
        units = stream.units
        self.memory = [(unit.core, unit.tensor.buffer) for unit in units]
        self.tracked = [unit.tensor.buffer.on_chip for unit in units]
        self.here = _units_here(stream)
        self.last = [-1] * len(units)
        first, read = [-1] * len(units), [-1] * len(units)
        for at, touched in enumerate(self.here):
            for unit in touched:
                self.last[unit] = at
                if first[unit] < 0:
                    first[unit] = at
            for unit in {stream.cell_unit[cell] for cell in stream.reads[at]}:
                if read[unit] < 0:
                    read[unit] = at
        read = [max(found) for found in zip(first, read, strict=True)]
        self.limit = _limits(stream, first, read, bounds) if bounds else {}
        self.made: dict[int, list[int]] = {}  # of each site, in the order of their beginning
        self.bytes = [unit.bytes for unit in units]
        self.site = [unit.site for unit in units]
        self.users: list[list[int] | None] = [None] * len(units)  # None: not entered
        self.gone = bytearray(len(units))  # 1 where another has its place
        self.cells = stream.cells_of_units()
        self.place_of: dict[int, int] = {}  # cell -> the one of another tile whose place it takes
        self.first: dict[int, int] = {}  # by unit in places of others: who touched it first
        self.dying = iter(np.argsort(np.asarray(self.last), kind="stable").tolist())
        self.next_dying = next(self.dying, -1)
        while self.next_dying >= 0 and self.last[self.next_dying] < 0:
            self.next_dying = next(self.dying, -1)
        self.dead: dict[_Memory, deque[int]] = {memory: deque() for memory in self.capacity}

    def tell(self, decisions: Decisions) -> None:
        """The declarations whose tiles have to take turns."""
        made = Counter(info.site for at, info in enumerate(self.stream.units) if self.last[at] >= 0)
        for site, limit in self.limit.items():
            if made[site] > limit:
                words = f"{made[site]} tiles take turns in {limit} buffers"
                decisions.add(words, self.stream.sites[site])

    def began(self, at: int) -> set[int]:
        """The first instances of the units that an instance touches, where tiles of another kind had
        their place: who touches another part of such a unit has to wait for as long as the first."""
        return {self.first[unit] for unit in self.here[at] if unit in self.first} - {at}

    def enter(self, at: int) -> set[int]:
        """Registers an instance with the units it touches; returns whom it waits for."""
        before: set[int] = set()
        for unit in self.here[at]:
            users = self.users[unit]
            if users is not None:
                users.append(at)
                continue
            turn = self._whose_turn(self.site[unit], unit)
            replaced = self._allocate(unit, at, turn)
            self.users[unit] = [at]
            if turn >= 0 and not self.gone[turn]:
                before.update(self.users[turn] or ())
            if len(replaced) == 1 and self._alike(unit, replaced[0]):
                self.place_of.update(zip(self.cells[unit], self.cells[replaced[0]], strict=True))
                continue
            for other in replaced:
                before.update(self.users[other] or ())
            if replaced:
                self.first[unit] = at
        return before

    def _alike(self, unit: int, other: int) -> bool:
        """True for tiles of one declaration that are cut alike: each part waits for the same part."""
        return self.site[unit] == self.site[other] and len(self.cells[unit]) == len(
            self.cells[other]
        )

    def _whose_turn(self, site: int, unit: int) -> int:
        """The unit that was made as many before as the site has buffers; -1 for none."""
        made, limit = self.made.setdefault(site, []), self.limit.get(site, 1 << 60)
        made.append(unit)
        return made[-1 - limit] if len(made) > limit else -1

    def _allocate(self, unit: int, at: int, turn: int) -> list[int]:
        """The units whose place one takes: that of `turn`, where it is dead."""
        self._bury(at)
        memory, size = self.memory[unit], self.bytes[unit]
        replaced: list[int] = []
        if turn >= 0 and self.last[turn] < at:
            self._reclaim(turn, replaced)
        everywhere = self.dead[memory]
        while everywhere and self.used[memory] + size > self.capacity[memory]:
            self._reclaim(everywhere.popleft(), replaced)
        self.used[memory] += size
        return replaced

    def _bury(self, at: int) -> None:
        """Whoever was touched for the last time before an instance can give its place away."""
        unit = self.next_dying
        while unit >= 0 and self.last[unit] < at:
            self.dead[self.memory[unit]].append(unit)
            unit = next(self.dying, -1)
        self.next_dying = unit

    def _reclaim(self, unit: int, replaced: list[int]) -> None:
        if self.gone[unit]:
            return
        self.gone[unit] = 1
        replaced.append(unit)
        self.used[self.memory[unit]] -= self.bytes[unit]


def _units_here(stream: Stream) -> list[list[int]]:
    tracked = [unit.tensor.buffer.on_chip for unit in stream.units]
    cell_unit = stream.cell_unit
    out: list[list[int]] = []
    for reads, writes in zip(stream.reads, stream.writes, strict=True):
        units = {cell_unit[cell] for cell in writes}
        units.update([cell_unit[cell] for cell in reads])
        out.append([unit for unit in units if tracked[unit]])
    return out


def _limits(
    stream: Stream, first: list[int], read: list[int], bounds: CompilerBounds
) -> dict[int, int]:
    """How many buffers each SBUF site has, by the units that have begun and were not yet read: who
    reads one again later adds none."""
    loaded = _loaded_sites(stream)
    size = {info.site: max(info.bytes, 1) for info in stream.units}
    limits: dict[int, int] = {}
    for site, live in _most_at_once(stream, first, read).items():
        if site in loaded:
            limits[site] = max(live * bounds.load_buffers, bounds.load_buffer_bytes // size[site])
        else:
            limits[site] = live * bounds.computed_buffers
    return limits


def _most_at_once(stream: Stream, first: list[int], last: list[int]) -> dict[int, int]:
    """Of each SBUF site, how many units live at the same time: of those that have begun, the ones
    that have not ended."""
    begin, end = np.asarray(first, np.int64), np.asarray(last, np.int64)
    site = np.array([u.site if u.tensor.buffer is Buffer.SBUF else -1 for u in stream.units])
    units = np.flatnonzero((begin >= 0) & (site >= 0))
    sites, where = np.unique(site[units], return_index=True)
    order = units[np.argsort(site[units], kind="stable")]
    groups = np.split(order, np.flatnonzero(np.diff(site[order])) + 1)
    found: dict[int, int] = {}
    for number in np.argsort(where).tolist():
        group = groups[number]
        ended = np.searchsorted(np.sort(end[group]), np.sort(begin[group]), side="left")
        found[int(sites[number])] = int((np.arange(1, group.size + 1) - ended).max())
    return found


def _loaded_sites(stream: Stream) -> set[int]:
    """Sites that DMA writes."""
    found: set[int] = set()
    is_load = by_form(stream.instances, lambda form: form.is_dma and not form.is_store)
    for kind, writes in zip(stream.kind, stream.writes, strict=True):
        if is_load[kind]:
            found.update(stream.units[stream.cell_unit[cell]].site for cell in writes)
    return found
