"""The stream with what a full SBUF makes necessary: saves, reloads, loads once more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from accelopt.hardware import Hardware
from accelopt.sim.errors import NOWHERE, SourceLine
from accelopt.sim.program import Buffer, Tensor
from accelopt.sim.timing.machine.transfers import Transfer, spill_transfer
from accelopt.sim.timing.stream.operation import (
    SPILL_RELOAD,
    SPILL_SAVE,
    Decisions,
    Operation,
    Queue,
)
from accelopt.sim.timing.stream.stream import Stream, StreamWriter

Moves = dict[int, list[tuple[str, int]]]
"""Position in program order -> what happens before it: "save", "reload" or "load", and the unit."""


@dataclass(frozen=True)
class Spills:
    """Bytes that one tensor costs because SBUF is too small."""

    tensor: str = ""
    source: SourceLine = NOWHERE
    saved: int = 0
    reloaded: int = 0
    loaded_again: int = 0


def write_moves(
    stream: Stream,
    costs: list[Transfer | None],
    moves: Moves,
    loads: list[tuple[int, ...]],
    spec: Hardware,
    decisions: Decisions,
) -> tuple[list[Transfer | None], dict[int, Spills]]:
    """Writes moves into the stream, in place. `loads` are, for each unit, the positions of the
    transfers that "load" repeats. Returns the transfers of the new stream and, per site, what was
    moved."""
    writer = _Writer(stream, costs, spec)
    for position in range(len(stream)):
        for action, unit in moves.get(position, ()):
            if action == "load":
                writer.load_again(unit, loads[unit])
            else:
                writer.spill(unit, action)
        writer.copy(position)
    writer.replace_stream()
    writer.tell(decisions)
    return writer.new_costs, writer.moved


class _Writer(StreamWriter):
    """The stream with saves, reloads and repeated loads."""

    def __init__(self, stream: Stream, costs: list[Transfer | None], spec: Hardware) -> None:
        super().__init__(stream)
        self.costs = costs
        self.spec = spec
        self.new_costs: list[Transfer | None] = []
        self.moved: dict[int, Spills] = {}  # site -> what it costs
        self.unit_of = list(stream.cell_unit)  # of the cells that were there before
        self.shift: dict[int, int] = {}  # unit -> how far its current cells lie from those
        self.saved_in: dict[int, int] = {}

    def copy(self, position: int) -> None:
        """Takes over an instance of the old stream."""
        stream = self.stream
        self._write(
            stream.kind[position],
            stream.row[position],
            self._current(stream.reads[position]),
            self._current(stream.writes[position]),
            self.costs[position],
        )

    def load_again(self, unit: int, loads: tuple[int, ...]) -> None:
        """Repeats the loads that a unit consists of."""
        self._renew(unit)
        total = 0
        for position in loads:
            self.copy(position)
            cost = self.costs[position]
            total += cost.bytes if cost else 0
        so_far = self._so_far(unit)
        self._count(unit, replace(so_far, loaded_again=so_far.loaded_again + total))

    def spill(self, unit: int, action: str) -> None:
        """Moves a unit out ("save") or back ("reload")."""
        stream, info, so_far = self.stream, self.stream.units[unit], self._so_far(unit)
        cost = spill_transfer(info.bytes, info.partitions, action == "save", self.spec)
        number = self.kind_of((action, info.site), partial(_spill, action, info.tensor))
        if unit not in self.saved_in:
            self.saved_in[unit] = len(stream.cell_unit)
            stream.cell_unit.append(unit_in_hbm(stream))
        place = [self.saved_in[unit]]
        if action == "save":
            self._write(number, unit, self._cells(unit), place, cost)
            self._count(unit, replace(so_far, saved=so_far.saved + cost.bytes))
        else:
            self._renew(unit)
            self._write(number, unit, place, self._cells(unit), cost)
            self._count(unit, replace(so_far, reloaded=so_far.reloaded + cost.bytes))

    def tell(self, decisions: Decisions) -> None:
        """What was moved, by declaration."""
        for site, moved in self.moved.items():
            what = []
            if moved.saved or moved.reloaded:
                what.append("is spilled")
            if moved.loaded_again:
                what.append("is loaded again")
            size = moved.saved + moved.reloaded + moved.loaded_again
            words = f"{moved.tensor} {' and '.join(what)}"
            decisions.add(words, self.stream.sites[site], size=size)

    def _write(
        self, kind: int, row: int, reads: list[int], writes: list[int], cost: Transfer | None
    ) -> None:
        self.add(kind, row, reads, writes)
        self.new_costs.append(cost)

    def _current(self, cells: list[int]) -> list[int]:
        shift, unit_of = self.shift, self.unit_of
        return [cell + shift.get(unit_of[cell], 0) for cell in cells]

    def _cells(self, unit: int) -> list[int]:
        moved_by = self.shift.get(unit, 0)
        return [cell + moved_by for cell in self.cells_of[unit]]

    def _renew(self, unit: int) -> None:
        """A tile that comes back gets storage of its own."""
        stream, cells = self.stream, self.cells_of[unit]
        self.shift[unit] = len(stream.cell_unit) - cells.start
        stream.cell_unit.extend([len(stream.units)] * len(cells))
        stream.units.append(stream.units[unit])

    def _so_far(self, unit: int) -> Spills:
        info = self.stream.units[unit]
        return self.moved.get(info.site) or Spills(info.tensor.name, info.tensor.source)

    def _count(self, unit: int, spills: Spills) -> None:
        self.moved[self.stream.units[unit].site] = spills


def unit_in_hbm(stream: Stream) -> int:
    """A unit that takes no SBUF: the place in HBM that a spilled unit is saved in."""
    first = stream.units[0]
    stream.units.append(
        replace(first, tensor=replace(first.tensor, buffer=Buffer.HBM), bytes=0, site=-1)
    )
    return len(stream.units) - 1


def _spill(action: str, tensor: Tensor) -> Operation:
    """What stands for saving or reloading units of one site."""
    opcode = SPILL_SAVE if action == "save" else SPILL_RELOAD
    label = f"{opcode} {tensor.name}"
    return Operation(opcode, Queue.DMA, (), (), source=tensor.source, label=label)
