"""Several transposed tiles leave PSUM in one copy.

Transposes of 128 columns fill a quarter of a PSUM bank each. Four of them are copied to SBUF by one
instruction 512 wide: matmul's Scalar engine (NKIBench) is active for 3,840 such copies, not for the
15,360 that its source has. What else reads them there is as wide: gqa_full_v8 (trn2_kernels.csv) takes
their bf16 rounding from each of 16,384 transposes, and its Vector engine counts 7,320 instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from accelopt.hardware import Hardware
from accelopt.sim.access import Access
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.program import Buffer, Loop, LoopKind, Tensor
from accelopt.sim.timing.machine.pricing import is_transpose
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.operation import Decisions, Operation, Queue
from accelopt.sim.timing.stream.stream import Stream
from accelopt.sim.timing.stream.touches import row_elements


class _Eviction(NamedTuple):
    """A copy that one instruction can do for `group` iterations of its loop, and what else reads
    the transposed tile in PSUM, in program order."""

    kinds: tuple[int, ...]
    group: int


class _Entry(NamedTuple):
    """One instance of a stream."""

    kind: int
    row: int
    reads: list[int]
    writes: list[int]


def merge_evictions(stream: Stream, spec: Hardware, decisions: Decisions) -> None:
    """Rewrites the stream, in place: in a group of iterations the copies become one, after all
    transposes and before all that read them. Affine loops only, whose order is free."""
    found = _evictions(stream, spec)
    if not found:
        return
    entries: list[_Entry] = []
    wide: dict[tuple[int, int], int] = {}
    merged: list[int] = []
    places = {
        kind: _places(stream.instances[kind])
        for eviction in found.values()
        for kind in eviction.kinds
    }
    for eviction, members in _groups(stream, found):
        kinds = eviction.kinds if eviction else ()
        copies = [[entry for entry in members if entry.kind == kind] for kind in kinds]
        if not copies or len(copies[0]) < 2 or not all(_in_one(group, places) for group in copies):
            entries += members
            continue
        wider = [entry for group in copies for entry in group]
        written = {cell for entry in wider for cell in entry.writes}
        leaving = {id(entry) for entry in wider}
        rest = [entry for entry in members if id(entry) not in leaving]
        readers = [e for e in rest if any(cell in written for cell in e.reads)]
        later = {id(entry) for entry in readers}
        entries += [entry for entry in rest if id(entry) not in later]
        for kind, group in zip(kinds, copies, strict=True):
            entries.append(_merged(stream, group, wide))
            merged += [kind] * (len(group) - 1)
        entries += readers
    stream.kind = [entry.kind for entry in entries]
    stream.row = [entry.row for entry in entries]
    stream.reads = [entry.reads for entry in entries]
    stream.writes = [entry.writes for entry in entries]
    stream.tell(decisions, "transposed tiles leave PSUM together", merged)


def _evictions(stream: Stream, spec: Hardware) -> dict[Loop, _Eviction]:
    """The innermost affine loops that evict transposes, and how many iterations fit a bank."""
    makers: dict[Tensor, list[Operation]] = {}
    for item in stream.instances:
        for access in item.operation.writes:
            makers.setdefault(access.tensor, []).append(item.operation)
    found: dict[Loop, _Eviction] = {}
    for kind, item in enumerate(stream.instances):
        operation = item.operation
        if not operation.opcode.copied or operation.queue is not Queue.SCALAR or not item.loops:
            continue
        source = operation.reads[0]
        loop = item.loops[-1]
        if source.tensor.buffer is not Buffer.PSUM or loop.kind is not LoopKind.AFFINE:
            continue
        if loop in found or not all(map(is_transpose, makers.get(source.tensor, [operation]))):
            continue
        group = spec.psum_bank_bytes // max(source.free_elements * source.dtype.itemsize, 1)
        if group > 1:
            found[loop] = _Eviction((kind, *_others(stream, kind)), group)
    return found


def _others(stream: Stream, copy: int) -> Iterator[int]:
    """What else of the copy's loop reads the transposed tile, element by element, and lies so that
    iterations follow each other."""
    item = stream.instances[copy]
    source, loop = item.operation.reads[0], item.loops[-1]
    for kind, other in enumerate(stream.instances):
        operation = other.operation
        if kind <= copy or other.loops != item.loops or not _computes(operation.opcode):
            continue
        if not any(access.tensor is source.tensor for access in operation.reads):
            continue
        beside = [a for a in operation.accesses if a.tensor is not source.tensor]
        if all(_follow(access, loop, source.free_elements) for access in beside):
            yield kind


def _computes(opcode: Opcode) -> bool:
    """True for functions and arithmetic of tiles that the compiler widens."""
    return opcode.widened and opcode.elementwise and not {"op", "op0"}.isdisjoint(opcode.attributes)


def _follow(access: Access, loop: Loop, elements: int) -> bool:
    """True when an access takes so many elements, and the next iteration's come right after."""
    step = access.offset.coefficient(loop.variable) * loop.variable.step
    return access.free_elements == step == elements


