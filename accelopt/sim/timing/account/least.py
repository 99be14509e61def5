"""What a Program must do at least, worked out from the Program alone.

Nothing here knows of instructions, queues or the compiler: every byte of the results, every distinct
byte of the arguments that a result may depend on, every multiplication and every element worked on.
A prediction below the time that this takes (`hardware.least_time`) is a fault of the prediction. How near
a kernel is to what the hardware can do is told by the work of its problem, of which this says nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from accelopt.hardware.least_time import Lanes, Work
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.instruction_set import mask_shape
from accelopt.sim.isa.matrix import rows_at_once
from accelopt.sim.isa.opcode import Cost
from accelopt.sim.program import Engine, Instruction, Loop, Program, Tensor
from accelopt.sim.timing.machine.pricing import SIXTEEN_BIT, slow_operands
from accelopt.sim.timing.stream.extents import masked_extent

MAX_SPANS = 1 << 10
"""Of a tile that is read in more places than this all of it counts as read."""

MAX_ITERATIONS = 1 << 14
"""Masked transfers of more iterations are left out of the count of bytes."""


class _Work(NamedTuple):
    """An instruction that a result may depend on."""

    instruction: Instruction
    loops: tuple[Loop, ...]
    iterations: int  # in which it does something else


def least(program: Program, cores: int = 1) -> Work:
    """What a Program must do at least, on so many cores."""
    works = list(_needed(program))
    read, written, copied = _moved(works, program)
    flops = {True: 0, False: 0}
    columns: Counter[Lanes] = Counter()
    for work in works:
        instruction = work.instruction
        if instruction.opcode.product:
            stationary, moving = instruction.inputs["stationary"], instruction.inputs["moving"]
            rows = rows_at_once(
                instruction
            )  # as packed elements, what is multiplied at once counts once
            product = stationary.elements * moving.free_elements // rows**2
            if not (instruction.attributes.get("is_transpose") or _is_masked(instruction)):
                flops[slow_operands((stationary, moving))] += 2 * product * work.iterations
        elif instruction.opcode.computes and instruction.outputs:
            columns[_lanes(instruction)] += _columns(work)
    return Work(read, written, copied, flops[True], flops[False], tuple(columns.items()), cores)


def _lanes(instruction: Instruction) -> Lanes:
    """Who may do an instruction: whom it names, else all that the table and the compiler allow."""
    engines = {instruction.engine}
    if instruction.engine is Engine.UNASSIGNED:
        engines = {*instruction.opcode.engines, Engine.VECTOR}
        if instruction.opcode.cost.two_tiles:  # by a column, as a scale or a bias
            engines.add(Engine.SCALAR)
    accesses = (*instruction.inputs.values(), *instruction.outputs.values())
    narrow = instruction.opcode.cost is Cost.FAST_PASS or all(
        access.dtype.itemsize <= SIXTEEN_BIT for access in accesses
    )
    return Lanes(frozenset(engines), narrow)


def _is_masked(instruction: Instruction) -> bool:
    return bool(instruction.mask.constraints) or any(
        access.mask.constraints for access in instruction.inputs.values()
    )


def _columns(work: _Work) -> int:
    """Elements a partition of all iterations."""
    instruction = work.instruction
    if not instruction.mask.constraints:
        accesses = (*instruction.inputs.values(), *instruction.outputs.values())
        return max(access.free_elements for access in accesses) * work.iterations
    variables = [loop.variable for loop in work.loops]
    total = math.prod(variable.trips for variable in variables)
    if total != work.iterations or total > MAX_ITERATIONS:
        return 0
    values = _grid(variables)
    extent = masked_extent(instruction.mask, mask_shape(instruction), values, total)
    return int(np.minimum(extent.columns, instruction.result.free_elements).sum())


def _grid(variables: list[LoopVariable]) -> dict[LoopVariable, np.ndarray]:
    """The values of some loops in all their iterations, (n,) each."""
    if not variables:
        return {}
    mesh = np.meshgrid(*(np.array(v.values, np.int64) for v in variables), indexing="ij")
    return {variable: grid.reshape(-1) for variable, grid in zip(variables, mesh, strict=True)}


def _needed(program: Program) -> Iterator[_Work]:
    """What a result may depend on, each thing once that is written several times."""
    everything = list(program.walk())
    wanted = _Wanted(program)
    grows = True
    while grows:
        before = wanted.size
        for _, instruction in reversed(everything):
            part = wanted.part(instruction)
            if part:
                wanted.add(instruction.accesses_read, part)
        grows = wanted.size > before
    needed = [
        (loops, instruction)
        for loops, instruction in everything
        if instruction.outputs and wanted.part(instruction)
    ]
    varies = _varying(needed)
    for loops, instruction in _once(needed):
        moving = _own_variables(instruction).union(
            *(varies.get(access.tensor, ()) for access in instruction.accesses_read)
        )
        trips = [loop.variable.trips for loop in loops if loop.variable in moving]
        iterations = math.ceil(math.prod(trips) * wanted.part(instruction))
        yield _Work(instruction, loops, iterations)


class _Wanted:
    """What a result may depend on: tensors, and of tiles of which only columns are read, those; and
    at most in which part of the iterations that write it."""

    def __init__(self, program: Program) -> None:
        self.parts = {tensor: 1.0 for tensor in program.results if tensor is not None}
        self.columns: dict[Tensor, np.ndarray] = {}  # bool, by element of a row, where not all
        self.spans: dict[int, tuple[np.ndarray, int] | None] = {}

    @property
    def size(self) -> tuple[int, int, float]:
        """Grows with what is wanted."""
        columns = sum(int(found.sum()) for found in self.columns.values())
        return len(self.parts) - len(self.columns), columns, sum(self.parts.values())

    def part(self, instruction: Instruction) -> float:
        """The part of an instruction's iterations whose work is wanted, at most."""
        if not instruction.outputs:
            return 1.0
        return max(map(self._part, instruction.outputs.values()))

    def _part(self, access: Access) -> float:
        columns = self.columns.get(access.tensor)
        whole = self.parts.get(access.tensor, 0.0)
        span = None if columns is None else self._span(access)
        if columns is None or span is None:
            return whole
        starts, length = span
        return whole * sum(bool(columns[at : at + length].any()) for at in starts) / len(starts)

    def add(self, accesses: list[Access], part: float) -> None:
        """Wants all that some accesses read, in a part of their iterations."""
        for access in accesses:
            tensor = access.tensor
            known = tensor in self.parts
            self.parts[tensor] = max(self.parts.get(tensor, 0.0), part)
            if known and tensor not in self.columns:
                continue
            span = self._span(access)
            if span is None:
                self.columns.pop(tensor, None)
                continue
            row = math.prod(tensor.tile_shape[1:])
            columns = self.columns.setdefault(tensor, np.zeros(row, bool))
            for at in span[0]:
                columns[at : at + span[1]] = True

    def _span(self, access: Access) -> tuple[np.ndarray, int] | None:
        """Where in its row an access begins, in all iterations, and how long it is; None where that
        is not known, or everything."""
        if id(access) not in self.spans:
            self.spans[id(access)] = _span(access)
        return self.spans[id(access)]


