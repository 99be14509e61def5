"""Programs as Python functions: loops over registers around compiled instructions."""

from __future__ import annotations

import math
import random as shuffling
from collections.abc import Callable, Sequence
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.compute import elementwise, indexed, matrix, movement, reductions
from accelopt.sim.compute.addressing import register_slots
from accelopt.sim.compute.constants import Constants
from accelopt.sim.compute.lane import Lane
from accelopt.sim.compute.operands import Site, Step
from accelopt.sim.compute.storage import Layout, Storage, plan
from accelopt.sim.errors import KernelValueError, Unsupported
from accelopt.sim.program import Instruction, Loop, LoopKind, Node, Program, Tensor

Order = Literal["program", "shuffled"]
Emitter = Callable[[Site], Step]

EMITTERS: dict[str, Emitter] = {
    "dma_copy": movement.dma_copy,
    "copy": movement.copy,
    "memset": movement.memset,
    "matmul": matrix.matmul,
    "transpose": movement.transpose,
    "activation": elementwise.activation,
    "tensor_scalar": elementwise.tensor_scalar,
    "tensor_tensor": elementwise.tensor_tensor,
    "scalar_tensor_tensor": elementwise.scalar_tensor_tensor,
    "reciprocal": elementwise.reciprocal,
    "select": elementwise.select,
    "copy_predicated": movement.copy_predicated,
    "tensor_reduce": reductions.tensor_reduce,
    "partition_reduce": reductions.partition_reduce,
    "loop_reduce": reductions.loop_reduce,
    "tensor_tensor_scan": reductions.tensor_tensor_scan,
    "bn_stats": reductions.bn_stats,
    "bn_aggr": reductions.bn_aggr,
    "max8": indexed.max8,
    "find_index8": indexed.find_index8,
    "match_replace8": indexed.match_replace8,
    "iota": indexed.iota,
    "affine_select": indexed.affine_select,
    "range_select": indexed.range_select,
    "select_reduce": indexed.select_reduce,
    "stream_shuffle": movement.stream_shuffle,
    "local_gather": indexed.local_gather,
    "gather": indexed.gather,
    "sequence_bounds": indexed.sequence_bounds,
    "random": elementwise.random,
    "dropout": elementwise.dropout,
    "all_reduce": reductions.all_reduce_of_one,
    "print": indexed.device_print,
}

_MASKED_DATA = frozenset(
    "tensor_reduce partition_reduce bn_stats bn_aggr max8 find_index8 match_replace8 print".split()
)
"""Instructions whose mask has the axes of `data`."""


def execute(
    program: Program,
    arrays: Sequence[np.ndarray],
    *,
    order: Order = "program",
    seed: int = 0,
) -> tuple[np.ndarray | None, ...]:
    """Runs a program on the arrays of its arguments and returns its results, in order.

    Arrays must have the arguments' shapes and dtypes (KernelValueError otherwise); they are not
    changed. With order "shuffled" the iterations of every affine loop run in a random order drawn
    from `seed`, which a kernel without hidden dependences cannot tell.
    """
    if order == "shuffled":
        return Executable(program, shuffling.Random(seed)).run(arrays)
    return compile_program(program).run(arrays)


_compiled: WeakKeyDictionary[Program, Executable] = WeakKeyDictionary()


def compile_program(program: Program) -> Executable:
    """The executable form of a program, made once for each Program object."""
    found = _compiled.get(program)
    if found is None:
        found = _compiled[program] = Executable(program)
    return found


