"""Tiles with an address of their own (`nl.ndarray(address=)`): those that share bytes become one.

What is written through one name is read through another, so the executor must keep their bytes once, and
an instruction must wait for those that use these bytes under any name. Tiles that overlap are therefore
parts of one tensor that covers them all, in the Program that leaves the tracer: whoever reads it knows
nothing of addresses. A tile that shares nothing keeps its name, and its place tells the timing that
iterations have one buffer between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine
from accelopt.sim.errors import KernelError
from accelopt.sim.isa.limits import PSUM_BANK_BYTES
from accelopt.sim.program import (
    Buffer,
    Loop,
    Placement,
    Program,
    ProgramNode,
    Tensor,
    rewritten,
    with_accesses,
)
from accelopt.sim.rules.operands import bad_placement

ALIGNMENT = 8
"""Bytes: where a tensor that covers others begins and ends, so that every format divides it."""
UNKNOWN = 255
"""Of bytes that nobody wrote: not a number in every format of floats."""


Moved = dict[Tensor, Tensor]
"""Tiles, each with the tensor that covers it."""


class TileBytes(NamedTuple):
    """The bytes of a tile: partitions first to last, of each the bytes begin to end, both exclusive."""

    first: int
    last: int
    begin: int
    end: int

    def meets(self, other: TileBytes) -> bool:
        """Whether a byte belongs to both."""
        rows = self.first < other.last and other.first < self.last
        return rows and self.begin < other.end and other.begin < self.end

    def around(self, other: TileBytes) -> TileBytes:
        """The smallest rectangle that holds both."""
        return TileBytes(
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.begin, other.begin),
            max(self.end, other.end),
        )


def placed(address: tuple[int, int], buffer: Buffer, core: int) -> Placement:
    """The placement of a tile without blocks at (partition, byte)."""
    unit = PSUM_BANK_BYTES if buffer is Buffer.PSUM else 1
    return Placement(np.array(address[0]), np.array(address[1] // unit), core)


def place_of(tensor: Tensor) -> TileBytes | None:
    """Where a tile was placed that may share its bytes; None for any other tensor."""
    placement = tensor.placement
    if placement is None or placement.core is None:
        return None
    unit = PSUM_BANK_BYTES if tensor.buffer is Buffer.PSUM else 1
    first, begin = int(placement.partitions), int(placement.addresses) * unit
    length = tensor.partition_bytes
    return TileBytes(first, first + tensor.tile_shape[0], begin, begin + length)


def with_shared_bytes(program: Program) -> Program:
    """The Program with one tensor in the place of tiles that share bytes."""
    known = {tensor: place for tensor in program.all_tensors() if (place := place_of(tensor))}
    moved: Moved = {}
    for members, around in _groups(known):
        moved |= dict.fromkeys(members, _covering(members, around))
    if not moved:
        return program
    return replace(
        program,
        body=rewritten(program.body, partial(_node, moved=moved)),
        tensors=(*_left(program.tensors, moved), *dict.fromkeys(moved.values())),
    )


def _groups(known: Mapping[Tensor, TileBytes]) -> Iterator[tuple[list[Tensor], TileBytes]]:
    """Tiles of one memory of one core that share bytes, directly or through others, two or more."""
    memories: dict[object, list[tuple[list[Tensor], TileBytes]]] = {}
    for tensor, place in known.items():
        assert tensor.placement is not None
        groups = memories.setdefault((tensor.buffer, tensor.placement.core), [])
        members, around = [tensor], place
        while met := [group for group in groups if group[1].meets(around)]:
            for group in met:
                groups.remove(group)
                members, around = group[0] + members, around.around(group[1])
        groups.append((members, around))
    for groups in memories.values():
        yield from (group for group in groups if len(group[0]) > 1)


def _covering(members: list[Tensor], around: TileBytes) -> Tensor:
    """The tensor that holds the bytes of `members`, in their format where all have the same."""
    first = members[0]
    for member in members:
        place = place_of(member)
        assert place is not None
        if place.begin % member.dtype.itemsize:
            raise _unaligned(member, place)
    begin = around.begin // ALIGNMENT * ALIGNMENT
    length = -(-around.end // ALIGNMENT) * ALIGNMENT - begin
    formats = {member.dtype for member in members}
    dtype = first.dtype if len(formats) == 1 else dtypes.UINT8
    unit = PSUM_BANK_BYTES if first.buffer is Buffer.PSUM else 1
    assert first.placement is not None
    return replace(
        first,
        shape=(around.last - around.first, length // dtype.itemsize),
        dtype=dtype,
        fill=None if len(formats) == 1 else UNKNOWN,
        lazy_fill=len(formats) > 1,
        placement=Placement(np.array(around.first), np.array(begin // unit), first.placement.core),
    )


def _unaligned(tensor: Tensor, place: TileBytes) -> KernelError:
    return bad_placement(
        f"a {dtypes.name_of(tensor.dtype)} tile that shares bytes with others starts at byte "
        f"{place.begin}.",
        f"Start at a multiple of {tensor.dtype.itemsize}.",
    ).at(tensor.source)


def _left(tensors: Iterable[Tensor], moved: Moved) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor not in moved)


def _node(node: ProgramNode, moved: Moved) -> ProgramNode:
    if isinstance(node, Loop):
        return replace(node, tensors=_left(node.tensors, moved))
    return with_accesses(node, partial(_access, moved=moved))


def _access(access: Access, moved: Moved) -> Access:
    """The same elements of the tensor that covers the access's own."""
    if access.tensor not in moved:
        return access
    whole = moved[access.tensor]
    place, start = place_of(access.tensor), place_of(whole)
    assert place is not None and start is not None
    size = access.dtype.itemsize
    row = (place.end - place.begin) // size
    wide = whole.shape[1] * whole.dtype.itemsize // size

    def along(step: int) -> int:
        """A step along the tile as one along the tensor that covers it."""
        partitions, columns = divmod(abs(step), row)
        return (partitions * wide + columns) * (1 if step >= 0 else -1)

    into = (place.first - start.first) * wide + (place.begin - start.begin) // size
    offset = Affine(
        along(access.offset.constant) + into,
        tuple((term, along(factor)) for term, factor in access.offset.terms),
    )
    return replace(
        access,
        tensor=whole,
        offset=offset,
        strides=(along(access.strides[0]), *access.strides[1:]),
        indirect=tuple(replace(i, stride=along(i.stride)) for i in access.indirect),
    )