_Places = list[tuple[np.ndarray, np.ndarray]]
"""Of each access of an operation: the partition and the element in it, (n,) each."""


def _places(item: Instances) -> _Places:
    """Where the accesses on the chip begin."""
    found: _Places = []
    for access in item.operation.accesses:
        if access.tensor.buffer.on_chip:
            offset = np.broadcast_to(access.offset.evaluate_many(item.values), item.positions.shape)
            partition, column = np.divmod(offset, row_elements(access))
            found.append((partition, column))
    return found


def _in_one(copies: list[_Entry], places: dict[int, _Places]) -> bool:
    """True when one access pattern takes each operand and result of all copies: from the same
    partition on, and columns the same distance apart."""
    if not copies:
        return True
    rows = [entry.row for entry in copies]
    return all(
        np.ptp(partition[rows]) == 0 and np.unique(np.diff(column[rows])).size < 2
        for partition, column in places[copies[0].kind]
    )


def _groups(
    stream: Stream, found: dict[Loop, _Eviction]
) -> Iterator[tuple[_Eviction | None, list[_Entry]]]:
    """The stream cut into groups of iterations of those loops, and what lies between."""
    evictions = [found.get(item.loops[-1]) if item.loops else None for item in stream.instances]
    keys = [
        _group_keys(item, eviction.group).tolist() if eviction else None
        for item, eviction in zip(stream.instances, evictions, strict=True)
    ]

    def key(at: int) -> tuple[int, int]:
        kind = stream.kind[at]
        numbers = keys[kind]
        return (-1, 0) if numbers is None else (evictions[kind].kinds[0], numbers[stream.row[at]])  # type: ignore[union-attr]

    for (kind, _), positions in groupby(range(len(stream)), key):
        entries = [
            _Entry(stream.kind[at], stream.row[at], stream.reads[at], stream.writes[at])
            for at in positions
        ]
        yield (evictions[kind] if kind >= 0 else None), entries


def _group_keys(item: Instances, group: int) -> np.ndarray:
    """A number for each group of consecutive iterations of the innermost loop."""
    total = np.zeros(item.positions.size, np.int64)
    for loop, column in zip(item.loops[:-1], item.iterations.T[:-1], strict=True):
        total = total * loop.variable.trips + column
    trips = item.loops[-1].variable.trips
    numbers: np.ndarray = total * -(-trips // group) + item.iterations[:, -1] // group
    return numbers


def _merged(stream: Stream, copies: list[_Entry], wide: dict[tuple[int, int], int]) -> _Entry:
    kind, count = copies[0].kind, len(copies)
    number = wide.get((kind, count))
    if number is None:
        item = stream.instances[kind]
        operation = item.operation.resized(item.operation.writes[0].free_elements * count)
        number = wide[kind, count] = len(stream.instances)
        stream.instances.append(item._replace(operation=operation, form=operation))
    return _Entry(
        number,
        copies[-1].row,
        [cell for entry in copies for cell in entry.reads],
        [cell for entry in copies for cell in entry.writes],
    )
