"""Iterations that may run in any order, and one that reads what another one writes.

`nl.affine_range` promises that its iterations need nothing of each other, and so do the programs of a
launch. Whether that is true stands in the addresses of a Program: an iteration that reads an element
which another one writes, and which it has not written itself before, gets what the order gives it.

A fault is told only with a witness: two iterations and an element, worked out from the addresses, so
nothing sound is refused. What cannot be worked out (run-time indices, bytes read in another format,
masks over other axes, very many addresses) is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from accelopt.sim.affine import Affine, LoopVariable, TileAxis
from accelopt.sim.compute.analysis.uses import Use, mask_is_aligned, uses_by_tensor
from accelopt.sim.instruction_set import mask_shape
from accelopt.sim.program import Loop, LoopKind, Program, Tensor
from accelopt.sim.rules.dependencies import PARALLEL, accumulates, used_variables

MOST_ADDRESSES = 1 << 20
"""More runs of elements than this, for one loop and tensor, are not worked out."""

MOST_USES = 200
MOST_LOOKS = 64
"""Reads, and runs for each of them, that are looked at closely before all pass for harmless."""


class Dependence(NamedTuple):
    """A witness: iterations `writer` and `reader` of a loop, by their index values, and one element
    of a tensor that the second reads and the first writes."""

    loop: Loop
    tensor: Tensor
    write: Use
    read: Use
    writer: int
    reader: int

    @property
    def between_programs(self) -> bool:
        """True where the loop is the grid of a launch."""
        return self.loop.kind is LoopKind.PROGRAM

    def __str__(self) -> str:
        kind = "program" if self.between_programs else "iteration"
        at = "the grid" if self.between_programs else f"the loop at {self.loop.source}"
        return (
            f"{kind} {self.reader} of {at} reads at {self.read.instruction.source} what {kind} "
            f"{self.writer} writes to '{self.tensor.name}' at {self.write.instruction.source}"
        )


def dependences(program: Program) -> Iterator[Dependence]:
    """One dependence between parallel iterations for each loop and tensor that has one."""
    told_apart = used_variables(program)
    for tensor, uses in uses_by_tensor(program).items():
        for loop in dict.fromkeys(loop for use in uses if use.writes for loop in use.loops):
            if loop.kind not in PARALLEL or loop.variable.trips < 2:
                continue
            if loop.kind is LoopKind.PROGRAM and loop.variable not in told_apart:
                continue  # every program does the same
            found = _dependence(tensor, loop, [use for use in uses if loop in use.loops])
            if found is not None:
                yield found


def _dependence(tensor: Tensor, loop: Loop, uses: list[Use]) -> Dependence | None:
    depth = uses[0].loops.index(loop)
    if any(tensor in inner.tensors for inner in uses[0].loops[depth:]):
        return None  # made inside of the loop: every iteration has its own
    writes = [use for use in uses if use.writes]
    reads = [use for use in uses if use.reads and _is_clear(use)]
    if not reads or len(uses) > MOST_USES or _indexed_apart(loop, uses):
        return None
    if any(use.access.indirect or use.access.dtype != tensor.dtype for use in uses):
        return None
    # The terms of a sum may come in any order; what its parts are read for is not looked at.
    if any(accumulates(use.instruction, use.access, loop) for use in writes):
        return None
    for outer in _outer_iterations(uses[0].loops[:depth]):
        inside = _Inside(tensor, loop, depth, outer)
        written = _joined([inside.runs(number, use) for number, use in enumerate(writes)])
        for read in reads:
            asked = inside.runs(0, read)
            if written is None or asked is None:
                continue
            witness = _witness(inside, writes, written, read, asked)
            if witness is not None:
                write, *pair = witness
                writer, reader = (loop.variable.values[position] for position in pair)
                return Dependence(loop, tensor, writes[write], read, writer, reader)
    return None


def _is_clear(use: Use) -> bool:
    """True where it can be told which elements are used: any mask is written over the use's axes."""
    access, instruction = use.access, use.instruction
    if use.writes and any(given.mask.constraints for given in instruction.inputs.values()):
        return False
    same = mask_is_aligned(use) and access.shape == mask_shape(instruction)
    return same or not instruction.mask.simplified().constraints


