"""What fits in SBUF, and what is moved out and back when not everything does.

When a tile is needed and there is no room, one leaves that is not wanted within a horizon: the one
that has lain idle longest. If all are wanted, the one goes that is wanted last (Belady's rule). A tile
that was computed is saved first (a spill) and reloaded later; one that was only loaded is loaded
again. So a pass over an array too large to stay, again and again, finds none of it, as on the
hardware; Belady's rule alone would keep most of it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from accelopt.hardware import Hardware
from accelopt.sim.errors import KernelError
from accelopt.sim.program import Buffer
from accelopt.sim.timing.compiler.spilling import Moves, Spills, write_moves
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.machine.transfers import Transfer
from accelopt.sim.timing.stream.operation import Decisions
from accelopt.sim.timing.stream.stream import Stream, Unit
from accelopt.sim.timing.stream.unit_uses import UnitUses


def _in_sbuf(unit: Unit) -> bool:
    return unit.tensor.buffer is Buffer.SBUF


def fit_sbuf(
    stream: Stream,
    costs: list[Transfer | None],
    spec: Hardware,
    bounds: CompilerBounds,
    decisions: Decisions,
) -> tuple[list[Transfer | None], dict[int, Spills]]:
    """Adds the saves, reloads and repeated loads that the capacity forces, in place. Returns the
    transfers of the new stream and, per site, what was moved."""
    uses = UnitUses(stream, _in_sbuf)
    capacity = spec.sbuf_usable_bytes - bounds.own_bytes
    if uses.peak() <= capacity:
        return costs, {}
    if not bounds.rewrites:
        _refuse_steps(stream, uses, spec)
    _split_units(stream, defining_loads(stream), bounds.reload_horizon)
    uses = UnitUses(stream, _in_sbuf)
    keeper = _Keeper(stream, uses, capacity, bounds)
    if keeper.repeated:
        keeper.capacity = spec.sbuf_partition_bytes
    keeper.run()
    return write_moves(stream, costs, keeper.before, keeper.loads, spec, decisions)


def _refuse_steps(stream: Stream, uses: UnitUses, spec: Hardware) -> None:
    """Raises KernelError for an instruction whose tiles do not fit SBUF together (NCC_IBIR229 of a
    blocked product on trn2 whose two operand blocks take 256 of 224 KiB, trn2_public.csv)."""
    bytes_of = [unit.bytes for unit in stream.units]
    for position, here in enumerate(uses.here):
        size = sum([bytes_of[unit] for unit in here])
        if size > spec.sbuf_partition_bytes:
            raise KernelError(
                "sbuf_out_of_memory",
                f"the tiles of one instruction take {size / 1024:,.0f} KiB of a partition of SBUF, "
                f"which has {spec.sbuf_partition_bytes / 1024:,.0f}.",
                "Declare smaller tiles, or load and use them in parts.",
                stream.instances[stream.kind[position]].operation.source,
            )


def _split_units(stream: Stream, loads: list[tuple[int, ...]], horizon: int) -> None:
    """Cuts computed SBUF tiles into parts, units of their own, in place: neighbouring cells stay
    together when they are always wanted within the horizon. So does what was loaded together."""
    touched: list[list[int]] = [[] for _ in stream.cell_unit]
    for position, cells in enumerate(map(chain, stream.reads, stream.writes)):
        for cell in cells:
            touched[cell].append(position)
    units: list[Unit] = []
    weight = stream.cell_weight
    for unit, whole in enumerate(stream.cells_of_units()):
        info = stream.units[unit]
        cut = info.tensor.buffer is Buffer.SBUF and not loads[unit]
        first = whole.start
        for end in range(whole.start + 1, whole.stop + 1):
            if end == whole.stop or (cut and not _together(touched[first], touched[end], horizon)):
                stream.cell_unit[first:end] = [len(units)] * (end - first)
                part, all_of_it = weight[first:end], weight[whole.start : whole.stop]
                units.append(replace(info, bytes=info.bytes * sum(part) // sum(all_of_it)))
                first = end
    stream.units = units


def _together(one: list[int], other: list[int], horizon: int) -> bool:
    return len(one) == len(other) and all(
        abs(a - b) <= horizon for a, b in zip(one, other, strict=True)
    )


class _Keeper:
    """The simulation of what is resident, over program order."""

    def __init__(
        self, stream: Stream, uses: UnitUses, capacity: int, bounds: CompilerBounds
    ) -> None:
        self.horizon = bounds.reload_horizon
        self.stream = stream
        self.uses = uses
        self.capacity = capacity
        self.loads = defining_loads(stream)
        self.repeated = _repeated_sites(stream, uses, self.loads, bounds.repeat_share * capacity)
        self.before: Moves = {}
        self.following = [positions[0] if positions else 0 for positions in uses.at]  # next use
        self.resident: dict[int, None] = {}  # what has lain idle longest comes first

    def run(self) -> None:
        stream, uses, resident = self.stream, self.uses, self.resident
        units = stream.units
        bytes_of = [unit.bytes for unit in units]
        pointer = [0] * len(units)
        seen = [False] * len(units)
        dirty = [False] * len(units)
        cell_unit = stream.cell_unit
        used = 0
        for position, here in enumerate(uses.here):
            for unit in here:
                if unit in resident:
                    del resident[unit]
                else:
                    if seen[unit]:
                        action = "load" if self.loads[unit] else "reload"
                        self.before.setdefault(position, []).append((action, unit))
                        dirty[unit] = False
                    seen[unit] = True
                    used += bytes_of[unit]
                resident[unit] = None
            while used > self.capacity:
                victim = self._victim(position, here)
                if victim is None:
                    break
                if dirty[victim] and not self.loads[victim]:
                    self.before.setdefault(position, []).append(("save", victim))
                    dirty[victim] = False
                del resident[victim]
                used -= bytes_of[victim]
            for cell in stream.writes[position]:
                dirty[cell_unit[cell]] = True
            for unit in here:
                at = uses.at[unit]
                pointer[unit] += 1
                over = pointer[unit] == len(at)
                if not over:
                    self.following[unit] = at[pointer[unit]]
                    if units[unit].site in self.repeated:
                        over = self._new_group(unit, position, at[pointer[unit]])
                if over:
                    del resident[unit]
                    used -= bytes_of[unit]

    def _victim(self, position: int, here: list[int]) -> int | None:
        """Of what is not wanted within the horizon, what has lain idle longest; when all is, what
        is wanted last."""
        last = None
        for unit in self.resident:
            if unit in here:
                continue
            if self.following[unit] > position + self.horizon:
                return unit
            if last is None or self.following[unit] > self.following[last]:
                last = unit
        return last

    def _new_group(self, unit: int, now: int, following: int) -> bool:
        """True when the next use belongs to another iteration of the loop just inside of the one
        that loads the unit."""
        if now in self.loads[unit]:
            return False  # it has just come
        depth = self.repeated[self.stream.units[unit].site]
        return _prefix(self.stream, now, depth) != _prefix(self.stream, following, depth)


def _prefix(stream: Stream, position: int, depth: int) -> tuple[object, ...]:
    item = stream.instances[stream.kind[position]]
    row = item.iterations[stream.row[position]]
    return (item.loops[:depth], tuple(row[:depth].tolist()))


def defining_loads(stream: Stream) -> list[tuple[int, ...]]:
    """For each unit that only loads from unwritten HBM tensors write: their positions."""
    is_load = [
        item.operation.is_dma
        and not item.operation.is_store
        and bool(item.operation.reads)  # a reload has none
        and not item.operation.reads[0].tensor.buffer.on_chip
        for item in stream.instances
    ]
    writers: list[list[int]] = [[] for _ in stream.units]
    spoiled = [False] * len(stream.units)
    cell_unit = stream.cell_unit
    for position, writes in enumerate(stream.writes):
        clean = is_load[stream.kind[position]] and not stream.reads[position]
        for unit in {cell_unit[cell] for cell in writes}:
            if clean:
                writers[unit].append(position)
            else:
                spoiled[unit] = True
    return [
        tuple(positions) if not bad else () for positions, bad in zip(writers, spoiled, strict=True)
    ]


def _repeated_sites(
    stream: Stream, uses: UnitUses, loads: list[tuple[int, ...]], most: float
) -> dict[int, int]:
    """Sites of declared arrays of more than `most` bytes, whose loads are repeated as a whole, with
    the depth of the loop that each repetition belongs to."""
    change: dict[int, dict[int, int]] = {}
    for unit, positions in enumerate(uses.at):
        info = stream.units[unit]
        if positions and loads[unit] and not info.tensor.temporary:
            steps = change.setdefault(info.site, {})
            steps[positions[0]] = steps.get(positions[0], 0) + info.bytes
            steps[positions[-1] + 1] = steps.get(positions[-1] + 1, 0) - info.bytes
    found: dict[int, int] = {}
    for site, steps in change.items():
        level = peak = 0
        for position in sorted(steps):
            level += steps[position]
            peak = max(peak, level)
        if peak > most:
            unit = next(u for u, info in enumerate(stream.units) if info.site == site and loads[u])
            load = loads[unit][0]
            user = next((p for p in uses.at[unit] if p != load), load)
            found[site] = 1 + _shared_loops(stream, load, user)
    return found


def _shared_loops(stream: Stream, first: int, second: int) -> int:
    a = stream.instances[stream.kind[first]].loops
    b = stream.instances[stream.kind[second]].loops
    depth = 0
    while depth < min(len(a), len(b)) and a[depth] is b[depth]:
        depth += 1
    return depth