def _span(access: Access) -> tuple[np.ndarray, int] | None:
    tensor = access.tensor
    row = math.prod(tensor.tile_shape[1:])
    pairs = list(zip(access.shape[1:], access.strides[1:], strict=True))
    length = 1 + sum((n - 1) * abs(stride) for n, stride in pairs)
    variables = sorted(access.offset.loop_variables, key=lambda v: v.id)
    if (
        not tensor.buffer.on_chip
        or access.indirect
        or access.dtype != tensor.dtype
        or length >= row
        or math.prod(variable.trips for variable in variables) > MAX_SPANS
    ):
        return None
    low = sum((n - 1) * min(stride, 0) for n, stride in pairs)
    starts = np.unique((access.offset.evaluate_many(_grid(variables)) + low) % row)
    return None if int(starts[-1]) + length > row else (starts, length)


NestedInstructions = list[tuple[tuple[Loop, ...], Instruction]]


def _own_variables(instruction: Instruction) -> frozenset[LoopVariable]:
    """The loops in each of whose iterations it reads or stores something else, for certain: not
    those that appear in a division or a remainder, where a mask decides, or where two make the same
    addresses."""
    stored = (a for a in instruction.outputs.values() if not a.tensor.buffer.on_chip)
    moving = [a for a in (*instruction.accesses_read, *stored) if a.offset.terms or a.block]
    return frozenset().union(*map(_tell_apart, moving)) if moving else frozenset()


