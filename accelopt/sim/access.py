"""Tensors, and access patterns: which elements of a tensor a tile is, and in which order.

Every address in a Program is affine in the variables of the loops around it and in the axes of the
tile it describes, so one instruction stands for all its iterations: evaluating it costs a few
multiplications, and questions (is it in bounds? which loop does it depend on? how long are its
contiguous runs?) are answered without running anything.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.errors import NOWHERE, SourceLine
from accelopt.sim.mask import EVERYTHING, Mask


class Buffer(StrEnum):
    """Where a tensor lives."""

    HBM = "hbm"
    SHARED_HBM = "shared_hbm"
    SBUF = "sbuf"
    PSUM = "psum"
    REGISTER = "register"

    def __init__(self, name: str) -> None:
        self.on_chip = name not in ("hbm", "shared_hbm")
        """True for SBUF and PSUM, partitioned memory that engines reach, and for registers, tiles of
        one element that the sequencers keep."""


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """A direct allocation: block (i, j, ...) starts at `partitions[i, j, ...]` and, per partition,
    at byte `bytes[i, j, ...]` of SBUF, or at bank `banks[i, j, ...]` of PSUM. Where `core` is one of a
    logical core, other tiles of it may lie there too and are the same bytes."""

    partitions: np.ndarray
    addresses: np.ndarray
    core: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """Storage. `shape` is (blocks..., partition, free...) on-chip, with `block_rank` leading block
    dimensions; plain row-major in HBM. Compared by identity."""

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    buffer: Buffer
    block_rank: int = 0
    fill: float | int | None = None  # initial value; None: fresh memory, NaN
    lazy_fill: bool = False  # the fill costs no instruction (lazy_initialization=True)
    data: np.ndarray | None = None  # contents of a shared constant
    placement: Placement | None = None
    temporary: bool = False  # made by an instruction for its result, not declared by the kernel
    source: SourceLine = NOWHERE

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Lengths of the block dimensions."""
        return self.shape[: self.block_rank]

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Shape of one block: (partition, free...) on-chip, everything in HBM."""
        return self.shape[self.block_rank :]

    @property
    def partition_bytes(self) -> int:
        """Bytes that a block has in each partition."""
        return math.prod(self.tile_shape[1:]) * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Bytes of all blocks."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Indirect:
    """A run-time index: element `index[p, ...]` times `stride` is added to the address.

    `index` broadcasts against the access it belongs to; values lie in 0..size-1. Where `group` is not 0 that many
    partitions share their indices instead: free element i of each takes `index[first + i % group, i // group]`,
    `first` being the first partition of the group (tensor indirection of NeuronCore-v4).
    """

    index: Access
    stride: int
    size: int
    group: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """A tile of a tensor: which elements, in which order.

    Element (a0, a1, ...) of the tile lies at `offset + sum(a_k * strides[k])`, in elements of
    `dtype`, from the start of the block that `block` selects. On-chip, axis 0 is the partition axis
    and a step along it is the row length of the block; in HBM there is one block.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    block: tuple[Affine, ...]
    offset: Affine
    strides: tuple[int, ...]
    dtype: np.dtype
    indirect: tuple[Indirect, ...] = ()
    mask: Mask = EVERYTHING  # operand masking, `tile[mask]`, over this shape's axes

    @property
    def loop_variables(self) -> frozenset[LoopVariable]:
        """The loops whose iterations touch different elements."""
        found = self.offset.loop_variables
        for index in self.block:
            found |= index.loop_variables
        for item in self.indirect:
            found |= item.index.loop_variables
        return found

    @property
    def indices(self) -> Iterator[Access]:
        """Its run-time indices, and theirs."""
        for item in self.indirect:
            yield item.index
            yield from item.index.indices

    @property
    def stands_still(self) -> bool:
        """True when every iteration of the loops around it touches the same elements, told from
        the form alone: there are no block and run-time indices, and the offset is a number."""
        return not (self.offset.terms or self.block or self.indirect)

    @property
    def reach(self) -> tuple[int, int]:
        """The first and the last element that some iteration touches, counted as the offset is."""
        low, high = self.offset.bounds
        first, last = _reach(self.shape, self.strides)
        return low + first, high + last

    @property
    def tile_reach(self) -> tuple[int, int]:
        """The first and the last element of the tile, counted from its offset."""
        return _reach(self.shape, self.strides)

    @property
    def layout(self) -> tuple[object, ...]:
        """How the tile lies: all that accesses of one form have in common, whatever their tensors
        and places in them."""
        tensor = self.tensor
        return (
            self.shape,
            self.strides,
            self.dtype,
            tensor.shape,
            tensor.block_rank,
            tensor.dtype,
            tensor.buffer,
            tensor.placement is None,
            not self.indirect,
        )

    @property
    def elements(self) -> int:
        """How many elements the tile has."""
        return math.prod(self.shape)

    @property
    def partitions(self) -> int:
        """The length of the partition axis."""
        return self.shape[0] if self.shape else 1

    @property
    def row(self) -> int:
        """Elements of its format from one partition of its tensor to the next."""
        return self.tensor.partition_bytes // self.dtype.itemsize

    @property
    def free_elements(self) -> int:
        """Elements per partition."""
        return self.elements // max(self.partitions, 1)

    @property
    def bytes(self) -> int:
        """Size of the tile in bytes."""
        return self.elements * self.dtype.itemsize

    def broadcast_to(self, shape: tuple[int, ...]) -> Access:
        """The tile repeated along axes of length 1 (stride 0); ValueError when it does not fit."""
        lead = len(shape) - len(self.shape)
        if lead < 0:
            raise ValueError(f"cannot broadcast {self.shape} to {shape}")
        own = (1,) * lead + self.shape
        strides = (0,) * lead + self.strides
        out: list[int] = []
        for size, wanted, stride in zip(own, shape, strides, strict=True):
            if size == wanted:
                out.append(stride)
            elif size == 1:
                out.append(0)
            else:
                raise ValueError(f"cannot broadcast {self.shape} to {shape}")
        return replace(self, shape=shape, strides=tuple(out))

    def same_elements(self, other: Access) -> bool:
        """True when both describe the same elements in the same order in every iteration."""
        return self is other or (
            self.tensor is other.tensor
            and self.shape == other.shape
            and self.block == other.block
            and self.offset == other.offset
            and self.dtype == other.dtype
            and self.indirect == other.indirect
            and all(
                a == b or size == 1
                for a, b, size in zip(self.strides, other.strides, self.shape, strict=True)
            )
        )


@functools.lru_cache(maxsize=1 << 16)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    low = high = 0
    for extent, stride in zip(shape, strides, strict=True):
        span = stride * (extent - 1) if extent > 1 else 0
        if span > 0:
            high += span
        else:
            low += span
    return low, high
