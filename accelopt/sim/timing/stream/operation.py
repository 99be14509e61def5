"""What timing works on: a Program whose instructions are lowered to hardware operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from accelopt.algorithm.linear import row_major
from accelopt.sim.access import Access, Buffer, Tensor
from accelopt.sim.affine import Affine
from accelopt.sim.errors import NOWHERE, SourceLine
from accelopt.sim.isa import movement
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.program import AttributeValue, Instruction, Loop


class Queue(IntEnum):
    """Who executes an operation in order."""

    TENSOR = 0
    VECTOR = 1
    SCALAR = 2
    GPSIMD = 3
    DMA = 4
    SYNC = 5


QUEUE_NAMES = tuple(queue.name.lower() for queue in Queue)

ARRIVE, WAIT = Opcode("core_barrier.arrive"), Opcode("core_barrier.wait")
SEND, RECEIVE = Opcode("send"), Opcode("receive", ordered=True)
"""What two cores do with each other."""


BROADCAST = Opcode("broadcast")
"""Spreads a row over partitions by the Tensor engine."""
SPILL_SAVE, SPILL_RELOAD = Opcode("spill_save"), Opcode("spill_reload")
"""What only the compiler makes."""


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """One hardware instruction, for every iteration of its loops. Compared by identity."""

    opcode: Opcode
    queue: Queue
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    instruction: Instruction | None = None
    accumulates: bool = False
    source: SourceLine = NOWHERE
    label: str = ""
    width: int | None = None  # elements a partition, where not those of its accesses
    kept: bool = False  # never dead
    by_identity: bool = False  # a transpose: what moves is nothing but the identity
    belongs_to_matmul: bool = False  # the transposition inside of nl.matmul
    again: bool = False  # work that the compiler does a second time

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All that it reads and writes."""
        return (*self.reads, *self.writes)

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """Those of its instruction; none where the compiler made it."""
        return self.instruction.attributes if self.instruction else {}

    @property
    def partitions(self) -> int:
        """Of the access that has most."""
        return max((access.partitions for access in self.accesses), default=1)

    @property
    def wide(self) -> int:
        """Elements a partition, of the longest access where it does not say how many."""
        if self.width is not None:
            return self.width
        return max((access.free_elements for access in self.accesses), default=1)

    @property
    def is_dma(self) -> bool:
        """True for transfers."""
        return self.queue is Queue.DMA

    def resized(self, width: int) -> Operation:
        """The same on another number of elements a partition."""
        return replace(self, width=width)

    @property
    def is_store(self) -> bool:
        """True when it writes HBM."""
        return any(not access.tensor.buffer.on_chip for access in self.writes)


def whole(tensor: Tensor) -> Access:
    """All of a tensor without blocks."""
    strides = row_major(tensor.tile_shape)
    return Access(tensor, tensor.tile_shape, (), Affine(), strides, tensor.dtype)


def own_tile(
    number: int,
    name: str,
    shape: tuple[int, int],
    dtype: np.dtype,
    buffer: Buffer,
    line: SourceLine,
) -> Access:
    """All of a tile of the compiler's own; its number is negative, as those of Programs are not."""
    tensor = Tensor(number, name, shape, dtype, buffer, temporary=True, source=line)
    return whole(tensor)


def copied(source: Access, target: Access, line: SourceLine, label: str) -> Operation:
    """A copy that the compiler puts on the Scalar engine."""
    return Operation(movement.COPY, Queue.SCALAR, (source,), (target,), source=line, label=label)


def transferred(source: Access, target: Access, line: SourceLine, label: str) -> Operation:
    """A DMA of the compiler's own."""
    return Operation(movement.DMA_COPY, Queue.DMA, (source,), (target,), source=line, label=label)


@dataclass(frozen=True, eq=False, slots=True)
class Nest:
    """A loop over lowered operations; `loop` is None at the top of the kernel."""

    loop: Loop | None
    body: tuple[Nest | Operation, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Something the emulated compiler did: which pass, to what, where, how often."""

    pass_name: str
    action: str
    source: SourceLine
    count: int = 1
    bytes: int = 0

    def __str__(self) -> str:
        times = f" x{self.count}" if self.count > 1 else ""
        size = f", {self.bytes:,} B" if self.bytes else ""
        return f"{self.pass_name}: {self.action} at {self.source}{times}{size}"


class Decisions(list[Decision]):
    """What the passes did so far. `by` is the one that is at work."""

    by = ""

    def add(self, action: str, source: SourceLine, count: int = 1, size: int = 0) -> None:
        """Something that it did: to what, where, how often, with how many bytes."""
        self.append(Decision(self.by, action, source, count, size))


def combined(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Decisions of the same kind on the same line as one, with their counts and bytes added."""
    count: Counter[tuple[str, str, SourceLine]] = Counter()
    size: Counter[tuple[str, str, SourceLine]] = Counter()
    for decision in decisions:
        key = (decision.pass_name, decision.action, decision.source)
        count[key] += decision.count
        size[key] += decision.bytes
    return tuple(Decision(*key, count[key], size[key]) for key in count)