def _indexed_apart(loop: Loop, uses: list[Use]) -> bool:
    """True when some block dimension tells the iterations apart in every use, as in most tensors."""
    outside = {outer.variable for outer in uses[0].loops[: uses[0].loops.index(loop) + 1]}
    for alike in zip(*(use.access.block for use in uses), strict=True):
        first: Affine = alike[0]
        same = all(i.constant == first.constant and set(i.terms) == set(first.terms) for i in alike)
        told = first.is_affine and first.coefficient(loop.variable) != 0
        if same and told and first.loop_variables <= outside:
            return True
    return False


def _outer_iterations(loops: Sequence[Loop]) -> Iterator[dict[LoopVariable, int]]:
    """Some iterations of the loops around: the first, the last and the second of each."""
    seen: set[tuple[int, ...]] = set()
    for at in (0, -1, 1):
        if not all(loop.variable.trips for loop in loops):
            return
        values = tuple(loop.variable.values[at % min(2, loop.variable.trips)] for loop in loops)
        if at == -1:
            values = tuple(loop.variable.values[-1] for loop in loops)
        if values not in seen:
            seen.add(values)
            yield {loop.variable: v for loop, v in zip(loops, values, strict=True)}


class _Runs(NamedTuple):
    """Runs of neighbouring elements: the first of each, counted over all blocks, how many, the
    position of the iteration that reaches them and the number of the step within it, and the use."""

    first: np.ndarray
    length: np.ndarray
    iteration: np.ndarray
    step: np.ndarray
    use: np.ndarray


class _Inside(NamedTuple):
    """One execution of a loop, in one iteration of those around it."""

    tensor: Tensor
    loop: Loop
    depth: int
    outer: dict[LoopVariable, int]

    def inner(self, use: Use) -> tuple[Loop, ...]:
        """The loops between this one and the use."""
        return use.loops[self.depth + 1 :]

    def runs(self, number: int, use: Use) -> _Runs | None:
        """What a use reaches; None where that is too much to write down."""
        loops = (self.loop, *self.inner(use))
        trips = [loop.variable.trips for loop in loops]
        mask = use.access.mask.constraints + use.instruction.mask.simplified().constraints
        masked = bool(mask) and _is_clear(use)
        shifts, length = ([], 1) if masked else _contiguous(use)
        sizes = list(use.access.shape) if masked else [extent for extent, _ in shifts]
        if math.prod(trips) * math.prod(sizes) > MOST_ADDRESSES:
            return None
        rank = len(trips) + len(sizes)

        def along(place: int, values: object) -> np.ndarray:
            shape = [-1 if n == place else 1 for n in range(rank)]
            return np.asarray(values, dtype=np.int64).reshape(shape)

        values: dict[LoopVariable | TileAxis, np.ndarray] = {
            known: np.asarray(value) for known, value in self.outer.items()
        }
        values |= {loop.variable: along(n, loop.variable.values) for n, loop in enumerate(loops)}
        first = self._address(use).evaluate_many(values)
        steps = shifts if not masked else list(zip(sizes, use.access.strides, strict=True))
        for n, (extent, stride) in enumerate(steps):
            first = first + along(len(trips) + n, range(extent)) * stride
        first = np.broadcast_to(first, (*trips, *sizes))
        if not masked:
            first = first + _lowest(use)
        kept = np.ones(first.shape, dtype=bool)
        for constraint in mask if masked else ():
            for axis in constraint.axes:
                place = rank + axis.position
                values[axis] = along(place, range(first.shape[place]))
            kept &= np.broadcast_to(constraint.evaluate_many(values) >= 0, first.shape)
        within = math.prod(trips[1:])
        places = np.broadcast_to(
            np.arange(math.prod(trips)).reshape((*trips, *(1 for _ in sizes))), first.shape
        )[kept]
        found = first[kept]
        return _Runs(
            found,
            np.full(len(found), length),
            places // max(within, 1),
            places % max(within, 1),
            np.full(len(found), number),
        )

    def _address(self, use: Use) -> Affine:
        """The tile's first element, counted over all blocks."""
        address, size = use.access.offset, math.prod(self.tensor.tile_shape)
        for index, count in zip(
            reversed(use.access.block), reversed(self.tensor.block_shape), strict=True
        ):
            address, size = address + index * size, size * count
        return address

    def earlier(self, write: Use, write_step: int, read: Use, read_step: int) -> bool:
        """True when a write comes before a read of the same iteration."""
        loops = {id(one): one for one in self.inner(write)}
        shared = [one for one in self.inner(read) if id(one) in loops]
        before = _positions(self.inner(write), write_step)[: len(shared)]
        after = _positions(self.inner(read), read_step)[: len(shared)]
        return before < after or (before == after and write.order < read.order)


