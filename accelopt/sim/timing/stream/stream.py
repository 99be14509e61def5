"""What the passes after expansion work on: every instance in program order, with the pieces of tiles
that it touches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Tensor
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.operation import Decisions, Operation


@dataclass(frozen=True)
class Unit:
    """One block of a tensor in one iteration of the loops around its declaration."""

    tensor: Tensor
    bytes: int  # per partition
    partitions: int
    site: int  # units declared at one place rotate through the same buffers
    depth: int = 0  # loops around the declaration
    core: int = 0


@dataclass
class Stream:
    """Dynamic instances in program order, as lists: the passes that follow go through them one at a
    time, and nothing is faster to go through."""

    instances: list[Instances]
    kind: list[int] = field(default_factory=list)  # index into `instances`
    row: list[int] = field(default_factory=list)  # which of its iterations
    reads: list[list[int]] = field(default_factory=list)  # cells
    writes: list[list[int]] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    cell_unit: list[int] = field(default_factory=list)
    cell_weight: list[int] = field(default_factory=list)  # sizes, in equal pieces of the tile
    sites: list[SourceLine] = field(default_factory=list)
    # Of each operation as it was expanded: which accesses that it reads have cells, and how many.
    read_cells: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    shared: frozenset[Tensor] = frozenset()  # HBM that the other core may change or wants to read
    core: list[int] = field(default_factory=list)  # of each of `instances`, where there are two

    @property
    def cores(self) -> int:
        """How many cores run it."""
        return 1 + max(self.core, default=0)

    def core_of(self, kind: int) -> int:
        """The core that runs one of `instances`."""
        return self.core[kind] if self.core else 0

    def __len__(self) -> int:
        return len(self.kind)

    def tell(self, decisions: Decisions, action: str, kinds: Iterable[int]) -> None:
        """What was decided of some of `instances`, each as often as it is named; `{}` in the action is what
        the operation is called."""
        for kind, count in Counter(kinds).items():
            operation = self.instances[kind].operation
            decisions.add(action.format(operation.label), operation.source, count)

    def cells_of_units(self) -> list[range]:
        """The cells of each unit: they follow each other."""
        found = [range(0)] * len(self.units)
        unit_of = np.asarray(self.cell_unit, np.int64)
        ends = [*(np.flatnonzero(np.diff(unit_of)) + 1).tolist(), unit_of.size]
        start = 0
        for end in ends if unit_of.size else ():
            found[self.cell_unit[start]] = range(start, end)
            start = end
        return found


class StreamWriter:
    """A stream, written again from its beginning, with instances that were not there before."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.cells_of = stream.cells_of_units()
        self.kind: list[int] = []
        self.row: list[int] = []
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self._kinds: dict[Hashable, int] = {}

    def add(self, kind: int, row: int, reads: list[int], writes: list[int]) -> None:
        """Writes one instance."""
        self.kind.append(kind)
        self.row.append(row)
        self.reads.append(reads)
        self.writes.append(writes)

    def kind_of(self, key: Hashable, operation: Callable[[], Operation], rows: int = 0) -> int:
        """The number among `instances` of the operation of this key, which is made once; it has `rows`
        iterations outside of all loops."""
        if key not in self._kinds:
            self._kinds[key] = len(self.stream.instances)
            made, empty = operation(), np.zeros(0, np.int64)
            self.stream.instances.append(
                Instances(made, made, (), empty, {}, np.zeros((rows, 0), np.int64))
            )
        return self._kinds[key]

    def replace_stream(self) -> None:
        """Puts what was written in the place of the old stream."""
        stream = self.stream
        stream.kind, stream.row = self.kind, self.row
        stream.reads, stream.writes = self.reads, self.writes