def _tell_apart(access: Access) -> set[LoopVariable]:
    """The loops that lead to other elements each time, whatever the others do."""
    found = {v for index in access.block for v in index.loop_variables if index.coefficient(v)}
    reach = 0
    steps = {v: abs(access.offset.coefficient(v) * v.step) for v in access.offset.loop_variables}
    for loop, step in sorted(steps.items(), key=lambda item: item[1]):
        if step > reach:
            found.add(loop)
            reach += step * (loop.trips - 1)
    return found


def _varying(needed: NestedInstructions) -> dict[Tensor, set[LoopVariable]]:
    """The loops in whose iterations a tensor may hold something else."""
    found: dict[Tensor, set[LoopVariable]] = {}
    grows = True
    while grows:
        grows = False
        for loops, instruction in needed:
            around = {loop.variable for loop in loops}
            mine = _own_variables(instruction).union(
                *(found.get(access.tensor, ()) for access in instruction.accesses_read)
            )
            for access in instruction.outputs.values():
                known = found.setdefault(access.tensor, set())
                size = len(known)
                known |= mine & around
                grows = grows or len(known) > size
    return found


def _once(needed: NestedInstructions) -> Iterator[tuple[tuple[Loop, ...], Instruction]]:
    """Without those that do to the same values what another has done."""
    writers: dict[Tensor, int] = {}
    for _, instruction in needed:
        for access in instruction.outputs.values():
            writers[access.tensor] = writers.get(access.tensor, 0) + 1
    same: dict[Tensor, Tensor] = {}  # by the tensor of repeated work, the one of the first
    seen: dict[tuple[object, ...], Instruction] = {}
    for loops, instruction in needed:
        key = (
            loops,
            instruction.opcode,
            tuple(sorted((k, str(v)) for k, v in instruction.attributes.items())),
            instruction.mask,
            *((a.shape, a.dtype) for a in instruction.outputs.values()),
            *(
                (same.get(a.tensor, a.tensor), a.block, a.offset, a.strides, a.shape, a.indirect)
                for a in instruction.inputs.values()
            ),
        )
        first = seen.setdefault(key, instruction)
        alike = list(zip(instruction.outputs.values(), first.outputs.values(), strict=True))
        if first is not instruction and all(
            writers[mine.tensor] == writers[theirs.tensor] == 1 for mine, theirs in alike
        ):
            same.update((mine.tensor, theirs.tensor) for mine, theirs in alike)
        else:
            yield loops, instruction


def _moved(works: list[_Work], program: Program) -> tuple[int, int, int]:
    """Distinct bytes of arguments that are read, of results that are written, and of those the ones
    that are copies."""
    copies = _copies(works, program)
    results = {tensor for tensor in program.results if tensor is not None}
    read: dict[Tensor, list[tuple[Access, _Work]]] = {}
    written: dict[Tensor, list[tuple[Access, _Work]]] = {}
    copied: dict[Tensor, list[tuple[Access, _Work]]] = {}
    for work in works:
        for access in work.instruction.inputs.values():
            if access.tensor in program.arguments:
                read.setdefault(access.tensor, []).append((access, work))
        for access in work.instruction.outputs.values():
            if access.tensor in results:
                written.setdefault(access.tensor, []).append((access, work))
                if _copies_one(work.instruction, copies):
                    copied.setdefault(access.tensor, []).append((access, work))
    read_bytes, written_bytes, copied_bytes = (
        sum(_distinct(*item) for item in side.items()) for side in (read, written, copied)
    )
    return read_bytes, written_bytes, copied_bytes


