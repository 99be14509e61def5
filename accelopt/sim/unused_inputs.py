"""Elements of a kernel's inputs that reach none of its results, told from addresses alone.

Numbers do not show whether a sum of two million terms has them all, or a maximum of as many: one more
or less is lost in honest rounding, or decides nothing. Which elements the instructions read, and which
of those matter for a result, stands in the Program.

What is said not to reach a result does not. The other way round much is passed over: an element counts
as used wherever it is not worked out (run-time indices, bytes read in another format, very many
addresses), and what was written over counts as used if its place ever is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable, TileAxis
from accelopt.sim.instruction_set import mask_shape
from accelopt.sim.mask import Mask
from accelopt.sim.program import Instruction, Loop, Program, ProgramNode, Tensor

MOST_ADDRESSES = 1 << 22
"""Of one instruction's access in all iterations, or of one tensor in all iterations that make it
anew: with more, every element of it counts as used wherever one is."""

MOST_ELEMENTS = 1 << 28
"""Of all tensors together: of the largest beyond, either every element counts as used or none."""

MOST_PASSES = 8


def unused(program: Program) -> tuple[np.ndarray | None, ...]:
    """For every argument which of its elements reach no result: bools of its shape, None where all
    reach one."""
    found = _Coverage(program)
    for _ in range(MOST_PASSES):
        before = found.count
        for loops, instruction in reversed(found.instructions):
            found.ask(loops, instruction)
        if found.count == before:
            break
    else:
        return (None,) * len(program.arguments)
    used = [(found.used[tensor], tensor.shape) for tensor in program.arguments]
    return tuple(
        None if array.all() or array.size < math.prod(shape) else ~array.reshape(shape)
        for array, shape in used
    )


class _Use(NamedTuple):
    """An access in all iterations of the loops around its instruction."""

    loops: tuple[Loop, ...]
    access: Access

    @property
    def trips(self) -> tuple[int, ...]:
        return tuple(loop.variable.trips for loop in self.loops)

    @property
    def many(self) -> bool:
        return math.prod(self.trips) * self.access.elements > MOST_ADDRESSES


class _Coverage:
    """What is known to be used: for every tensor a row of bools for each time that it is made."""

    def __init__(self, program: Program) -> None:
        self.instructions = list(program.walk())
        self.made: dict[Tensor, tuple[Loop, ...]] = {}
        self._note(program.arguments, ())
        self._note(program.tensors, ())
        self._visit(program.body, ())
        self.used = dict(self._nothing())
        self.count = 0
        for tensor in program.results:
            if tensor is not None:
                self._mark(tensor, ...)

    def _nothing(self) -> Iterator[tuple[Tensor, np.ndarray]]:
        """Nothing used, of every tensor: the small ones first, one bool for those that are too large."""
        left = MOST_ELEMENTS
        for tensor in sorted(self.made, key=lambda tensor: math.prod(tensor.shape)):
            shape = _times(self.made[tensor]), math.prod(tensor.shape)
            fits = math.prod(shape) <= left
            left -= math.prod(shape) if fits else 0
            yield tensor, np.zeros(shape if fits else (1, 1), dtype=bool)

    def _visit(self, nodes: Iterable[ProgramNode], loops: tuple[Loop, ...]) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                self._note(node.tensors, (*loops, node))
                self._visit(node.body, (*loops, node))

    def _note(self, tensors: Iterable[Tensor], loops: tuple[Loop, ...]) -> None:
        for tensor in tensors:
            many = _times(loops) * math.prod(tensor.shape) > MOST_ADDRESSES
            self.made[tensor] = () if many else loops

    def _mark(self, tensor: Tensor, places: Any) -> None:
        used = self.used[tensor]
        before = np.count_nonzero(used)
        used[places] = True
        self.count += int(np.count_nonzero(used) - before)

    def ask(self, loops: tuple[Loop, ...], instruction: Instruction) -> None:
        """Marks what an instruction reads for what is used of its results."""
        if not any(self.used[access.tensor].any() for access in instruction.outputs.values()):
            return
        if _times(loops) > MOST_ADDRESSES:
            for access in instruction.inputs.values():
                for part in (access, *access.indices):
                    self._mark(part.tensor, ...)
            for access in instruction.outputs.values():
                for part in access.indices:
                    self._mark(part.tensor, ...)
            return
        trips = tuple(loop.variable.trips for loop in loops)
        lives = np.zeros(trips, dtype=bool)
        wanted: np.ndarray | None = None
        for name, access in instruction.outputs.items():
            asked = self._asked(_Use(loops, access))
            if asked is None:
                lives[...] = lives | bool(self.used[access.tensor].any())
                continue
            asked = _kept(asked, instruction.mask, access, instruction, loops)
            lives |= _once(asked).any(axis=tuple(range(len(trips), asked.ndim)))
            if name == "result" and len(instruction.outputs) == 1:
                wanted = asked
        if not lives.any():
            return
        accesses = [*instruction.inputs.values()]
        for access in (*accesses, *instruction.outputs.values()):
            for index in access.indices:
                self._read(_Use(loops, index), lives, None, instruction)
        for access in accesses:
            self._read(_Use(loops, access), lives, wanted, instruction)

    def _asked(self, use: _Use) -> np.ndarray | None:
        """Which elements of an access are used, in every iteration; None where that is not worked out."""
        if self.used[use.access.tensor].all():
            return np.broadcast_to(True, (*use.trips, *use.access.shape))
        places = self._places(use)
        return None if places is None else self.used[use.access.tensor][places]

    def _read(
        self, use: _Use, lives: np.ndarray, wanted: np.ndarray | None, instruction: Instruction
    ) -> None:
        access = use.access
        if self.used[access.tensor].all():
            return
        places = self._places(use)
        if places is None:
            self._mark(access.tensor, ...)
            return
        shape = (*use.trips, *access.shape)
        read = np.broadcast_to(lives.reshape(*use.trips, *(1 for _ in access.shape)), shape)
        if wanted is not None and instruction.opcode.elementwise:
            read = read & _fitted(wanted, use, instruction)
        read = _kept(read, instruction.mask, access, instruction, use.loops)
        read = _kept(read, access.mask, access, instruction, use.loops, own=True)
        some = places if read.all() else tuple(one[read] for one in np.broadcast_arrays(*places))
        self._mark(access.tensor, some)

    def _places(self, use: _Use) -> tuple[np.ndarray, np.ndarray] | None:
        """Row and element in `used` of every element of an access, in every iteration."""
        access, tensor = use.access, use.access.tensor
        if access.indirect or access.dtype != tensor.dtype or use.many:
            return None
        shape = (*use.trips, *access.shape)
        if self.used[tensor].shape[1] < math.prod(tensor.shape):
            nowhere: np.ndarray = np.zeros((), dtype=np.int64)
            return np.broadcast_to(nowhere, shape), np.broadcast_to(nowhere, shape)
        values = _values(use.loops, access.shape)
        element = access.offset.evaluate_many(values)
        size = math.prod(tensor.tile_shape)
        block: np.ndarray = np.asarray(0)
        for index, count in zip(access.block, tensor.block_shape, strict=True):
            block = block * count + index.evaluate_many(values)
        element = element + block * size
        for axis, stride in enumerate(access.strides):
            if access.shape[axis] > 1:
                element = element + values[_axis(access.shape, axis)] * stride
        row: np.ndarray = np.asarray(0)
        for loop in self.made[tensor]:
            position = use.loops.index(loop)
            at = np.arange(loop.variable.trips).reshape(
                [-1 if n == position else 1 for n in range(len(shape))]
            )
            row = row * loop.variable.trips + at
        element = np.clip(element, 0, math.prod(tensor.shape) - 1)  # beyond it a mask excludes all
        return np.broadcast_to(row, shape), np.broadcast_to(element, shape)


def _times(loops: tuple[Loop, ...]) -> int:
    return math.prod(loop.variable.trips for loop in loops)


def _axis(shape: tuple[int, ...], number: int) -> TileAxis:
    return TileAxis(number - len(shape), shape[number])


def _values(
    loops: tuple[Loop, ...], shape: tuple[int, ...]
) -> dict[LoopVariable | TileAxis, np.ndarray]:
    """Values of loops and axes, each along its own dimension."""
    rank = len(loops) + len(shape)

    def along(place: int, values: Iterable[int]) -> np.ndarray:
        array = np.fromiter(values, np.int64)
        return array.reshape([-1 if n == place else 1 for n in range(rank)])

    found: dict[LoopVariable | TileAxis, np.ndarray] = {
        loop.variable: along(n, loop.variable.values) for n, loop in enumerate(loops)
    }
    for number, extent in enumerate(shape):
        found[_axis(shape, number)] = along(len(loops) + number, range(extent))
    return found


def _kept(
    read: np.ndarray,
    mask: Mask,
    access: Access,
    instruction: Instruction,
    loops: tuple[Loop, ...],
    own: bool = False,
) -> np.ndarray:
    """Without the elements that a mask over an access's axes excludes; a mask over others keeps all."""
    constraints = mask.simplified().constraints
    if not constraints or not (own or access.shape == mask_shape(instruction)):
        return read
    held = _holds(constraints, loops, access.shape)
    if held.all():
        return read
    return np.broadcast_to(_once(read) & held, read.shape)


