"""Where each tensor's elements live while a Program runs, for how long, and what they start as.

Kernels in the public style declare one block per iteration, several GiB of logical SBUF. A block
dimension that is indexed by a loop around every use of the tensor, and through which no value
passes from one iteration to another, needs one block only; so most tensors shrink to a few tiles
that stay in the cache.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from accelopt.errors import InternalError
from accelopt.sim import dtypes
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.compute.analysis.regions import (
    ReachedElements,
    Rectangle,
    normal,
    region,
    row_length,
    uncovered,
)
from accelopt.sim.compute.analysis.uses import Use, carried_loops, common_loops
from accelopt.sim.program import Loop, Program, ProgramNode, Tensor

MOST_WRITERS = 256
"""How many writes before a read are looked at; a read that needs more counts as uncovered."""


class History:
    """Everything that happens to one tensor, in program order: which writes precede which reads.

    Decides two questions without running anything: can a read see memory that nothing has written (else fresh
    memory need not be filled with NaN), and can a value pass from one iteration of a loop to the next (else its
    iterations can share storage)? Both answer "yes" when in doubt.
    """

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


def _elements(use: Use) -> Hashable:
    """Equal for uses of a tensor that reach the same elements in every iteration of one loop."""
    access = use.access
    return (use.loops, access.block, access.offset, access.shape, access.strides, access.dtype)


ALIGNMENT = 64  # bytes of a cache line and of the widest vector register


@dataclass(frozen=True, eq=False)
class Layout:
    """How one tensor is stored.

    `block_strides` are the bytes between blocks along each block dimension, 0 where all share one;
    `private` are the loops, from the outermost, each iteration of which starts with fresh contents:
    none for a tensor with data or an argument, which the whole program shares;
    `fill` is what fresh contents are, None when nothing can see them; `first` and `last` number the
    top-level nodes that use the tensor.
    """

    tensor: Tensor
    block_strides: tuple[int, ...]
    size: int
    private: tuple[Loop, ...]
    fill: float | int | None
    first: int
    last: int


def plan(program: Program, uses: dict[Tensor, list[Use]]) -> dict[Tensor, Layout]:
    """The layout of every tensor that an instruction uses or the kernel returns."""
    scopes = _scopes(program)
    position = _top_level_positions(program)
    layouts: dict[Tensor, Layout] = {}
    for tensor in program.all_tensors():
        own = uses.get(tensor, [])
        result = any(tensor is other for other in program.results)
        if own or result or tensor in program.arguments:
            nodes = [position[use.order] for use in own] or [0]
            given = tensor in program.arguments or tensor.data is not None
            scope = () if given else scopes.get(tensor, ())
            layouts[tensor] = _layout(tensor, own, scope, given, result, min(nodes), max(nodes))
    return layouts


def _scopes(program: Program) -> dict[Tensor, tuple[Loop, ...]]:
    found: dict[Tensor, tuple[Loop, ...]] = {}

    def visit(nodes: tuple[ProgramNode, ...], loops: tuple[Loop, ...]) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                inside = (*loops, node)
                found.update(dict.fromkeys(node.tensors, inside))
                visit(node.body, inside)

    visit(program.body, ())
    return found


def _top_level_positions(program: Program) -> list[int]:
    """The top-level node of each instruction, by its order in the program."""

    def count(node: ProgramNode) -> int:
        return sum(map(count, node.body)) if isinstance(node, Loop) else 1

    return [at for at, node in enumerate(program.body) for _ in range(count(node))]


def _layout(
    tensor: Tensor,
    uses: list[Use],
    scope: tuple[Loop, ...],
    given: bool,
    result: bool,
    first: int,
    last: int,
) -> Layout:
    history = History(tensor, uses)
    private, contracted = scope, frozenset[int]()
    if tensor.buffer.on_chip and uses and not given and not result:
        private, contracted = _private(history, scope)
    item = dtypes.stored(tensor.dtype).itemsize
    size = math.prod(tensor.tile_shape) * item
    strides: list[int] = []
    for dimension in reversed(range(tensor.block_rank)):
        kept = dimension not in contracted
        strides.insert(0, size if kept else 0)
        size *= tensor.block_shape[dimension] if kept else 1
    fill = None if given else _fill(history, private, result)
    return Layout(tensor, tuple(strides), size, private, fill, first, last)


def _common(uses: list[Use]) -> tuple[Loop, ...]:
    shared = list(uses[0].loops)
    for use in uses[1:]:
        count = 0
        for one, other in zip(shared, use.loops, strict=False):
            if one is not other:
                break
            count += 1
        shared = shared[:count]
    return tuple(shared)


def _private(history: History, scope: tuple[Loop, ...]) -> tuple[tuple[Loop, ...], frozenset[int]]:
    """The loops whose iterations share no values of the tensor, and the block dimensions that one
    block serves because only those loops index them."""
    uses = history.uses
    if any(use.access.indirect for use in uses):
        return scope, frozenset()
    common = _common(uses)
    indices = _shared_indices(uses, {loop.variable for loop in common})
    identified = frozenset[LoopVariable]().union(*(i.loop_variables for i in indices.values()))
    private = len(scope)
    for depth in range(len(scope), len(common)):
        loop = common[depth]
        if loop.variable not in identified and not _separate(history, common[: depth + 1]):
            break
        private = depth + 1
    variables = {loop.variable for loop in common[:private]}
    contracted = {
        dimension
        for dimension, index in indices.items()
        if index.loop_variables and index.loop_variables <= variables
    }
    return common[:private], frozenset(contracted)


def _shared_indices(uses: list[Use], common: set[LoopVariable]) -> dict[int, Affine]:
    """Block dimensions that every use indexes alike, by loops around all uses, one to one."""
    found: dict[int, Affine] = {}
    for dimension, index in enumerate(uses[0].access.block):
        same = all(normal(use.access.block[dimension]) == normal(index) for use in uses[1:])
        if same and index.loop_variables <= common and _one_to_one(index):
            found[dimension] = index
    return found


def _one_to_one(index: Affine) -> bool:
    """True when different loop values always give different indices."""
    reach = 0
    factors: list[tuple[int, int]] = []
    for term, coefficient in index.terms:
        if not isinstance(term, LoopVariable):
            return False
        factors.append((abs(coefficient * term.step), term.trips))
    for factor, trips in sorted(factors):
        if factor <= reach:
            return False
        reach += factor * (trips - 1)
    return True


def _separate(history: History, within: tuple[Loop, ...]) -> bool:
    """True when every read sees only what its own iteration of the loops wrote."""
    ids = {loop.variable.id for loop in within}
    if any(carried_loops(use.instruction) & ids for use in history.uses if use.writes):
        return False
    return all(history.sees_only_writes(use, within) for use in history.uses if use.reads)


def _fill(history: History, private: tuple[Loop, ...], result: bool) -> float | int | None:
    """What fresh contents must be, None when no read can tell."""
    tensor, uses = history.tensor, history.uses
    poison = dtypes.fresh_value(tensor.dtype)
    if result:  # also one that is written throughout: to touch its pages in order takes less time
        return poison if tensor.fill is None else tensor.fill
    if all(history.sees_only_writes(use, private) for use in uses if use.reads):
        return None
    if tensor.fill is not None:
        return tensor.fill
    if any(use.instruction.opcode.product and use.writes and use.reads for use in uses):
        return 0  # the first write of an accumulation group overwrites
    return poison


@dataclass(eq=False)
class Storage:
    """The memory of one tensor while its program runs. `views` are the memories of accesses that
    must forget their views when the memory goes. Whoever asks for memory that is not there meets
    InternalError: NumPy would make memory of its own, and a pointer would lead anywhere."""

    layout: Layout
    views: list[dict[object, np.ndarray]] = field(default_factory=list)
    _buffer: np.ndarray | None = None
    _typed: np.ndarray | None = None
    _pointer: int = 0

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the arrays that hold the tensor."""
        return dtypes.stored(self.layout.tensor.dtype)

    @property
    def is_held(self) -> bool:
        """True while there is memory."""
        return self._buffer is not None

    @property
    def buffer(self) -> np.ndarray:
        """The memory's bytes."""
        return self._held(self._buffer)

    @property
    def pointer(self) -> int:
        """The address of the first byte."""
        self._held(self._buffer)
        return self._pointer

    def _held(self, buffer: np.ndarray | None) -> np.ndarray:
        if buffer is None:
            tensor = self.layout.tensor
            raise InternalError(
                f"'{tensor.name}', declared at {tensor.source}, has no memory where it is used"
            )
        return buffer

    def allocate(self) -> None:
        """Takes memory, untouched unless fresh contents can be seen."""
        self._take(aligned_bytes(self.layout.size))
        self.refresh()

    def adopt(self, array: np.ndarray) -> None:
        """Uses a C-contiguous array's memory, which must have the tensor's size."""
        if array.nbytes != self.layout.size:
            raise InternalError(f"{array.nbytes} bytes cannot hold '{self.layout.tensor.name}'")
        self._take(array.reshape(-1).view(np.uint8))

    def _take(self, buffer: np.ndarray) -> None:
        self._buffer, self._typed, self._pointer = buffer, None, buffer.ctypes.data

    def refresh(self) -> None:
        """Starts a new life: the contents become those of fresh memory."""
        if self.layout.fill is not None:
            if self._typed is None:
                held = np.dtype(np.uint8) if dtypes.is_packed(self.dtype) else self.dtype
                self._typed = self.buffer.view(held)
            self._typed.fill(self.layout.fill)

    def release(self) -> None:
        """Gives the memory back."""
        self._buffer = self._typed = None
        for memory in self.views:
            memory.clear()

    def array(self) -> np.ndarray:
        """All elements, in the tensor's shape."""
        return self.buffer.view(self.dtype).reshape(self.layout.tensor.shape)


def aligned_bytes(size: int) -> np.ndarray:
    """Uninitialised bytes that start at a cache line; pages that nobody touches cost nothing."""
    raw: np.ndarray = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]
