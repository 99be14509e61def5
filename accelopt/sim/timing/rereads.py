"""Which inputs are read more than once, by which line, and why."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Loop
from accelopt.sim.timing.profile import KernelProfile
from accelopt.sim.timing.stream.operation import Operation


@dataclass(frozen=True)
class Reread:
    """Bytes of an input that one line loads, of an input that is read more than once in all.

    `blind` are the loops around the line that its address does not depend on, as source lines with
    their trips: each iteration loads the same again, unless the compiler merged it. `displaced` are
    the bytes that were loaded again because SBUF could not hold them. One transfer of the line reads
    each element `spread` times, as a row for all partitions.
    """

    tensor: str
    size: int
    source: SourceLine
    read: int
    blind: tuple[tuple[SourceLine, int], ...]
    displaced: int
    spread: int = 1


def rereads(found: KernelProfile) -> list[Reread]:
    """What is read again, the line first that reads most beyond the size of its input."""
    names = {one.tensor for one in found.reads if one.read > one.size}
    displaced: dict[SourceLine, int] = defaultdict(int)
    for spill in found.spills:
        displaced[spill.source] += spill.loaded_again
    read: dict[tuple[str, SourceLine], int] = defaultdict(int)
    size: dict[str, int] = {one.tensor: one.size for one in found.reads}
    blind: dict[tuple[str, SourceLine], dict[SourceLine, int]] = defaultdict(dict)
    spread: dict[tuple[str, SourceLine], int] = {}
    run = found.run
    arguments = frozenset(run.program.arguments)
    for kind, cost in zip(run.stream.kind, run.costs, strict=True):
        item = run.stream.instances[kind]
        if cost is None or not item.operation.reads:
            continue
        access = item.operation.reads[0]
        tensor = access.tensor
        if tensor in arguments and tensor.name in names:
            key = tensor.name, item.operation.source
            if key not in read:
                blind[key].update(_blind(item.operation, item.loops))
                still = zip(access.shape, access.strides, strict=True)
                spread[key] = math.prod(length for length, stride in still if not stride)
            read[key] += cost.hbm_read
    rows = [
        Reread(name, size[name], source, moved, tuple(blind[name, source].items()),
               min(displaced[source], moved), spread[name, source])
        for (name, source), moved in read.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row.size - row.read)


def _blind(operation: Operation, loops: tuple[Loop, ...]) -> dict[SourceLine, int]:
    used = operation.reads[0].loop_variables
    return {
        loop.source: loop.variable.trips
        for loop in loops
        if loop.variable not in used and loop.variable.trips > 1
    }
