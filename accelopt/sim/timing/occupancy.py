"""How much of SBUF and PSUM a kernel holds over time, against what there is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accelopt.hardware import TARGETS
from accelopt.sim.compute.trips import counted
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Buffer, Program
from accelopt.sim.timing.profile import Compiler, compiled_program
from accelopt.sim.timing.stream.stream import Stream
from accelopt.sim.timing.stream.unit_uses import UnitUses

COLUMNS = 64


class Occupant(NamedTuple):
    """Memory that one declaration holds at the peak."""

    tensor: str
    source: SourceLine
    bytes: int


class MemoryUse(NamedTuple):
    """Bytes a partition that are live, in program order, in COLUMNS steps (the most in each)."""

    memory: str
    capacity: int
    peak: int
    over_time: tuple[int, ...]
    holders: tuple[Occupant, ...]


def memory_use(program: Program) -> tuple[MemoryUse, ...]:
    """SBUF and PSUM of each core as the kernel asks for them, before anything is spilled."""
    spec = TARGETS[program.target]
    stream = compiled_program(counted(program), spec, Compiler(frozenset({"fit_sbuf"}))).stream
    memories = (
        (Buffer.SBUF, "SBUF", spec.sbuf_usable_bytes),
        (Buffer.PSUM, "PSUM", spec.psum_partition_bytes),
    )
    return tuple(
        _use(stream, buffer, core, f"{name} of core {core}" if stream.cores > 1 else name, capacity)
        for core in range(stream.cores)
        for buffer, name, capacity in memories
    )


def _use(stream: Stream, buffer: Buffer, core: int, memory: str, capacity: int) -> MemoryUse:
    uses = UnitUses(stream, lambda unit: unit.tensor.buffer is buffer and unit.core == core)
    own = [stream.core_of(kind) == core for kind in stream.kind]
    live = uses.live()[own]
    at = int(np.flatnonzero(own)[live.argmax()]) if live.size else 0
    held: dict[tuple[str, SourceLine], int] = {}
    for unit, positions in enumerate(uses.at):
        if positions and positions[0] <= at <= positions[-1]:
            tensor = stream.units[unit].tensor
            key = (tensor.name, tensor.source)
            held[key] = held.get(key, 0) + stream.units[unit].bytes
    largest = sorted(held.items(), key=lambda item: -item[1])[:5]
    return MemoryUse(
        memory,
        capacity,
        int(live.max(initial=0)),
        tuple(int(part.max()) for part in np.array_split(live, COLUMNS) if part.size),
        tuple(Occupant(name, source, size) for (name, source), size in largest),
    )
