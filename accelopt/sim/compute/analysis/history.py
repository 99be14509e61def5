"""Which writes precede which reads.

Decides two questions without running anything: can a read see memory that nothing has written (else
fresh memory need not be filled with NaN), and can a value pass from one iteration of a loop to the
next (else its iterations can share storage)? Both answer "yes" when in doubt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

from accelopt.sim.affine import LoopVariable
from accelopt.sim.compute.analysis.regions import (
    ReachedElements,
    Rectangle,
    covered,
    everything,
    region,
    row_length,
    uncovered,
)
from accelopt.sim.compute.analysis.uses import Use, carried_loops, common_loops
from accelopt.sim.program import Loop, Tensor

MOST_WRITERS = 256
"""How many writes before a read are looked at; a read that needs more counts as uncovered."""


class History:
    """Everything that happens to one tensor, in program order."""

    def __init__(self, tensor: Tensor, uses: list[Use]) -> None:
        self.tensor, self.uses = tensor, uses
        self.row = row_length(tensor)
        self._regions: dict[tuple[Use, frozenset[LoopVariable]], ReachedElements | None] = {}
        self._writers = [use for use in uses if use.covers]
        self._first_writes: dict[Hashable, int] = {}
        for use in self._writers:
            if use.plain:
                self._first_writes.setdefault(_elements(use), use.order)

    def region(
        self, use: Use, fixed: frozenset[LoopVariable] = frozenset()
    ) -> ReachedElements | None:
        """What a use reaches while some loops stand still."""
        key = (use, fixed)
        if key not in self._regions:
            self._regions[key] = region(use, fixed, self.row)
        return self._regions[key]

    def sees_only_writes(self, read: Use, within: tuple[Loop, ...]) -> bool:
        """True when every element that `read` reads was written earlier in the same iteration of
        the loops `within` (the outermost loops around the read)."""
        if not read.access.indirect:
            first = self._first_writes.get(_elements(read))
            if first is not None and first < read.order:
                return True  # the very same elements, in the same iteration
        ids = {loop.variable.id for loop in within}
        left: dict[frozenset[LoopVariable], list[Rectangle]] = {}
        earlier = bisect_left(self._writers, read.order, key=lambda use: use.order)
        for write in reversed(self._writers[max(earlier - MOST_WRITERS, 0) : earlier]):
            shared = common_loops(write, read)
            if shared[: len(within)] != within or carried_loops(write.instruction) & ids:
                continue
            scope = frozenset(loop.variable for loop in shared)
            wanted = self.region(read, scope)
            if wanted is None:
                continue
            reached = self.region(write, scope)
            pieces = left.get(scope) or [(wanted.rows, wanted.columns)]
            if reached is not None:
                pieces = uncovered(pieces, wanted, reached)
            if not pieces:
                return True
            left[scope] = pieces
        return False

    def written_throughout(self) -> bool:
        """True when the program writes every element of the tensor."""
        writes = (self.region(use) for use in reversed(self._writers))
        return covered(everything(self.tensor, self.row), (w for w in writes if w is not None))


def _elements(use: Use) -> Hashable:
    """Equal for uses of a tensor that reach the same elements in every iteration of one loop."""
    access = use.access
    return (use.loops, access.block, access.offset, access.shape, access.strides, access.dtype)