def _positions(loops: Sequence[Loop], step: int) -> tuple[int, ...]:
    trips = tuple(loop.variable.trips for loop in loops)
    return tuple(int(n) for n in np.unravel_index(step, trips)) if trips else ()


def _contiguous(use: Use) -> tuple[list[tuple[int, int]], int]:
    """The axes of a tile by extent and stride, without those that make one run of neighbours, and
    the length of that run. Strides count upwards, from `_lowest`."""
    axes = zip(use.access.strides, use.access.shape, strict=True)
    length, left = 1, []
    for stride, extent in sorted((abs(s), n) for s, n in axes if s and n > 1):
        if stride == length:
            length *= extent
        else:
            left.append((extent, stride))
    return left, length


def _lowest(use: Use) -> int:
    """How far the lowest element of a tile lies below its first one; at most 0."""
    return use.access.tile_reach[0]


def _joined(parts: Sequence[_Runs | None]) -> _Runs | None:
    """All runs, sorted by their first element."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or sum(len(part.first) for part in known) > MOST_ADDRESSES:
        return None
    columns = [np.concatenate(column) for column in zip(*known, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return _Runs(*(column[order] for column in columns))


def _witness(
    inside: _Inside, writes: list[Use], written: _Runs, read: Use, asked: _Runs
) -> tuple[int, int, int] | None:
    """The number of a write, the position of its iteration and of the one that reads; None where
    every iteration reads what it wrote itself, or nobody did."""
    if not (len(written.first) and len(asked.first)):
        return None
    longest = int(written.length.max())
    low = np.searchsorted(written.first, asked.first - longest + 1)
    high = np.searchsorted(written.first, asked.first + asked.length)
    changes = np.flatnonzero(np.diff(written.iteration)) + 1
    ends = np.append(changes, len(written.first))
    reached = np.minimum(low, len(written.first) - 1)
    other = written.iteration[reached] != asked.iteration
    other |= ends[np.searchsorted(changes, reached, side="right")] < high
    candidates = np.flatnonzero((high > low) & other)
    # The first step of an iteration finds the least that the iteration has written itself.
    eager = candidates[asked.step[candidates] == asked.step.min()][:MOST_LOOKS]
    spread = candidates[:: max(1, len(candidates) // MOST_LOOKS)][:MOST_LOOKS]
    for at in (*eager, *spread):
        for run in range(low[at], min(high[at], low[at] + MOST_LOOKS)):
            if written.iteration[run] == asked.iteration[at]:
                continue
            element = max(written.first[run], asked.first[at])
            if element >= written.first[run] + written.length[run]:
                continue
            if not _is_clear(writes[written.use[run]]):
                continue
            if not _own(inside, writes, written, read, asked, int(at), int(element)):
                return (
                    int(written.use[run]),
                    int(written.iteration[run]),
                    int(asked.iteration[at]),
                )
    return None


def _own(
    inside: _Inside,
    writes: list[Use],
    written: _Runs,
    read: Use,
    asked: _Runs,
    at: int,
    element: int,
) -> bool:
    """True when the reading iteration may have written the element itself before."""
    start = np.searchsorted(written.first, element - int(written.length.max()) + 1)
    stop = np.searchsorted(written.first, element, side="right")
    for run in range(start, stop):
        covers = written.first[run] + written.length[run] > element
        if covers and written.iteration[run] == asked.iteration[at]:
            write, step = writes[written.use[run]], int(written.step[run])
            if inside.earlier(write, step, read, int(asked.step[at])):
                return True
    return False
