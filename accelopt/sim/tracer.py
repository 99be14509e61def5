"""The recording of one kernel run: scopes of tensors, loops, and the instructions between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from accelopt.errors import InternalError
from accelopt.sim.access import Access
from accelopt.sim.affine import LoopVariable
from accelopt.sim.attribute_kinds import one_line
from accelopt.sim.call_sites import LoopKey, running_line
from accelopt.sim.conditions import GuardedBody, branches
from accelopt.sim.errors import NOWHERE, KernelError, SourceLine
from accelopt.sim.instruction_set import fault
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.mask import EVERYTHING, Mask
from accelopt.sim.program import (
    AttributeValue,
    Buffer,
    Engine,
    Instruction,
    Loop,
    LoopKind,
    Placement,
    ProgramNode,
    Tensor,
)
from accelopt.sim.rules import kernels


class LoopIteration(NamedTuple):
    """One iteration of an unrolled loop. `loop` numbers this execution of the loop, `key` is the
    loop in the source. `depth` counts the bodies that were open before it."""

    key: LoopKey
    loop: int
    value: int
    traced_once: bool  # by the real tracer: not a static_range
    depth: int


@dataclass(eq=False)
class Body:
    """A list of nodes under construction and the scope of the tensors declared in it."""

    nodes: list[ProgramNode] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    variable: LoopVariable | None = None
    kind: LoopKind | None = None
    open: bool = True
    unrolled_loop: int | None = None

    def unrolled_child(self, loop: int | None) -> Body:
        """A scope of its own whose nodes go to this body: one iteration of an unrolled loop."""
        return Body(self.nodes, self.tensors, unrolled_loop=loop)


MAX_NODES = 4_000_000
"""A kernel that unrolls to more instructions than this is refused rather than traced for hours."""


class Returned(NamedTuple):
    """What a kernel gave back: tensors, their shapes where it had reshaped them, and whether they
    came as a sequence."""

    results: tuple[Tensor | None, ...] = ()
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    sequence: bool = False


class NeedsConcrete(BaseException):
    """Kernel code asked for the number behind a symbolic loop index. Not an Exception, so that a
    kernel's `except Exception` cannot swallow it."""

    def __init__(
        self, keys: frozenset[LoopKey], conditions: frozenset[GuardedBody] = frozenset()
    ) -> None:
        self.keys = keys
        self.conditions = conditions
        super().__init__(keys)


class Reduction(NamedTuple):
    """A call of loop_reduce; `data` is a view of what is reduced, in the dialect's own type."""

    op: str
    data: Any
    mask: Mask


class Conventions(NamedTuple):
    """What a kernel's dialect has of its own: what it hands out for a tensor, what it asks of every
    instruction, and its own words for what to do about an error, by identifier."""

    dialect: str
    view_type: type[Any]
    check: Callable[[Instruction], KernelError | None] = lambda _: None
    mends: Mapping[str, str] = MappingProxyType({})


