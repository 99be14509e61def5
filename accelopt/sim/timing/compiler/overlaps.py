"""Directly allocated tiles that destroy each other.

A kernel that places its own tiles answers for their lifetimes: "any physical tiles that must be alive
simultaneously" need places of their own (nki_direct_allocation_guide.rst), and nothing on the
hardware says so when they have not. In program order, what is read must be what was written there last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from accelopt.hardware import Hardware
from accelopt.sim.access import Access
from accelopt.sim.errors import KernelError
from accelopt.sim.program import Buffer, Tensor
from accelopt.sim.rules.operands import bad_placement
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.operation import Operation
from accelopt.sim.timing.stream.touches import extent_of

GRANULE = 2
"""Bytes; no format of a tile that is placed is narrower than the alignment of its address."""
ROWS = 32
"""Partitions: tiles begin at multiples of this (direct allocation guide)."""


class _Place(NamedTuple):
    """Where an access lies in every iteration of its operation."""

    operation: Operation
    tensor: Tensor
    writes: bool
    block: np.ndarray  # (n,) number of the block
    row: np.ndarray  # (n,) first partition
    byte: np.ndarray  # (n,) first byte of the memory's partition
    partitions: int
    length: int


def refuse_overlaps(instances: list[Instances], spec: Hardware) -> None:
    """Raises KernelError at the first read of what another tile has destroyed."""
    events: list[tuple[np.ndarray, _Place]] = [
        (item.positions, place) for item in instances for place in _places(item, spec)
    ]
    if not events:
        return
    sizes = {
        Buffer.SBUF: spec.sbuf_partition_bytes,
        Buffer.PSUM: spec.psum_partition_bytes,
    }
    owner = {
        memory: np.full((spec.partitions // ROWS, -(-size // GRANULE)), -1, np.int64)
        for memory, size in sizes.items()
    }
    names: dict[tuple[Tensor, int], int] = {}
    tensors: list[Tensor] = []
    order = sorted(
        (int(position), place.writes, number, row)
        for number, (positions, place) in enumerate(events)
        for row, position in enumerate(positions.tolist())
    )
    for _, writes, number, row in order:
        place = events[number][1]
        key = (place.tensor, int(place.block[row]))
        if key not in names:
            names[key] = len(tensors)
            tensors.append(place.tensor)
        there = owner[place.tensor.buffer][_slices(place, row)]
        if writes:
            there[...] = names[key]
        elif (others := there[(there != names[key]) & (there >= 0)]).size:
            raise _destroyed(place, tensors[int(others[0])])


def _slices(place: _Place, at: int) -> tuple[slice, slice]:
    row, byte = int(place.row[at]), int(place.byte[at])
    return (
        slice(row // ROWS, -(-(row + place.partitions) // ROWS)),
        slice(byte // GRANULE, -(-(byte + place.length) // GRANULE)),
    )


def _places(item: Instances, spec: Hardware) -> Iterator[_Place]:
    operation = item.operation
    for accesses, writes in ((operation.reads, False), (operation.writes, True)):
        for access in accesses:
            placement = access.tensor.placement
            if placement is not None and placement.core is None:
                yield _place(operation, access, writes, item, spec)


def _place(
    operation: Operation, access: Access, writes: bool, item: Instances, spec: Hardware
) -> _Place:
    n, tensor, placement = item.positions.size, access.tensor, access.tensor.placement
    assert placement is not None
    blocks = tuple(
        np.broadcast_to(index.evaluate_many(item.values), (n,)) for index in access.block
    )
    extent = extent_of(access)
    offset = np.broadcast_to(access.offset.evaluate_many(item.values), (n,)) + extent.low
    scale = spec.psum_bank_bytes if tensor.buffer is Buffer.PSUM else 1
    addresses = np.asarray(placement.addresses, np.int64)
    number = np.arange(addresses.size).reshape(addresses.shape)
    return _Place(
        operation,
        tensor,
        writes,
        np.broadcast_to(number[blocks], (n,)),
        np.asarray(placement.partitions, np.int64)[blocks] + offset // extent.row * extent.moves,
        addresses[blocks] * scale + offset % extent.row * extent.size * extent.moves,
        extent.partitions,
        extent.length,
    )


def _destroyed(place: _Place, other: Tensor) -> KernelError:
    what = "another block of it" if other is place.tensor else f"'{other.name}' of {other.source}"
    return bad_placement(
        f"'{place.tensor.name}' is read where {what} has been written since.",
        "Give tiles that are alive at the same time places that do not overlap.",
    ).at(place.operation.source)