def _copies(works: list[_Work], program: Program) -> set[Tensor]:
    """The tensors that hold nothing but numbers of the arguments."""
    found = {access.tensor for work in works for access in work.instruction.outputs.values()}
    grows = True
    while grows:
        known = found | set(program.arguments)
        computed = {
            access.tensor
            for work in works
            if not _copies_one(work.instruction, known)
            for access in work.instruction.outputs.values()
        }
        grows = bool(found & computed)
        found -= computed
    return found | set(program.arguments)


def _copies_one(instruction: Instruction, copies: set[Tensor]) -> bool:
    return (
        bool(instruction.opcode.copied)
        and not instruction.attributes.get("accumulate")
        and all(access.tensor in copies for access in instruction.inputs.values())
    )


def _distinct(tensor: Tensor, uses: Iterable[tuple[Access, _Work]]) -> int:
    """Bytes of a tensor in HBM that some of its uses reaches."""
    marks = np.zeros(math.prod(tensor.shape), bool)
    for access, work in uses:
        if access.dtype == tensor.dtype and not access.indirect and not access.mask.constraints:
            _mark(marks, access, work)
    return int(np.count_nonzero(marks)) * tensor.dtype.itemsize


def _mark(marks: np.ndarray, access: Access, work: _Work) -> None:
    instruction = work.instruction
    moving = access.loop_variables.union(
        *(constraint.loop_variables for constraint in instruction.mask.constraints)
    )
    variables = [loop.variable for loop in work.loops if loop.variable in moving]
    if access.offset.is_affine and not instruction.mask.constraints:
        steps = [access.offset.coefficient(v) * v.step for v in variables]
        start = access.offset.constant + sum(
            access.offset.coefficient(v) * v.start for v in variables
        )
        shape = (*(v.trips for v in variables), *access.shape)
        _view(marks, start, shape, (*steps, *access.strides))[...] = True
    elif math.prod(v.trips for v in variables) <= MAX_ITERATIONS:
        _mark_masked(marks, access, work, variables)


def _view(
    marks: np.ndarray, start: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    reach = [step * (n - 1) for step, n in zip(strides, shape, strict=True)]
    low, high = start + sum(min(r, 0) for r in reach), start + sum(max(r, 0) for r in reach)
    if 0 in shape or low < 0 or high >= marks.size:
        return marks[:0]
    view: np.ndarray = np.lib.stride_tricks.as_strided(marks[start:], shape, strides)
    return view


def _mark_masked(
    marks: np.ndarray, access: Access, work: _Work, variables: list[LoopVariable]
) -> None:
    """Iteration by iteration, the elements that the conditions leave."""
    shape = mask_shape(work.instruction)
    if shape != access.shape:
        return
    axes = np.ix_(*(np.arange(n) for n in shape))
    place: np.ndarray = np.array(0)
    for axis, stride in zip(axes, access.strides, strict=True):
        place = place + axis * stride
    values = _grid(variables)
    for number in range(math.prod(v.trips for v in variables)):
        now = {variable: int(column[number]) for variable, column in values.items()}
        if all(_always(c, now, shape) for c in work.instruction.mask.constraints):
            _view(marks, access.offset.evaluate(now), access.shape, access.strides)[...] = True
            continue
        kept: np.ndarray = np.ones((1,) * len(shape), bool)
        for constraint in work.instruction.mask.constraints:
            rest, strides = constraint.split()
            total: np.ndarray = np.array(rest.evaluate(now))
            for at, factor in strides.items():
                total = total + axes[at] * factor
            kept = kept & (total >= 0)
        where = (place + access.offset.evaluate(now))[np.broadcast_to(kept, shape)]
        marks[where[(where >= 0) & (where < marks.size)]] = True


def _always(constraint: Affine, now: dict[LoopVariable, int], shape: tuple[int, ...]) -> bool:
    """True when a condition holds in all of a tile."""
    rest, strides = constraint.split()
    least = sum(min(factor * (shape[at] - 1), 0) for at, factor in strides.items())
    return bool(rest.evaluate(now) + least >= 0)