class Tracer:
    """The recording of one kernel run. Lives as long as the run; nothing outlives it but the
    Program."""

    def __init__(
        self,
        target: str,
        conventions: Conventions,
        unrolled: frozenset[LoopKey],
        report: Callable[[KernelError], None] | None = None,
        conditions: frozenset[GuardedBody] = frozenset(),
        entry: SourceLine = NOWHERE,
    ) -> None:
        self.conventions = conventions
        self.conditions = set(conditions)
        self.target = target
        self.unrolled = unrolled
        self.bodies: list[Body] = [Body()]
        self.keys: dict[LoopVariable, LoopKey] = {}
        self.home: dict[Tensor, Body] = {}
        self.demanded: set[LoopKey] = set()
        self.arguments: list[Tensor] = []
        self.mutable: set[Tensor] = set()
        self.products: dict[Tensor, set[object]] = {}  # where in PSUM products were written to
        self.device_loops: list[object] = []  # that are being recorded, outermost first
        self.versions: object = None  # of the dialect's package that the kernel may be for
        self.pair: object = None  # the cores under way, where there are several
        self.spoke = False  # to other ranks
        self.core = 0  # whose instructions are being recorded, over all ranks
        self.cores_of_rank = 1
        self.parts: dict[
            Tensor, int
        ] = {}  # of arguments: elements of the part that a rank is given
        self.must_return: set[Tensor] = set()
        self.written: set[Tensor] = set()
        self.fitting: set[tuple[object, ...]] = set()  # forms of calls found within limits
        self.unplaced: set[Tensor] = set()  # results in PSUM that the compiler may copy to SBUF
        self.grid: tuple[object, ...] = ()  # the program's coordinates
        self.grid_shape: tuple[int, ...] = ()
        self.shared: list[Tensor] = []
        self.shared_cursor = 0
        self.depth = 0  # nesting of kernel calls
        self.entry = entry  # where the kernel begins: blamed for its arguments and results
        self.force_auto_allocation = False
        self.placements: dict[LoopKey, Placement | None] = {}  # of unrolled loops, by call site
        self.accumulators: dict[object, Tensor] = {}  # of loop_reduce, by call site
        self.reductions: dict[Tensor, Reduction] = {}  # by the result, which is not assigned yet
        self.reduced: set[Tensor] = set()  # what such results were assigned to
        self.named: dict[str, int] = {}  # instructions that the kernel gave a name, in their order
        self.iterations: list[LoopIteration] = []  # of the unrolled loops around here
        self._report = report
        self.left_loops: list[SourceLine] = []  # by break or return
        self.broken = False  # some instruction is missing: it was refused
        self.failure: KernelError | None = None  # the last error of a rule
        self._next_id = 0
        self._emitted = 0

    def fresh_id(self) -> int:
        """Numbers for tensors and loop variables, in order of appearance."""
        self._next_id += 1
        return self._next_id

    def refuse(self, error: KernelError) -> None:
        """Raises the error with the kernel's line, or reports it and goes on when the caller of
        the trace collects violations."""
        if self._report is None:
            raise self.blamed(error)
        self._report(self.blamed(error))

    @property
    def collecting(self) -> bool:
        """True when violations are reported instead of raised."""
        return self._report is not None

    def collect(self, error: KernelError) -> None:
        """Reports an error that ended one call; the trace goes on without its result."""
        assert self._report is not None
        self.broken = True
        self._report(self.blamed(error))

    def blamed(self, error: KernelError) -> KernelError:
        """The error with the kernel's current line. A trace that already has to start again does
        so instead: what it has seen since may be wrong."""
        if self.demanded:
            raise NeedsConcrete(frozenset(self.demanded), frozenset(self.conditions))
        if error.source == NOWHERE:
            error.mend = self.conventions.mends.get(error.identifier, error.mend)
            error.at(running_line() if self.depth else self.entry)
        self.failure = error
        return error

    def declare(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        buffer: Buffer,
        *,
        name: str = "",
        block_rank: int = 0,
        fill: float | int | None = None,
        lazy_fill: bool = False,
        data: np.ndarray | None = None,
        placement: Placement | None = None,
        temporary: bool = False,
        body: Body | None = None,
    ) -> Tensor:
        """A new tensor in the current scope (or in `body`). Raises KernelError for one without elements."""
        if 0 in shape:
            raise _empty("a tensor", shape)
        number = self.fresh_id()
        tensor = Tensor(
            number,
            one_line(name) or f"t{number}",
            shape,
            dtype,
            buffer,
            block_rank,
            fill,
            lazy_fill,
            data,
            placement,
            temporary,
            running_line(),
        )
        home = body or self.bodies[-1]
        home.tensors.append(tensor)
        self.home[tensor] = home
        return tensor

    @property
    def rank(self) -> int:
        """The rank whose instructions are being recorded."""
        return self.core // self.cores_of_rank

    def declare_shared(self, shape: tuple[int, ...], dtype: np.dtype, name: str) -> Tensor:
        """One allocation in shared HBM a launch, the same for every program and core."""
        if self.shared_cursor == len(self.shared):
            body = self.bodies[0]
            self.shared.append(self.declare(shape, dtype, Buffer.SHARED_HBM, name=name, body=body))
        self.shared_cursor += 1
        return self.shared[self.shared_cursor - 1]

    def depth_outside(self, variables: Collection[LoopVariable], unrolled: Collection[int]) -> int:
        """How many open bodies lie outside of all the given loops, symbolic or unrolled."""
        inside = [n for n, body in enumerate(self.bodies) if body.variable in variables]
        inside += [item.depth for item in self.iterations if item.loop in unrolled]
        return min(inside, default=len(self.bodies))

    def iterations_besides(self, loops: Collection[int]) -> tuple[tuple[LoopKey, int], ...]:
        """Where we are in the unrolled loops around here, but for those of the given numbers."""
        return tuple((item.key, item.value) for item in self.iterations if item.loop not in loops)

    def emit(
        self,
        opcode: Opcode,
        *,
        outputs: dict[str, Access],
        inputs: dict[str, Access],
        attributes: dict[str, AttributeValue],
        mask: Mask = EVERYTHING,
        engine: Engine | None = None,
    ) -> Instruction | None:
        """Appends one instruction, which keeps the dictionaries; None when the mask never holds, or a
        rule that the kernel broke left something in it that no instruction has. Raises InternalError
        for an operand or attribute that the instruction set does not give to the opcode."""
        if self.demanded:
            raise NeedsConcrete(frozenset(self.demanded), frozenset(self.conditions))
        self._emitted += 1
        if self._emitted > MAX_NODES:
            raise KernelError(
                "trace_too_long",
                f"the kernel unrolls to more than {MAX_NODES} instructions.",
                "Use nl.affine_range or nl.sequential_range and keep Python out of the loop.",
                running_line(),
            )
        wrong = fault(opcode, outputs, inputs, attributes)
        if wrong:
            if not self.collecting or self.failure is None:
                raise InternalError(f"{wrong} (emitted at {running_line()})")
            self.broken = True
            return None
        moving: list[Access] = []
        home = self.home
        for accesses in (outputs.values(), inputs.values()):
            for access in accesses:
                if 0 in access.shape:
                    raise _empty(f"an operand of {opcode}", access.shape)
                scope = home.get(access.tensor)
                if scope is None or not scope.open or self.conditions:
                    self.check_scope(access.tensor)
                if access.offset.terms or access.block or access.indirect:
                    moving.append(access)
        simple = mask.simplified() if mask.constraints else mask
        if moving or simple.constraints:
            self._check_variables(moving, simple)
            if simple.never:
                return None
        instruction = Instruction(
            opcode,
            engine or opcode.engine,
            outputs,
            inputs,
            attributes,
            simple,
            running_line(),
            self.core,
        )
        error = self.conventions.check(instruction)
        if error is not None:
            self.refuse(error)
        self.bodies[-1].nodes.append(instruction)
        for access in outputs.values():
            self.written.add(access.tensor)
        return instruction

    def check_scope(self, tensor: Tensor) -> None:
        """A tensor made inside a loop or condition is gone when that block ends (S18)."""
        home = self.home.get(tensor)
        if home is None or not home.open:
            self.refuse(kernels.out_of_scope(tensor.name, tensor.source, "loop"))
            return
        if not self.conditions or not tensor.buffer.on_chip:
            return
        left = [block for block in self.conditions if block.holds(tensor.source)]
        if left:
            here = running_line()
            if any(block.is_left_by(here) for block in left):
                self.refuse(kernels.out_of_scope(tensor.name, tensor.source, "condition"))

    def note_condition(self) -> None:
        """The running line is a condition on loop indices: its branches are scopes of tensors."""
        here = running_line()
        self.conditions |= branches(here)

    def in_dynamic_condition(self) -> bool:
        """True when the running line lies in a branch that depends on loop indices."""
        here = running_line()
        return any(block.holds(here) for block in self.conditions)

    @contextmanager
    def loop(
        self, variable: LoopVariable, kind: LoopKind, source: SourceLine, key: LoopKey
    ) -> Iterator[None]:
        """Everything emitted inside becomes the body of one Loop node."""
        self.keys[variable] = key
        body = Body(variable=variable, kind=kind)
        self.bodies.append(body)
        yield
        self.close(body)
        outer = self.bodies[-1]
        if body.nodes:
            outer.nodes.append(Loop(variable, kind, tuple(body.nodes), tuple(body.tensors), source))
        else:  # nothing to run: what it allocated is the surrounding scope's
            outer.tensors.extend(body.tensors)

    @contextmanager
    def iteration(self, key: LoopKey, loop: int, value: int, scoped: bool = True) -> Iterator[None]:
        """One iteration of an unrolled loop; a scope of tensors unless the loop is Python's own."""
        depth = len(self.iterations)
        self.iterations.append(LoopIteration(key, loop, value, scoped, len(self.bodies)))
        if not scoped:
            yield
            del self.iterations[depth:]
            return
        body = self.bodies[-1].unrolled_child(loop)
        self.bodies.append(body)
        yield
        del self.iterations[depth:]
        self.close(body)

    def close(self, body: Body) -> None:
        """Ends a scope; loops that were left by break or return are closed with it."""
        while self.bodies[-1] is not body:
            self.bodies.pop().open = False
        self.bodies.pop()
        body.open = False
        if self.demanded:
            raise NeedsConcrete(frozenset(self.demanded), frozenset(self.conditions))

    def demand(self, variables: frozenset[LoopVariable]) -> NoReturn:
        """Kernel code needs these loops' indices as numbers: start again with them unrolled."""
        self.demanded |= {self.keys[variable] for variable in variables}
        raise NeedsConcrete(frozenset(self.demanded), frozenset(self.conditions))

    def belongs_to_loop(self, tensor: Tensor) -> bool:
        """True for a tensor made in the body that is being traced."""
        return self.home.get(tensor) is self.bodies[-1]

    def _check_variables(self, accesses: Iterable[Access], mask: Mask) -> None:
        """A loop index has no value after its loop."""
        used: set[LoopVariable] = set()
        for access in accesses:
            used |= access.loop_variables
        for constraint in mask.constraints:
            used |= constraint.loop_variables
        if used:
            left = used - {body.variable for body in self.bodies}
            if left:
                self.refuse(kernels.index_after_loop())


_current: ContextVar[Tracer | None] = ContextVar("accelopt_tracer", default=None)


def _empty(what: str, shape: tuple[int, ...]) -> KernelError:
    said = f"{what} of shape {shape} has a dimension without elements."
    return KernelError("shape", said, source=running_line())


def current() -> Tracer:
    """The tracer of the kernel that is running; a host call of the NKI surface is an error."""
    tracer = _current.get()
    if tracer is None:
        raise kernels.outside_of_kernel()
    return tracer


def active() -> Tracer | None:
    """The tracer of the kernel that is running, or None on the host."""
    return _current.get()


@contextmanager
def recording(tracer: Tracer) -> Iterator[None]:
    """Inside, `current` gives this tracer."""
    token = _current.set(tracer)
    try:
        yield
    finally:
        _current.reset(token)
