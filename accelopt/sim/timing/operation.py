"""What timing works on: a Program whose instructions are lowered to priced hardware operations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum

from accelopt.sim.access import Access
from accelopt.sim.errors import NOWHERE, SourceLine
from accelopt.sim.program import Instruction, Loop


class Queue(IntEnum):
    """Who executes an operation in order."""

    TENSOR = 0
    VECTOR = 1
    SCALAR = 2
    GPSIMD = 3
    DMA = 4


QUEUE_NAMES = ("tensor", "vector", "scalar", "gpsimd", "dma")


@dataclass(frozen=True)
class Traffic:
    """What one instance of an operation adds to the counters, as the profiler counts."""

    flops: int = 0
    transpose_flops: int = 0
    psum_read: int = 0
    psum_write: int = 0
    sbuf_read: int = 0
    sbuf_write: int = 0


@dataclass(frozen=True, eq=False)
class Operation:
    """One hardware instruction, for every iteration of its loops.

    It occupies its engine for `issue_ns`; what it writes can be used `latency_ns` after that.
    Compared by identity.
    """

    opcode: str
    queue: Queue
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    instruction: Instruction | None = None
    accumulates: bool = False
    issue_ns: float = 0.0
    latency_ns: float = 0.0
    traffic: Traffic = field(default_factory=Traffic)
    true_flops: int = 0
    source: SourceLine = NOWHERE
    label: str = ""
    touches_psum: bool = False
    touches_sbuf: bool = True
    width: int | None = None  # elements a partition, where not those of its accesses
    kept: bool = False  # never dead
    belongs_to_matmul: bool = False  # the transposition inside of nl.matmul

    @property
    def is_dma(self) -> bool:
        """True for transfers."""
        return self.queue is Queue.DMA

    def resized(self, width: int) -> Operation:
        """The same on another number of elements a partition; to be priced again."""
        return replace(self, width=width)

    @property
    def is_store(self) -> bool:
        """True when it writes HBM."""
        return any(not access.tensor.buffer.on_chip for access in self.writes)


@dataclass(frozen=True, eq=False)
class Nest:
    """A loop over lowered operations; `loop` is None at the top of the kernel."""

    loop: Loop | None
    body: tuple[Nest | Operation, ...]


@dataclass(frozen=True)
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


def combined(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Decisions of the same kind on the same line as one, with their counts and bytes added."""
    found: dict[tuple[str, str, SourceLine], Decision] = {}
    for decision in decisions:
        key = (decision.pass_name, decision.action, decision.source)
        before = found.get(key)
        found[key] = (
            decision
            if before is None
            else replace(
                before, count=before.count + decision.count, bytes=before.bytes + decision.bytes
            )
        )
    return tuple(found.values())
