"""What a kernel does for a team of threads: uniform statements, loops over neighbouring elements that
the team shares, and what one thread does for all.

A team is the whole grid along x (an element a thread, or loops that step by the grid), a block (loops
that step by the block, sums through shared memory), or a thread that walks along a row of its own. A
loop's iterations do not need each other, so that any threads may take any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import Access
from accelopt.kernels.cuda.programs.quantities import Quantity
from accelopt.kernels.cuda.programs.syntax import (
    Kernel,
)


class Team(Enum):
    """Whose iterations a loop's are."""

    GRID = "the grid along x"
    BLOCK = "a block"
    THREAD = "a thread"


class Accumulator(NamedTuple):
    """A variable that a loop adds to, or keeps the largest or least in. `combined` has places for two
    values; `neutral` is what it holds before the first, empty where it may hold anything."""

    name: str
    type: str
    combined: str
    own: bool = False  # made for the loop, which declares it

    def of(self, one: str, other: str) -> str:
        """Two values in one."""
        return self.combined.format(one, other)


class Edit(NamedTuple):
    """What is written in the place of a node: words, and other nodes between them."""

    parts: tuple[str | Node, ...]


class Uniform(NamedTuple):
    """What every thread of the team does alike; `points` where it only declares a pointer."""

    text: str
    points: bool = False


class Once(NamedTuple):
    """What one thread of the team does."""

    text: str


class Count(NamedTuple):
    """An atomic operation of an iteration on a place that it chooses: the call, its function, the
    parameter and its type, and the nodes of index and value."""

    call: Node
    function: str
    pointer: str
    type: str
    place: Node
    value: Node


class Loop(NamedTuple):
    """Iterations from `low` to `high` of a variable. `edits` are nodes of the body, by their number,
    that are written otherwise wherever the body stands; `moving` are the names that change in it,
    `counts` what it adds in places of its choice."""

    variable: str
    type: str
    low: Quantity
    high: str
    bound: Quantity
    body: tuple[Node, ...]
    accesses: tuple[Access, ...]
    accumulators: tuple[Accumulator, ...]
    edits: Mapping[int, Edit]
    moving: frozenset[str]
    counts: tuple[Count, ...] = ()


Item: TypeAlias = "Uniform | Once | Loop"


class Program(NamedTuple):
    """A kernel, whose team it is, and what it does in order; `teams` is how many there are. Where it
    `walks`, blocks go over rows in a loop that all that follows its head stands in."""

    kernel: Kernel
    team: Team
    items: tuple[Item, ...]
    teams: int
    walks: bool = False

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops in order."""
        return tuple(item for item in self.items if isinstance(item, Loop))