def _once(array: np.ndarray) -> np.ndarray:
    """What a view repeats along an axis once."""
    return array[tuple(slice(None, None if step else 1) for step in array.strides)]


def _holds(
    constraints: Iterable[Affine], loops: tuple[Loop, ...], shape: tuple[int, ...]
) -> np.ndarray:
    values = _values(loops, shape)
    known = values.keys()
    held: np.ndarray = np.asarray(True)
    for constraint in constraints:
        if set(constraint.variables) <= known:
            held = held & (constraint.evaluate_many(values) >= 0)
    return held


def _fitted(wanted: np.ndarray, use: _Use, instruction: Instruction) -> np.ndarray:
    """What an operand must give for the elements of the result that are used: the same, or those
    that are repeated along an axis; all where shapes tell neither."""
    given, result = use.access.shape, instruction.result.shape
    if len(given) != len(result) or any(
        g not in (1, r) for g, r in zip(given, result, strict=True)
    ):
        return np.asarray(True)
    if "predicate" in instruction.attributes:
        wanted = wanted & _chosen(instruction, use.loops)
    depth = len(use.loops)
    repeated = tuple(depth + n for n, (g, r) in enumerate(zip(given, result, strict=True)) if g < r)
    return np.asarray(wanted.any(axis=repeated, keepdims=True) if repeated else wanted)


def _chosen(instruction: Instruction, loops: tuple[Loop, ...]) -> np.ndarray:
    """Where a selection by position takes its data."""
    predicate = instruction.attributes["predicate"]
    constraints = predicate.constraints if isinstance(predicate, Mask) else (predicate,)
    if not all(isinstance(one, Affine) for one in constraints):
        return np.asarray(True)
    shape = instruction.result.shape
    values = _values(loops, shape).keys()
    if not all(set(one.variables) <= values for one in constraints):  # type: ignore[union-attr]
        return np.asarray(True)
    held = _holds(constraints, loops, shape)  # type: ignore[arg-type]
    return np.asarray(~held if instruction.attributes.get("negate") else held)
