"""What an element of a tensor holds at a place of a Program: the value of whatever wrote it last.

The search goes backward from the place. An instruction answers for the elements that it writes. A
loop answers with its one iteration that writes the element, when the address tells which; otherwise
with its last, whose value may have come about over all of them. At the beginning of an iteration
stands what earlier ones left.
"""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from accelopt.algorithm import recurrences
from accelopt.algorithm.addresses import AxisSolution, narrowed, solve
from accelopt.algorithm.definitions import put
from accelopt.algorithm.index import ZERO, Axis, Index, index_of
from accelopt.algorithm.origins import Origins
from accelopt.algorithm.value_nodes import UNDEFINED, Carried, Element, Value
from accelopt.algorithm.values import Values, never
from accelopt.kernels.nki.lift import meanings
from accelopt.kernels.nki.lift.execution_points import Moment, NodePath
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.instruction_element import written_where
from accelopt.kernels.nki.lift.runtime_indices import gathered, number_at
from accelopt.kernels.nki.lift.tile_addresses import address_of
from accelopt.sim.access import Access
from accelopt.sim.affine import LoopVariable
from accelopt.sim.dtypes import name_of
from accelopt.sim.program import Instruction, Loop, Program, ProgramNode, Tensor

MOST_NESTED = 60
"""Times that a search may come back to one loop before it is a recurrence without end."""

ANYWHERE = "what it writes at indices that are only known at run time is read or written again"

Found = tuple[list[Index], Value]
"""A value and the conditions under which it is there."""


class KeptArray(NamedTuple):
    """A tensor as the node of that number in a block leaves it, in each iteration of the loops around."""

    tensor: Tensor
    block: NodePath
    writer: int


class PutRows(NamedTuple):
    """A value `put` over some axes into rows of so many elements, and the node of the Program's body before
    which others write into the same tensor; 0 where nobody does."""

    axes: tuple[Axis, ...]
    value: Value
    row: int
    whole: int


