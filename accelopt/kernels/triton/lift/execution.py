"""All launches of one host function: programs, loops, branches and memory as kernels find them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from accelopt.algorithm.definitions import DefinedOutput
from accelopt.algorithm.elementwise_functions import select
from accelopt.algorithm.index import Axis, Index, digits, element_number, index_of
from accelopt.algorithm.ir import Constant, Position
from accelopt.algorithm.loop_results import settled
from accelopt.algorithm.traced_array import NotTraced, axes_of_shape
from accelopt.algorithm.value_nodes import Element, Value
from accelopt.kernels.triton.lift.kernel_trace import KernelTrace, Tile
from accelopt.kernels.triton.lift.memory import Buffer, Write, applied, content, where_is, written
from accelopt.kernels.triton.lift.tiles import BlockPointer, ChosenPointer, Pointer
from accelopt.sim.errors import SourceLine

FIRST_STAGE = 10_000
"""The number of the first array between inputs and outputs, among the inputs."""


PLAIN = (bool, int, float, str, np.dtype, type(None))
"""What is compared by its value where two branches leave it."""


@dataclass(frozen=True)
class Range:
    """`range`, `tl.range` and `tl.static_range` of numbers or scalars."""

    start: Any
    stop: Any
    step: int
    static: bool = False

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop, self.step))

    def __len__(self) -> int:
        return len(range(self.start, self.stop, self.step))


@dataclass(frozen=True)
class Unknown:
    """What a variable holds where it has no form; the reason is told when it is used."""

    reason: str
    line: tuple[str, int]


@dataclass
class LoopRecord:
    """One loop: its axis, the axes around it, and what its iterations leave, by number."""

    axis: Axis
    around: tuple[Axis, ...]
    line: tuple[str, int]
    left: dict[int, tuple[tuple[int, ...], Value]] = field(default_factory=dict)


class Execution:
    """All launches of one host function."""

    def __init__(self, trace: KernelTrace) -> None:
        self.trace = trace
        self.values = trace.values
        self.records: dict[tuple[int, ...], LoopRecord] = {}
        self.buffers: list[Buffer] = []
        self.launches = 0
        self.grid: tuple[Axis, ...] | None = None
        self.axes: tuple[Axis, ...] = ()
        self.programs: tuple[int | Tile, ...] = ()
        self.loops: list[Axis] = []
        self.guards: list[Value] = []
        self.reads: list[tuple[Buffer, Index]] = []
        self.begun: dict[Buffer, int] = {}
        self.stages: list[DefinedOutput] = []
        self._names = 0

    # What `algorithm.recurrences` asks.

    def trips_of(self, loop: tuple[int, ...]) -> int:
        """How often a loop runs."""
        return self.records[loop].axis.extent

    def left_in(
        self, tensor: int, address: Index, loop: tuple[int, ...], trips: tuple[Index, ...]
    ) -> Value:
        """What a variable holds at the end of an iteration."""
        record = self.records[loop]
        shape, value = record.left[tensor]
        place = dict(zip(axes_of_shape(shape), digits(address, shape), strict=True))
        place |= zip((*record.around, record.axis), trips, strict=True)
        return self.values.substitute(value, place)

    def refusal(self, loop: tuple[int, ...], reason: str) -> NotTraced:
        """What to raise where a loop has no closed form."""
        return NotTraced(reason, *self.records[loop].line)

    # Programs.

    def program_id(self, axis: int) -> Tile:
        """tl.program_id."""
        own = self.axes[axis] if axis < len(self.axes) else None
        return self.scalar(index_of(own) if own is not None and own.extent > 1 else Index())

    def num_programs(self, axis: int) -> Tile:
        """tl.num_programs."""
        count = self.programs[axis] if axis < len(self.programs) else 1
        return count if isinstance(count, Tile) else self.scalar(count)

    def scalar(self, index: Index | int, dtype: Any = np.int32) -> Tile:
        """A scalar integer."""
        made = index if isinstance(index, Index) else Index(index)
        return self.trace.array((), dtype, self.values.position(made))

    def range_of(self, *given: Any, static: bool = False, **_: Any) -> Range:
        """`range` of scalars."""
        start, stop, step = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
        return Range(start, stop, int(step), static)

    # Truth.

    def known(self, test: Any) -> bool | None:
        """Whether a test holds, None where that depends on the program or on data."""
        if isinstance(test, Tile):
            value = test.value
            return bool(value.value) if isinstance(value, Constant) else None
        return bool(test)

    def truth(self, test: Tile) -> Value:
        """A scalar as a truth value."""
        if test.size != 1:
            self.trace.refuse("a branch by a tile of several elements")
        whole = test.reshape(())
        return whole.value if test.dtype.kind == "b" else cast(Tile, whole != 0).value

    def merged(self, truth: Value, on_true: Any, on_false: Any) -> Any:
        """What a variable holds after a branch."""
        if on_true is on_false:
            return on_true
        pair, pointers = (on_true, on_false), (Pointer, ChosenPointer)
        buffers = set(map(memory_of, pair))
        if all(isinstance(one, pointers) for one in pair) and (len(buffers) > 1 or None in buffers):
            return ChosenPointer(truth, on_true, on_false)
        leaves = [leaves_of(self.trace, one) for one in (on_true, on_false)]
        base = [memory_of(one) for one in (on_true, on_false)]
        if leaves[0] and leaves[1] and len(leaves[0]) == len(leaves[1]) and base[0] is base[1]:
            made: list[Tile] = []
            for one, other in zip(*leaves, strict=True):
                shape = np.broadcast_shapes(one.shape, other.shape)
                both = (one.broadcast(shape).value, other.broadcast(shape).value)
                dtype = np.result_type(one.dtype, other.dtype)
                made.append(self.trace.array(shape, dtype, select(self.trace, truth, *both)))
            return rebuilt(on_true, made)
        if isinstance(on_true, PLAIN) and isinstance(on_false, PLAIN) and on_true == on_false:
            return on_true
        return Unknown("a variable differs between two branches", self.trace.line())

    @contextmanager
    def under(self, guard: Value | None) -> Iterator[None]:
        """What is stored meanwhile is stored where a condition holds."""
        if guard is not None:
            self.guards.append(guard)
        try:
            yield
        finally:
            if guard is not None:
                self.guards.pop()

    def guarded(self, mask: Value) -> Value:
        """A mask with the conditions around it."""
        one, zero = self.values.number(1), self.values.number(0)
        for guard in reversed(self.guards):
            mask = select(self.trace, guard, select(self.trace, mask, one, zero), zero)
        return mask

    # Memory.

    def marks(self) -> dict[Buffer, int]:
        """How much was written to each buffer."""
        return {buffer: len(buffer.writes) for buffer in self.buffers}

    def restore(self, marks: Mapping[Buffer, int], reads: int) -> None:
        """Takes back what was stored and read since."""
        for buffer in self.buffers:
            del buffer.writes[marks.get(buffer, 0) :]
        del self.reads[reads:]

    def reach(self, axis: Axis, since: int) -> int:
        """The part of an axis for which what was read since lies in memory, all of it where that is
        anywhere."""
        most = axis.extent
        for buffer, address in self.reads[since:]:
            low, high = 0, most
            while low < high:
                middle = (low + high) // 2
                inside = address.substitute({axis: Index(middle)}).bounds[0] < buffer.size
                low, high = (middle + 1, high) if inside else (low, middle)
            most = low
        return most

    def write(
        self, pointer: Pointer, address: Index, value: Value, mask: Value, combiner: str,
        numbers: Mapping[Axis, Value],
    ) -> None:  # fmt: skip
        """Notes a store of a tile, whose axes are d0, d1, ..., at an address of those and of axes that
        are `numbers`."""
        grid, line = self.grid or (), self.trace.line()
        self.trace.origins.note(value, SourceLine(*line))
        tile = tuple(a for a in axes_of_shape(pointer.shape) if a.extent > 1)
        names = {a: index_of(written(a)) for a in (*tile, *self.loops, *grid)}
        value, mask = (self.values.substitute(v, names) for v in (value, self.guarded(mask)))
        if mask == Constant(0.0):
            return
        found = tuple((a, self.values.substitute(v, names)) for a, v in numbers.items())
        tiles, loops, programs = (tuple(map(written, group)) for group in (tile, self.loops, grid))
        pointer.buffer.writes.append(
            Write(address.substitute(names), value, mask, tiles, loops, programs, pointer.radix, combiner,
                  line, found)
        )  # fmt: skip

    def read(self, buffer: Buffer, address: Index) -> Value:
        """An element at an address of d0, d1, ... as a program of this launch finds it."""
        self.reads.append((buffer, address))
        begun = self.begun.get(buffer, 0)
        now, buffer.writes = buffer.writes, buffer.writes[:begun]
        try:
            value = content(self.trace, buffer, address)
        finally:
            buffer.writes = now
        for write in now[begun:]:
            solution = where_is(write, address)
            if solution is None:
                continue
            self._refuse_race(write, solution.axes, solution.unique)
            value = applied(self.trace, write, solution, value)
        return value

    def _refuse_race(self, write: Write, found: Mapping[Axis, Index], unique: bool) -> None:
        """Raises NotTraced where another program or an earlier iteration may have written."""
        for axis in (*(self.grid or ()), *self.loops):
            own = written(axis)
            if own in write.unknown and (not unique or found.get(own) != index_of(axis)):
                self.trace.refuse(
                    "it loads what another program or iteration may have stored "
                    f"(line {write.line[1]})"
                )

    def staged(self, tile: Tile) -> Tile:
        """A tile as an array of its own, over the programs and iterations around it, too."""
        around = (*(self.grid or ()), *self.loops)
        own = axes_of_shape(tile.shape)
        axes = (*around, *own)
        value = settled(cast(Any, self), tile.value)
        if isinstance(value, (Constant, Element, Position)) or self.values.carried(value):
            return tile
        name = f"step_{len(self.stages) + 1}"
        number, shape = FIRST_STAGE + len(self.stages), tuple(axis.extent for axis in axes)
        kept = tuple(axis for axis in axes if axis.extent > 1)
        self.stages.append(DefinedOutput(name, kept, value, tile.dtype.name, shape))
        indices = [index_of(a) if a.extent > 1 else Index() for a in axes]
        element = Element(name, number, tile.dtype.name, element_number(indices, shape))
        return self.trace.array(tile.shape, tile.dtype, self.values.same(element))

    def names(self) -> int:
        """A number that nothing else has."""
        self._names += 1
        return self._names


def leaves_of(trace: KernelTrace, held: Any) -> list[Tile] | None:
    """The tiles that a variable is made of; None for what no loop changes."""
    if isinstance(held, Tile):
        return [held]
    if isinstance(held, (bool, int, float)):
        return [cast(Tile, trace.traced(held))]
    if isinstance(held, Pointer):
        return [held.offset]
    if isinstance(held, ChosenPointer):
        held = (held.on_true, held.on_false)
    if isinstance(held, BlockPointer):
        return [cast(Tile, trace.traced(offset)) for offset in held.offsets]
    if isinstance(held, tuple):
        parts = [leaves_of(trace, part) for part in held]
        return None if any(p is None for p in parts) else [x for p in parts if p for x in p]
    return None


def memory_of(held: Any) -> Buffer | None:
    """What a pointer points to."""
    pointer = held.base if isinstance(held, BlockPointer) else held
    return pointer.buffer if isinstance(pointer, Pointer) else None


def rebuilt(held: Any, leaves: list[Tile]) -> Any:
    """A variable made of other tiles."""
    if isinstance(held, Pointer):
        return replace(held, offset=leaves[0])
    if isinstance(held, BlockPointer):
        return replace(held, offsets=tuple(leaves))
    if isinstance(held, ChosenPointer):
        parts = rebuilt((held.on_true, held.on_false), leaves)
        return ChosenPointer(held.chosen, *parts)
    if isinstance(held, tuple):
        made, rest = [], list(leaves)
        for part in held:
            size = _count(part)
            made.append(rebuilt(part, rest[:size]))
            rest = rest[size:]
        return tuple(made)
    return leaves[0]


def _count(held: Any) -> int:
    """How many leaves it has."""
    if isinstance(held, ChosenPointer):
        return _count(held.on_true) + _count(held.on_false)
    return len(held.offsets) if isinstance(held, BlockPointer) else 1
