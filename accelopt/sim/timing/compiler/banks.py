"""What fits in PSUM, and what leaves it and comes back when not everything does.

A sum that has to leave its bank is copied to SBUF, and comes back through the Tensor engine, which
alone can add to PSUM: identity times what was saved. The published matmul of sixteen sums at a time
(trn2_kda_measured.csv, matmul_v2_b16) runs at half the speed of that of eight, its Tensor engine busy
for 1.7 times as long.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from accelopt.hardware import Hardware
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine
from accelopt.sim.isa import matrix
from accelopt.sim.program import Buffer, Tensor
from accelopt.sim.timing.stream.operation import Decisions, Operation, Queue, copied
from accelopt.sim.timing.stream.stream import Stream, StreamWriter, Unit
from accelopt.sim.timing.stream.unit_uses import UnitUses


def fit_psum(stream: Stream, spec: Hardware, decisions: Decisions) -> None:
    """Adds, in place, the copies out of PSUM and the products that bring sums back."""
    uses = UnitUses(stream, _is_kernels)
    if uses.peak() <= spec.psum_partition_bytes:
        return
    moves = _moves(stream, uses, spec.psum_partition_bytes)
    writer = _Writer(stream)
    for position in range(len(stream)):
        for unit, out in moves.get(position, ()):
            writer.move(unit, out)
        writer.keep(position)
    writer.replace_stream()
    for site, count in writer.counts.items():
        decisions.add("a sum leaves PSUM, which is full", stream.sites[site], count)


def _is_kernels(unit: Unit) -> bool:
    """True for a tile in PSUM that the kernel itself declares."""
    return unit.tensor.buffer is Buffer.PSUM and unit.tensor.id >= 0


def _moves(stream: Stream, uses: UnitUses, capacity: int) -> dict[int, list[tuple[int, bool]]]:
    """Before which position each unit leaves (True) or comes back: what is wanted last leaves."""
    pointer = [0] * len(stream.units)
    resident: set[int] = set()
    moves: dict[int, list[tuple[int, bool]]] = {}
    used = 0
    for position, here in enumerate(uses.here):
        if not here:
            continue
        for unit in here:
            if unit not in resident:
                if pointer[unit]:
                    moves.setdefault(position, []).append((unit, False))
                resident.add(unit)
                used += stream.units[unit].bytes
        while used > capacity and len(resident) > len(here):
            victim = max(resident.difference(here), key=lambda u: uses.at[u][pointer[u]])
            moves.setdefault(position, []).insert(0, (victim, True))
            resident.discard(victim)
            used -= stream.units[victim].bytes
        for unit in here:
            pointer[unit] += 1
            if pointer[unit] == len(uses.at[unit]):
                resident.discard(unit)
                used -= stream.units[unit].bytes
    return moves


class _Writer(StreamWriter):
    """The stream with the copies out of PSUM and the products that bring sums back."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.saved: dict[int, int] = {}  # unit -> the cell in SBUF that it is saved in
        self.counts: dict[int, int] = {}  # site -> how often one of its units left

    def keep(self, position: int) -> None:
        """Takes over an instance of the old stream."""
        stream = self.stream
        self.add(
            stream.kind[position],
            stream.row[position],
            stream.reads[position],
            stream.writes[position],
        )

    def move(self, unit: int, out: bool) -> None:
        """Copies a unit out, or multiplies it back in."""
        info, cells = self.stream.units[unit], list(self.cells_of[unit])
        if unit not in self.saved:
            self.saved[unit] = len(self.stream.cell_unit)
            self.stream.cell_unit.append(len(self.stream.units))
            self.stream.cell_weight.append(1)
            self.stream.units.append(replace(info, tensor=_in_sbuf(info.tensor)))
        kind = self.kind_of((info.site, out), partial(_moved, info.tensor, out), rows=1)
        place = [self.saved[unit]]
        if out:
            self.counts[info.site] = self.counts.get(info.site, 0) + 1
            self.add(kind, 0, cells, place)
        else:
            self.add(kind, 0, place, cells)


def _moved(tensor: Tensor, out: bool) -> Operation:
    """What stands for the moves of a tensor's units."""
    bank, saved = _whole(tensor), _whole(_in_sbuf(tensor))
    label = f"spill of {tensor.name} in PSUM"
    operation = copied(bank, saved, tensor.source, label)
    if not out:
        square = replace(saved, shape=(bank.partitions, bank.partitions), strides=(1, 1))
        operation = Operation(matrix.MATMUL, Queue.TENSOR, (square, saved), (bank,),
                              source=tensor.source, label=label)  # fmt: skip
    return replace(operation, kept=True)


def _in_sbuf(tensor: Tensor) -> Tensor:
    return replace(tensor, buffer=Buffer.SBUF, placement=None)


def _whole(tensor: Tensor) -> Access:
    """One block of a tile."""
    partitions, free = tensor.tile_shape[0], prod(tensor.tile_shape[1:])
    return Access(tensor, (partitions, free), (), Affine(), (free, 1), tensor.dtype)