@dataclass(slots=True)
class _Block:
    nodes: tuple[ProgramNode, ...]
    loops: tuple[Loop, ...]
    writers: dict[Tensor, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Write:
    access: Access
    name: str
    instruction: Instruction
    loops: tuple[Loop, ...]
    path: NodePath


class Reaching:
    """Answers what tensors hold, for one Program."""

    def __init__(
        self, program: Program, seconds: float = math.inf, strict: bool = False,
        kept: frozenset[Tensor] = frozenset(), tiles: frozenset[Tensor] = frozenset(),
    ) -> None:  # fmt: skip
        """What is read of the `kept` tensors is an element of an array that they are once a node of the
        Program's body has written them, and so is what others than their writers read of `tiles` that the same
        iteration has written; `arrays` has the names of those that were asked for."""
        self._end = time.monotonic() + seconds
        self.values = Values(strict, self._end)
        self.origins = Origins()
        self.arrays: dict[KeptArray, str] = {}
        self.kept = kept
        self.tiles = tiles
        self._program = program
        self._seconds = seconds
        self._numbers = {tensor: n for n, tensor in enumerate(program.arguments)}
        self._tensors = {tensor.id: tensor for tensor in program.all_tensors()}
        self._blocks: dict[NodePath, _Block] = {}
        self._inside: dict[tuple[NodePath, Tensor], list[_Write]] = {}
        self._memory: dict[object, Value] = {}
        self._written: dict[object, Value] = {}
        self._accumulated: set[Tensor] = set()
        self._entered: dict[tuple[NodePath, Tensor], int] = {}
        self._chains: dict[tuple[NodePath, Tensor], Carried | None] = {}
        """Recurrences beside each other that are being read, by what stands for the state before; None for what
        is no such one."""
        self._visit(program.body, (), ())

    def _visit(
        self, nodes: tuple[ProgramNode, ...], path: NodePath, loops: tuple[Loop, ...]
    ) -> None:
        block = self._blocks[path] = _Block(nodes, loops)
        for number, node in enumerate(nodes):
            own = (*path, number)
            if isinstance(node, Loop):
                self._visit(node.body, own, (*loops, node))
                for tensor in self._blocks[own].writers:
                    block.writers.setdefault(tensor, []).append(number)
                continue
            if node.opcode.product and node.attributes.get("accumulate"):
                self._accumulated.add(node.result.tensor)
            for name, access in node.outputs.items():
                found = block.writers.setdefault(access.tensor, [])
                if not found or found[-1] != number:
                    found.append(number)
                write = _Write(access, name, node, loops, own)
                for depth in range(len(path) + 1):
                    self._inside.setdefault((path[:depth], access.tensor), []).append(write)

    # Questions.

    def at_end(self, tensor: Tensor, address: Index, before: int | None = None) -> Value:
        """What an element holds when the kernel ends, or before a node of its body."""
        body = len(self._program.body)
        return self._scan(tensor, address, (), (), body if before is None else before)

    def left_by(self, array: KeptArray, address: Index, trips: tuple[Index, ...]) -> Value:
        """What an element of a kept tensor is, in an iteration of the loops around."""
        writers = self._blocks[array.block].writers[array.tensor]
        before = writers[: writers.index(array.writer) + 1]
        return self._searched(array.tensor, address, array.block, trips, before)

    def extents(self, array: KeptArray) -> tuple[int, ...]:
        """The trips of the loops around the block that leaves an array."""
        return tuple(loop.variable.trips for loop in self._blocks[array.block].loops)

    def put_at(self, tensor: Tensor) -> PutRows | None:
        """What an instruction puts into rows of a tensor; None where nothing is written at numbers that
        are known at run time. Raises NotLifted."""
        writes = self._inside.get(((), tensor), [])
        found = next((w for w in writes if w.access.indirect), None)
        if found is None:
            return None
        node, access, source = found.instruction, found.access, found.instruction.source
        if any(w is not found and w.path[0] >= found.path[0] for w in writes):
            said = "it writes at run-time indices into what others write in the same loop or later"
            raise NotLifted(said, source)
        if access.dtype != access.tensor.dtype or len(access.indirect) > 1:
            raise NotLifted("it writes at several run-time indices, or bits", source)
        extents = [*(loop.variable.trips for loop in found.loops), *access.shape]
        axes = tuple(Axis(f"o{n}", extent) for n, extent in enumerate(extents))
        indices = tuple(index_of(axis) if axis.extent > 1 else ZERO for axis in axes)
        depth = len(found.loops)
        place, coordinates = Moment(found.path, indices[:depth]), indices[depth:]
        number = number_at(self, access.indirect[0], access, coordinates, place)
        variables = self.variables(place)
        if any(c.bounds[0] < 0 for c in written_where(node, variables, coordinates)):
            raise NotLifted("it writes at run-time indices where a condition holds", source)
        address = address_of(access, variables, coordinates)
        value = self._value(node, found.name, coordinates, place)
        row = access.indirect[0].stride
        whole = found.path[0] if len(writes) > 1 else 0
        return PutRows(axes, put(self.values, value, number, address, row), row, whole)

    def read(self, access: Access, coordinates: Sequence[Index], place: Moment) -> Value:
        """An element of a tile, as the instruction at a place finds it. Raises NotLifted."""
        source = self.instruction_at(place).source
        if access.dtype != access.tensor.dtype:
            raise NotLifted("it reads a tensor's bits as another format", source)
        address = address_of(access, self.variables(place), coordinates)
        if access.indirect:
            return gathered(self, access, address, coordinates, place)
        if access.tensor in self.tiles and (array := self._left_before(access.tensor, place)):
            return self._element_of(array, address, place.trips[: len(array.block)])
        return self.content(access.tensor, address, place)

    def _left_before(self, tensor: Tensor, place: Moment) -> KeptArray | None:
        """What the instruction at a place reads of a tensor that the same iterations have written before; None where
        it writes the tensor itself, or earlier iterations do."""
        path = place.path
        if any(w.tensor is tensor for w in self.instruction_at(place).outputs.values()):
            return None
        while path:
            writers = self._blocks[path[:-1]].writers.get(tensor, [])
            if last := bisect_left(writers, path[-1]):
                return KeptArray(tensor, path[:-1], writers[last - 1])
            if writers:
                return None
            path = path[:-1]
        return None

    def content(self, tensor: Tensor, address: Index, place: Moment) -> Value:
        """What an element, given by its row-major number, holds before the node at a place."""
        return self._scan(tensor, address, place.path[:-1], place.trips, place.path[-1])

    def after_iteration(
        self, tensor: Tensor, address: Index, loop: NodePath, trips: tuple[Index, ...]
    ) -> Value:
        """What an element holds at the end of an iteration of a loop."""
        return self._scan(tensor, address, loop, trips, len(self._blocks[loop].nodes))

    def instruction_at(self, place: Moment) -> Instruction:
        """The instruction whose place it is."""
        node = self._blocks[place.path[:-1]].nodes[place.path[-1]]
        assert isinstance(node, Instruction)
        return node

    def loop_at(self, path: NodePath) -> Loop:
        """The loop at a path."""
        return self._blocks[path].loops[-1]

    def trips_of(self, loop: NodePath) -> int:
        """How often the loop at a path runs."""
        return self.loop_at(loop).variable.trips

    def left_in(
        self, tensor: int, address: Index, loop: NodePath, trips: tuple[Index, ...]
    ) -> Value:
        """`after_iteration`, of the tensor of an id, where the address is one of its elements."""
        found = self.after_iteration(self._tensors[tensor], address, loop, trips)
        last = math.prod(self._tensors[tensor].shape) - 1
        return self.values.under(found, (address, address * -1 + last))

    def refusal(self, loop: NodePath, reason: str) -> NotLifted:
        """What to raise where a loop has no closed form."""
        return NotLifted(reason, self.loop_at(loop).source)

    def variables(self, place: Moment) -> dict[LoopVariable, Index]:
        """The trips of the loops around a place by their variables."""
        loops = self._blocks[place.path[:-1]].loops
        return {loop.variable: t for loop, t in zip(loops, place.trips, strict=True)}

    # The search.

    def _scan(
        self, tensor: Tensor, address: Index, block: NodePath, trips: tuple[Index, ...], before: int
    ) -> Value:
        """What an element holds in a block before its node of a number."""
        writers = self._blocks[block].writers.get(tensor, [])
        last = bisect_left(writers, before)
        if last and not block and tensor in self.kept:
            return self._element_of(KeptArray(tensor, (), writers[last - 1]), address)
        key = (tensor.id, address, block, trips, writers[last - 1] if last else -1)
        if key not in self._memory:
            self._memory[key] = self._searched(tensor, address, block, trips, writers[:last])
        return self._memory[key]

    def _searched(
        self, tensor: Tensor, address: Index, block: NodePath, trips: tuple[Index, ...],
        writers: list[int],
    ) -> Value:  # fmt: skip
        if time.monotonic() > self._end:
            reason = f"what this holds was not found within the {self._seconds:g} s of lifting"
            raise NotLifted(reason, tensor.source)
        nodes = self._blocks[block].nodes
        partial: list[Found] = []
        for number in reversed(writers):
            node, place = nodes[number], Moment((*block, number), trips)
            if isinstance(node, Loop):
                found = self._after_loop(tensor, address, place)
            else:
                found = self._after_instruction(tensor, address, node, place)
            if found is None:
                continue
            if not found[0]:
                value = found[1]
                break
            partial.append(found)
        else:
            value = self._at_start(tensor, address, block, trips)
        for conditions, part in reversed(partial):
            value = self.values.where(conditions, part, value)
        return value

    def _after_instruction(
        self, tensor: Tensor, address: Index, node: Instruction, place: Moment
    ) -> Found | None:
        """The value that an instruction writes into an element, None where it writes none."""
        low, high = address.bounds
        for name, access in node.outputs.items():
            if access.tensor is not tensor:
                continue
            if access.indirect:
                raise NotLifted(ANYWHERE, node.source)
            if not access.block:
                first, last = access.reach
                if high < first or low > last:
                    continue
            found = self._written_to(access, address, node, name, place)
            if found is not None:
                return found
        return None

    def _written_to(
        self, access: Access, address: Index, node: Instruction, name: str, place: Moment
    ) -> Found | None:
        if access.dtype != access.tensor.dtype:
            raise NotLifted("it writes a tensor's bits as another format", node.source)
        variables = self.variables(place)
        unknown = _unknown(access)
        axes = frozenset(axis for index in unknown for axis in index.axes)
        index = address_of(access, variables, unknown)
        solution = solve(index, axes, address, access.tensor.shape)
        if solution is None:
            return None
        if not solution.unique:
            raise NotLifted("it writes some elements several times", node.source)
        coordinates = tuple(index.substitute(solution.axes) for index in unknown)
        coordinates = tuple(Index() if index.axes & axes else index for index in coordinates)
        conditions = [*solution.ranges, *solution.conditions]
        if name == "result":
            conditions += written_where(node, variables, coordinates)
        conditions = [c for c in conditions if c.bounds[0] < 0]
        if any(c.bounds[1] < 0 for c in conditions):
            return None
        short = narrowed(conditions)
        if short is None:
            return conditions, self._value(node, name, coordinates, place)
        # With the axis as short as the conditions leave it, less is open in what follows.
        axis, meaning, back = short
        moved = {axis: meaning}
        trips = tuple(trip.substitute(moved) for trip in place.trips)
        found = self._written_to(
            access, address.substitute(moved), node, name, Moment(place.path, trips)
        )
        if found is None:
            return None
        back_again = {next(iter(meaning.axes)): back}
        alone = [c for c in conditions if c.axes == {axis} and len(c.terms) == 1]
        others = [c.substitute(back_again) for c in found[0]]
        return [*alone, *others], self.values.substitute(found[1], back_again)

    def _value(
        self, node: Instruction, name: str, coordinates: tuple[Index, ...], place: Moment
    ) -> Value:
        key = (place.path, name, coordinates, place.trips)
        if key not in self._written:
            found = meanings.meaning(self, node, name, coordinates, place)
            self.origins.note(found, node.source)
            self._written[key] = found
        return self._written[key]

    def _after_loop(self, tensor: Tensor, address: Index, place: Moment) -> Found | None:
        """What a loop leaves in an element, None where it does not write it."""
        loop = self.loop_at(place.path)
        if not loop.variable.trips:
            return None
        solutions = self._iterations(tensor, address, place)
        if not solutions:
            return None
        single = dict.fromkeys(s.axes.get(_trip(loop)) for s in solutions)
        if loop.variable.trips == 1:
            single = {Index(): None}
        if None in single:
            closed = recurrences.closed(self, tensor.id, address, place.path, place.trips)
            writes = self._inside[place.path, tensor]
            self.origins.note(closed, writes[-1].instruction.source)
            return [], closed
        found: list[Found] = []
        for trip in single:
            assert trip is not None
            ranges = _common(solutions, _trip(loop), trip, len(single) > 1)
            trips = (*place.trips, trip)
            if short := narrowed([c for c in ranges if c.bounds[0] < 0]):
                # With the axis as short as the ranges leave it, less is open in what follows.
                axis, meaning, back = short
                moved = {axis: meaning}
                value = self.after_iteration(
                    tensor, address.substitute(moved), place.path,
                    tuple(trip.substitute(moved) for trip in trips),
                )  # fmt: skip
                value = self.values.substitute(value, {next(iter(meaning.axes)): back})
            else:
                value = self.after_iteration(tensor, address, place.path, trips)
            found.append((ranges, value))
        if len(found) == 1:
            return found[0]
        return self._either(found, tensor, address, place)

    def _either(self, found: list[Found], tensor: Tensor, address: Index, place: Moment) -> Found:
        """One of several values whose conditions exclude each other."""
        for n, (conditions, _) in enumerate(found):
            for others, _ in found[:n]:
                excluded = any((a + b).bounds[1] < 0 for a in conditions for b in others)
                if not excluded and not never((*conditions, *others)):
                    raise NotLifted(
                        "different iterations of this loop write the same elements",
                        self.loop_at(place.path).source,
                    )
        value = self.content(tensor, address, place)
        for conditions, part in found:
            value = self.values.where(conditions, part, value)
        return [], value

    def _iterations(self, tensor: Tensor, address: Index, place: Moment) -> list[AxisSolution]:
        """Where a loop's instructions write an element, each over the loop and what is in it."""
        loop = self.loop_at(place.path)
        outer = self.variables(place)
        depth = len(place.trips)
        low, high = address.bounds
        found: list[AxisSolution] = []
        for write in self._inside.get((place.path, tensor), ()):
            access = write.access
            if access.indirect:
                raise NotLifted(ANYWHERE, write.instruction.source)
            if not access.block:
                first, last = access.reach
                if high < first or low > last:
                    continue
            inner = {inside.variable: index_of(_trip(inside)) for inside in write.loops[depth:]}
            unknown = _unknown(access)
            index = address_of(access, {**outer, **inner}, unknown)
            axes = frozenset(a for i in (*inner.values(), *unknown) for a in i.axes)
            solution = solve(index, axes, address, tensor.shape)
            if solution is None:
                continue
            if not solution.unique:
                if _trip(loop) in index.axes:
                    raise NotLifted(
                        "iterations of the loops around it write the same elements",
                        write.instruction.source,
                    )
                solution = AxisSolution()
            found.append(solution)
        return found

    def _at_start(
        self, tensor: Tensor, address: Index, block: NodePath, trips: tuple[Index, ...]
    ) -> Value:
        """What an element holds where a block begins."""
        if not block:
            return self._initial(tensor, address)
        loop = self.loop_at(block)
        if tensor in loop.tensors:
            return self._initial(tensor, address)
        place = Moment(block, trips[:-1])
        trip = trips[-1]
        solutions = [] if trip == Index() else self._iterations(tensor, address, place)
        if not solutions:
            return self.content(tensor, address, place)
        single = dict.fromkeys(s.axes.get(_trip(loop)) for s in solutions)
        if None in single:
            before = self.content(tensor, address, place)
            return self.values.same(Carried(tensor.id, address, block, trips[:-1], trip, before))
        value = self.content(tensor, address, place)
        for written in single:
            assert written is not None
            gap = trip - written - 1
            ranges = _common(solutions, _trip(loop), written, len(single) > 1)
            if never((gap, *ranges)):
                continue
            earlier = self._beside(tensor, address, place, trip) if gap == Index() else None
            if isinstance(earlier, Carried) and earlier.initial == value:
                return earlier
            if earlier is None:
                earlier = self._earlier(tensor, address, place, written)
            value = self.values.where([gap, *ranges], earlier, value)
        return value

    def _beside(self, tensor: Tensor, address: Index, place: Moment, trip: Index) -> Value | None:
        """What the iteration before wrote one step beside what this one does, of what the one before that
        wrote there: a recurrence whose states lie beside each other. None where it is none."""
        key = (place.path, tensor)
        if key in self._chains:
            own = self._chains[key]
            return own if own and (own.iteration, own.address) == (trip, address) else None
        loop = self.loop_at(place.path)
        steps = {address_of(write.access, self._with_trip(place, loop), _unknown(write.access))
                 .coefficient(_trip(loop)) for write in self._inside[key]}  # fmt: skip
        if len(steps) != 1:
            return None
        (step,) = steps
        state = Axis(f"?S{tensor.id}", loop.variable.trips)
        before = address + (index_of(state) - trip) * step
        first = self.content(tensor, before.substitute({state: Index()}), place)
        own = Carried(tensor.id, before, place.path, place.trips, index_of(state), first)
        self._chains[key] = own = self.values.same(own)
        trips = (*place.trips, index_of(state))
        left = self.after_iteration(tensor, before + step, place.path, trips)
        self._chains[key] = None
        found = recurrences.of_one_before(self.values, left, own, state, trip - 1)
        if found is not None:
            del self._chains[key]
        return found

    def _with_trip(self, place: Moment, loop: Loop) -> dict[LoopVariable, Index]:
        return {**self.variables(place), loop.variable: index_of(_trip(loop))}

    def _earlier(self, tensor: Tensor, address: Index, place: Moment, trip: Index) -> Value:
        """What an earlier iteration of a loop wrote."""
        key = (place.path, tensor)
        self._entered[key] = self._entered.get(key, 0) + 1
        try:
            if self._entered[key] > MOST_NESTED:
                raise NotLifted(
                    f"every iteration of this loop computes {tensor.name or 'a tensor'} from what "
                    "an earlier one computed elsewhere",
                    self.loop_at(place.path).source,
                )
            return self.after_iteration(tensor, address, place.path, (*place.trips, trip))
        finally:
            self._entered[key] -= 1

    def _element_of(self, array: KeptArray, address: Index, trips: tuple[Index, ...] = ()) -> Value:
        if array not in self.arrays:
            named = array.tensor.name.isidentifier() and not re.fullmatch(
                r"t\d+", array.tensor.name
            )
            given = array.tensor.name if named else "between"
            name = self.arrays[array] = f"{given}_{len(self.arrays) + 1}"
            if array.tensor in self.tiles:
                lead = array.tensor.block_rank + 1  # with what lies on partitions
                tiles = math.prod((*self.extents(array), *array.tensor.shape[:lead]))
                self.values.shapes[name] = (tiles, *array.tensor.shape[lead:])
        number = len(self._numbers) + list(self.arrays).index(array)
        dtype = name_of(array.tensor.dtype)
        iteration = Index()
        for trip, extent in zip(trips, self.extents(array), strict=True):
            iteration = iteration * extent + trip
        place = iteration * math.prod(array.tensor.shape) + address
        return self.values.same(Element(self.arrays[array], number, dtype, place))

    # Where nothing was written.

    def _initial(self, tensor: Tensor, address: Index) -> Value:
        number = self._numbers.get(tensor)
        if number is None:
            return constant_element(self.values, tensor, address) if tensor.data is not None else (
                self._fresh(tensor))  # fmt: skip
        name = tensor.name or f"argument{number}"
        return self.values.same(Element(name, number, name_of(tensor.dtype), address))

    def _fresh(self, tensor: Tensor) -> Value:
        if tensor.fill is None and tensor in self._accumulated:
            return self.values.number(0)  # the first product of a group overwrites
        return UNDEFINED if tensor.fill is None else self.values.number(tensor.fill)


def _common(solutions: list[AxisSolution], axis: Axis, trip: Index, all_: bool) -> list[Index]:
    """The conditions that all instructions have which write an element in one iteration: an element
    that none of them writes holds what it held before, and the iteration is known to say so."""
    own = [s for s in solutions if axis.extent == 1 or s.axes.get(axis) == trip]
    sets = [[*s.ranges, *(s.conditions if all_ else ())] for s in own]
    return [c for c in dict.fromkeys(sets[0]) if all(c in other for other in sets)]


def _trip(loop: Loop) -> Axis:
    return Axis(f"?L{loop.variable.id}", max(loop.variable.trips, 1))


def _unknown(access: Access) -> list[Index]:
    """An element of a tile that is still to be found."""
    return [
        index_of(Axis(f"?{n}", extent)) if extent > 1 else Index()
        for n, extent in enumerate(access.shape)
    ]


def constant_element(values: Values, tensor: Tensor, address: Index) -> Value:
    """An element of a constant that the kernel brought along: one number, or an identity or
    triangular matrix. Raises NotLifted for any other."""
    data = np.asarray(tensor.data, dtype=np.float64)
    if not address.terms:
        return values.number(float(data.reshape(-1)[address.constant]))
    if (data == data.flat[0]).all():
        return values.number(float(data.flat[0]))
    if data.ndim == 2:
        rows, columns = data.shape
        row, column = address // columns, address % columns
        one, zero = values.number(1), values.number(0)
        for conditions, model in (
            ([row - column, column - row], np.eye(rows, columns)),
            ([row - column], np.tri(rows, columns)),
            ([row - column - 1], np.tri(rows, columns, -1)),
            ([column - row], np.tri(columns, rows).T),
            ([column - row - 1], np.tri(columns, rows, -1).T),
        ):
            if np.array_equal(data, model):
                return values.where(conditions, one, zero)
    raise NotLifted(
        f"the constant {tensor.name or 'that it reads'} is neither one number nor an identity "
        "or triangular matrix",
        tensor.source,
    )