class Executable:
    """A compiled program. It may run any number of times, one run at a time."""

    def __init__(self, program: Program, shuffle: shuffling.Random | None = None) -> None:
        self.arguments, self.results = program.arguments, program.results
        self._shuffle = shuffle
        self._layouts = plan(program)
        slots = register_slots(program)
        storages = {tensor: Storage(layout) for tensor, layout in self._layouts.items()}
        self._lane = Lane(slots, self._layouts, Constants(program), storages)
        self._lane.registers.extend([0] * len(slots))
        self._lane.positions.extend([0] * len(slots))
        self._written = {access.tensor for _, i in program.walk() for access in i.outputs.values()}
        self._fresh = _fresh_in_loops(self._layouts)
        self._steps = [self._compile(node, (), self._lane) for node in program.body]

    # Compiling.

    def _compile(self, node: Node, loops: tuple[Loop, ...], lane: Lane) -> Step:
        if isinstance(node, Instruction):
            return compile_instruction(node, loops, lane)
        inside = (*loops, node)
        steps = [storage.refresh for storage in self._fresh_storages(node, lane)]
        steps += [self._compile(child, inside, lane) for child in node.body]
        return self._loop(node, steps, lane)

    def _fresh_storages(self, loop: Loop, lane: Lane) -> list[Storage]:
        return [lane.storages[tensor] for tensor in self._fresh.get(loop, ())]

    def _loop(self, loop: Loop, steps: list[Step], lane: Lane) -> Step:
        slot, values = lane.slots[loop.variable], loop.variable.values
        registers, positions = lane.registers, lane.positions
        shuffle = self._shuffle if loop.kind is LoopKind.AFFINE else None

        def run() -> None:
            taken: Sequence[int] = values
            if shuffle is not None:
                taken = shuffle.sample(values, len(values))
            for position, value in enumerate(taken):
                registers[slot] = value
                positions[slot] = position
                for step in steps:
                    step()

        return run

    # Running.

    def run(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray | None, ...]:
        """The results for arrays in the order of the program's arguments."""
        storages = self._lane.storages
        self._lane.accumulators.clear()
        self._lane.random = np.random.default_rng(0)
        self._bind(arrays)
        starts, ends = self._lifetimes()
        try:
            with np.errstate(all="ignore"):
                for position, step in enumerate(self._steps):
                    for tensor in starts.get(position, ()):
                        storages[tensor].allocate()
                    step()
                    for tensor in ends.get(position, ()):
                        storages[tensor].release()
            return tuple(None if t is None else self._result(t) for t in self.results)
        finally:
            for storage in storages.values():
                storage.release()

    def _bind(self, arrays: Sequence[np.ndarray]) -> None:
        if len(arrays) != len(self.arguments):
            raise KernelValueError(
                "argument_count",
                f"the kernel takes {len(self.arguments)} arrays, {len(arrays)} were given.",
            )
        for tensor, array in zip(self.arguments, arrays, strict=True):
            wanted = dtypes.stored(tensor.dtype)
            if array.shape != tensor.shape or array.dtype not in (wanted, tensor.dtype):
                raise KernelValueError(
                    "argument_mismatch",
                    f"argument '{tensor.name}' is {array.dtype}{list(array.shape)}, the kernel was "
                    f"traced for {dtypes.name_of(tensor.dtype)}{list(tensor.shape)}.",
                )
            held = np.ascontiguousarray(array)
            if tensor in self._written and np.may_share_memory(held, array):
                held = held.copy()
            self._lane.storages[tensor].adopt(held)
        for tensor, storage in self._lane.storages.items():
            if tensor.data is not None:
                held = np.ascontiguousarray(tensor.data, dtype=dtypes.stored(tensor.dtype))
                storage.adopt(held)

    def _lifetimes(self) -> tuple[dict[int, list[Tensor]], dict[int, list[Tensor]]]:
        starts: dict[int, list[Tensor]] = {}
        ends: dict[int, list[Tensor]] = {}
        returned = {t for t in self.results if t is not None}
        for tensor, layout in self._layouts.items():
            if tensor in self.arguments or tensor.data is not None:
                continue
            starts.setdefault(layout.first, []).append(tensor)
            if tensor not in returned:
                ends.setdefault(layout.last, []).append(tensor)
        return starts, ends

    def _result(self, tensor: Tensor) -> np.ndarray:
        storage = self._lane.storages[tensor]
        if storage.buffer is None:
            storage.allocate()
        return storage.array()


def compile_instruction(instruction: Instruction, loops: tuple[Loop, ...], lane: Lane) -> Step:
    """A function that carries an instruction out for the current loop values."""
    if instruction.opcode == "all_reduce" and any(x.kind is LoopKind.PROGRAM for x in loops):
        raise Unsupported("nl.all_reduce over several programs", source=instruction.source)
    by_data = instruction.opcode in _MASKED_DATA
    shape = instruction.inputs["data"].shape if by_data else instruction.result.shape
    site = Site(instruction, loops, lane, shape)
    body = EMITTERS[instruction.opcode](site)
    prelude, refresh = site.prelude, site.window.refresh
    if site.window.trivial:
        return body if prelude is None else _both(prelude, body)

    def step() -> None:
        if prelude is not None:
            prelude()
        if refresh():
            body()

    return step


def _both(first: Step, second: Step) -> Step:
    def step() -> None:
        first()
        second()

    return step


def _fresh_in_loops(layouts: dict[Tensor, Layout]) -> dict[Loop, list[Tensor]]:
    """The tensors that each iteration of a loop must start afresh."""
    found: dict[Loop, list[Tensor]] = {}
    for tensor, layout in layouts.items():
        if layout.private and layout.fill is not None:
            found.setdefault(layout.private[-1], []).append(tensor)
    return found


def logical_bytes(program: Program) -> int:
    """How much on-chip memory the program declares, in bytes."""
    return sum(
        math.prod(t.shape) * t.dtype.itemsize for t in program.all_tensors() if t.buffer.on_chip
    )
