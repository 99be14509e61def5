"""Programs as Python functions: loops over registers around compiled instructions."""

from __future__ import annotations

import os
import random as shuffling
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Lock
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.affine import LoopVariable
from accelopt.sim.compute.analysis.forwarding import forward_copies
from accelopt.sim.compute.analysis.other_formats import with_wide_floats
from accelopt.sim.compute.analysis.parallel import WORTHWHILE, loops_to_split
from accelopt.sim.compute.analysis.storage import Layout, Storage, plan
from accelopt.sim.compute.analysis.uses import uses_by_tensor
from accelopt.sim.compute.instructions import (
    blas,
    elementwise,
    indexed,
    matrix,
    movement,
    reductions,
)
from accelopt.sim.compute.tiles.addressing import register_slots
from accelopt.sim.compute.tiles.operands import Closure, LaneSite
from accelopt.sim.compute.tiles.thread_state import Lane
from accelopt.sim.errors import KernelValueError
from accelopt.sim.garbage_collection import collector_paused
from accelopt.sim.instruction_set import by_opcode
from accelopt.sim.program import (
    Instruction,
    Loop,
    LoopKind,
    Program,
    ProgramNode,
    Tensor,
    is_dynamic,
)

MAX_THREADS = 4  # more only fight for the interpreter

Order = Literal["program", "shuffled", "reversed"]
Taken = Callable[[range], Sequence[int]]
"""In which order a loop takes its values."""

PARALLEL = frozenset({LoopKind.AFFINE, LoopKind.PROGRAM})
Emitter = Callable[[LaneSite], Closure]

EMITTERS: dict[str, Emitter] = by_opcode(movement, matrix, elementwise, reductions, indexed)
"""What carries each opcode out."""


def execute(
    program: Program,
    arrays: Sequence[np.ndarray],
    *,
    order: Order = "program",
    seed: int = 0,
    wide_floats: bool = False,
) -> tuple[np.ndarray | None, ...]:
    """Runs a program on the arrays of its arguments and returns its results, in order.

    Arrays must have the arguments' shapes and dtypes (KernelValueError otherwise); they are not
    changed. With order "shuffled" the iterations of every affine loop and the programs of a launch
    run in a random order drawn from `seed`, with "reversed" from the last to the first, so that of
    any two the other comes first; a kernel without hidden dependences cannot tell. With `wide_floats` narrow
    floats on-chip are float32, as in the official simulator.
    """
    if wide_floats:
        program = with_wide_floats(program)
    if order == "shuffled":
        draw = shuffling.Random(seed)
        taken: Taken = lambda values: draw.sample(values, len(values))  # noqa: E731
        return Executable(program, taken=taken).run(arrays)
    if order == "reversed":
        return Executable(program, taken=lambda values: values[::-1]).run(arrays)
    return compile_program(program).run(arrays)


_compiled: WeakKeyDictionary[Program, Executable] = WeakKeyDictionary()


def compile_program(program: Program) -> Executable:
    """The executable form of a program, made once for each Program object."""
    found = _compiled.get(program)
    if found is None:
        found = _compiled[program] = Executable(program)
    return found


def available_threads() -> int:
    """How many threads this process may use; 1 where the matrix library cannot be called from
    several threads at once."""
    if blas.load() is None:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, MAX_THREADS)


