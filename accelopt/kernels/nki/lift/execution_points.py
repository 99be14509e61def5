"""Moments of a kernel's run, and what can be asked of its tensors then: the answers are `reaching`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from accelopt.algorithm.index import Index
from accelopt.algorithm.value_nodes import Value
from accelopt.algorithm.values import Values
from accelopt.sim.access import Access
from accelopt.sim.affine import LoopVariable
from accelopt.sim.program import Instruction, Tensor

NodePath = tuple[int, ...]
"""A node's number in each block that it stands in, outermost first."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Before the node at `path`, in the iterations `trips` of the loops around it, counted from 0."""

    path: NodePath
    trips: tuple[Index, ...]


class Contents(Protocol):
    """What tensors hold, for one Program; its values are made in `values`."""

    values: Values

    def read(self, access: Access, coordinates: Sequence[Index], place: Moment) -> Value:
        """An element of a tile, as the instruction at a place finds it. Raises NotLifted."""

    def content(self, tensor: Tensor, address: Index, place: Moment) -> Value:
        """What an element, given by its row-major number, holds before the node at a place."""

    def instruction_at(self, place: Moment) -> Instruction:
        """The instruction whose place it is."""

    def variables(self, place: Moment) -> Mapping[LoopVariable, Index]:
        """The trips of the loops around a place by their variables."""