class Executable:
    """A compiled program. It may run any number of times; runs wait for each other."""

    def __init__(
        self,
        program: Program,
        *,
        taken: Taken | None = None,
        threads: int | None = None,
        least_work: int = WORTHWHILE,
    ) -> None:
        self._taken = taken
        self._threads = 1 if taken else threads or available_threads()
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()
        self.trips: dict[LoopVariable, list[int]] = {}  # of loops of the device, entry by entry
        with collector_paused():
            self._compile_program(program, least_work)

    # Compiling.

    def _compile_program(self, program: Program, least_work: int) -> None:
        program = forward_copies(program)
        self.arguments, self.results = program.arguments, program.results
        self._shapes = [program.shape_of_result(n) for n in range(len(program.results))]
        uses = uses_by_tensor(program)
        self._layouts = plan(program, uses)
        self._fresh = _fresh_in_loops(self._layouts)
        self._split = loops_to_split(program, uses, self._layouts, self._threads, least_work)
        self._written = {t for t, own in uses.items() if any(use.writes for use in own)}
        storages = {tensor: Storage(layout) for tensor, layout in self._layouts.items()}
        self._lane = Lane(register_slots(program), storages)
        self._lanes = [self._lane]
        self._steps = [self._compile(node, (), self._lane) for node in program.body]

    def _compile(self, node: ProgramNode, loops: tuple[Loop, ...], lane: Lane) -> Closure:
        if isinstance(node, Instruction):
            return compile_instruction(node, loops, lane)
        bodies = [self._body(node, loops, lane)]
        if node not in self._split:
            return self._loop(node, bodies[0], lane)
        helpers = [lane.fork(node) for _ in range(min(self._threads, node.variable.trips) - 1)]
        self._lanes += helpers
        bodies += [self._body(node, loops, helper) for helper in helpers]
        return self._split_loop(node, bodies, [lane, *helpers])

    def _body(self, loop: Loop, loops: tuple[Loop, ...], lane: Lane) -> list[Closure]:
        fresh: list[Closure] = [lane.storages[t].refresh for t in self._fresh.get(loop, ())]
        return fresh + [self._compile(child, (*loops, loop), lane) for child in loop.body]

    def _loop(self, loop: Loop, steps: list[Closure], lane: Lane) -> Closure:
        slot, values = lane.slots[loop.variable], loop.variable.values
        registers, positions = lane.registers, lane.positions
        taken = self._taken if loop.kind in PARALLEL else None
        if is_dynamic(loop):
            return self._dynamic_loop(loop, steps, lane)

        def run() -> None:
            for position, value in enumerate(taken(values) if taken else values):
                registers[slot] = value
                positions[slot] = position
                for step in steps:
                    step()

        return run

    def _dynamic_loop(self, loop: Loop, steps: list[Closure], lane: Lane) -> Closure:
        """A loop that runs until its condition says stop."""
        slot, registers, positions = lane.slots[loop.variable], lane.registers, lane.positions
        at = len(self._fresh.get(loop, ()))
        before, holds, after = steps[:at], steps[at], steps[at + 1 :]
        trips = self.trips.setdefault(loop.variable, [])

        def run() -> None:
            registers[slot] = positions[slot] = 0
            while True:
                for step in before:
                    step()
                if not holds():  # type: ignore[func-returns-value]
                    trips.append(positions[slot])
                    return
                for step in after:
                    step()
                positions[slot] += 1

        return run

    def _split_loop(self, loop: Loop, bodies: list[list[Closure]], lanes: list[Lane]) -> Closure:
        """A loop whose iterations go to whichever thread is free."""
        slot, values = lanes[0].slots[loop.variable], loop.variable.values

        def work(lane: Lane, steps: list[Closure], iterations: Iterator[tuple[int, int]]) -> None:
            registers, positions = lane.registers, lane.positions
            with np.errstate(all="ignore"):
                for position, value in iterations:  # taking the next one is atomic
                    registers[slot] = value
                    positions[slot] = position
                    for step in steps:
                        step()

        def run() -> None:
            assert self._pool is not None
            iterations = iter(enumerate(values))
            futures = []
            for lane, steps in zip(lanes[1:], bodies[1:], strict=True):
                lane.follow(lanes[0])
                futures.append(self._pool.submit(work, lane, steps, iterations))
            try:
                work(lanes[0], bodies[0], iterations)
            finally:
                wait(futures)
            for future in futures:
                future.result()

        return run

    # Running.

    def run(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray | None, ...]:
        """The results for arrays in the order of the program's arguments."""
        with self._lock, blas.threads(1), np.errstate(all="ignore"):
            for counted in self.trips.values():
                counted.clear()
            return self._run(arrays)

    def _run(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray | None, ...]:
        for lane in self._lanes:
            lane.accumulators.clear()
            lane.random = np.random.default_rng(0)
        self._bind(arrays)
        try:
            with self._workers():
                self._run_steps()
            return tuple(
                None if tensor is None else self._result(tensor).reshape(shape or ())
                for tensor, shape in zip(self.results, self._shapes, strict=True)
            )
        finally:
            for lane in self._lanes:
                for storage in lane.storages.values():
                    storage.release()

    def _run_steps(self) -> None:
        starts, ends = self._lifetimes()
        for position, step in enumerate(self._steps):
            for storage in starts.get(position, ()):
                storage.allocate()
            step()
            for storage in ends.get(position, ()):
                storage.release()

    @contextmanager
    def _workers(self) -> Iterator[None]:
        """Threads for the loops that are split. The matrix library itself uses one thread: its own
        would wait for each other after every tile, for long when the machine is busy."""
        if not self._split:
            yield
            return
        with ThreadPoolExecutor(self._threads - 1) as self._pool:
            yield
        self._pool = None

    def _bind(self, arrays: Sequence[np.ndarray]) -> None:
        if len(arrays) != len(self.arguments):
            raise KernelValueError(
                "argument_count",
                f"the kernel takes {len(self.arguments)} arrays, {len(arrays)} were given.",
            )
        for tensor, array in zip(self.arguments, arrays, strict=True):
            wanted = dtypes.stored(tensor.dtype)
            if wanted == dtypes.FLOAT64:
                array = array.astype(wanted)
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
                storage.adopt(held.copy() if tensor in self._written else held)

    def _lifetimes(self) -> tuple[dict[int, list[Storage]], dict[int, list[Storage]]]:
        """Storages to allocate before and to release after each top-level step."""
        starts: dict[int, list[Storage]] = {}
        ends: dict[int, list[Storage]] = {}
        kept = {t for t in self.results if t is not None}
        for storage in {s for lane in self._lanes for s in lane.storages.values()}:
            layout = storage.layout
            if layout.tensor in self.arguments or layout.tensor.data is not None:
                continue
            starts.setdefault(layout.first, []).append(storage)
            if layout.tensor not in kept:
                ends.setdefault(layout.last, []).append(storage)
        return starts, ends

    def _result(self, tensor: Tensor) -> np.ndarray:
        storage = self._lane.storages[tensor]
        if not storage.is_held:  # no instruction uses it
            storage.allocate()
        array = storage.array()
        return array.copy() if tensor in self.arguments else array


def compile_instruction(instruction: Instruction, loops: tuple[Loop, ...], lane: Lane) -> Closure:
    """A function that carries an instruction out for the current loop values."""
    site = LaneSite(instruction, loops, lane)
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


def _both(first: Closure, second: Closure) -> Closure:
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
