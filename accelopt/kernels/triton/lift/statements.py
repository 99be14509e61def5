"""Executes the statements of a kernel once, for all programs of a launch.

An expression is evaluated by Python on tiles. A loop is executed once: what it carries becomes a value
(`Carried`) whose closed form is found afterwards, or an index where each iteration adds the same to it. A
branch that depends on a program's number or on data is executed both ways.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, cast

import numpy as np

from accelopt.algorithm.algorithm import Constant, Position
from accelopt.algorithm.definitions import DefinedOutput
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.loop_results import settled
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.numpy_functions import scalar, select
from accelopt.algorithm.recurrences import closed, factor_and_term
from accelopt.algorithm.rerolling import arguments_of
from accelopt.algorithm.traced_array import (
    NotTraced,
    axes_of_shape,
    digits,
    identity,
    index_value,
    is_float,
    row_major,
)
from accelopt.algorithm.value_nodes import NEUTRAL, Application, Carried, Choice, Element, Value
from accelopt.algorithm.values import Values
from accelopt.kernels.triton.lift.kernel_trace import KernelTrace, Tile
from accelopt.kernels.triton.lift.memory import Buffer, Write, applied, content, where_is, written
from accelopt.kernels.triton.lift.tiles import BlockPointer, Pointer

MOST_UNROLLED = 32
"""Iterations of a loop without a closed form that are executed one by one."""
LEAST_STAGED = 3
"""Iterations from which on what such a loop carries is an array of its own after each."""
FIRST_STAGE = 10_000
"""The number of the first such array, among the inputs."""
FARTHEST = 1 << 40
"""The most that an integer which a loop carries is followed to."""


@dataclass(frozen=True)
class Range:
    """`range`, `tl.range` and `tl.static_range` of numbers or scalars."""

    start: Any
    stop: Any
    step: int
    static: bool = False


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


@dataclass
class Returned:
    """The end of a function, or of an iteration by `continue`."""

    value: Any = None


class Execution:
    """All launches of one host function."""

    def __init__(self, trace: KernelTrace) -> None:
        self.trace = trace
        self.values = trace.values
        self.records: dict[tuple[int, ...], LoopRecord] = {}
        self.buffers: list[Buffer] = []
        self.launches = 0
        self.grid: tuple[Axis, ...] | None = None
        self.programs: tuple[int, ...] = ()
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

    # Launches and functions.

    def launch(
        self, function: Callable[..., Any], grid: Sequence[int], given: Mapping[str, Any]
    ) -> None:
        """All programs of a launch."""
        if self.grid is not None:
            self.trace.refuse("a kernel launches another one")
        self.launches += 1
        axes = tuple(Axis(f"p{self.launches}_{n}", int(e)) for n, e in enumerate(grid))
        self.programs = tuple(int(e) for e in grid)
        if any(e < 1 for e in self.programs):
            return
        self.grid = tuple(axis for axis in axes if axis.extent > 1)
        self.reads, self.begun = [], {b: len(b.writes) for b in self.buffers}
        try:
            self.call(function, given)
        finally:
            self.grid = None

    def program_id(self, axis: int) -> Tile:
        """tl.program_id."""
        extent = self.programs[axis] if axis < len(self.programs) else 1
        index = index_of(Axis(f"p{self.launches}_{axis}", extent)) if extent > 1 else Index()
        return self.scalar(index)

    def scalar(self, index: Index | int, dtype: Any = np.int32) -> Tile:
        """A scalar integer."""
        made = index if isinstance(index, Index) else Index(index)
        return self.trace.array((), dtype, self.values.position(made))

    def call(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        """Executes the body of a function with these parameters."""
        names = dict(function.__globals__)
        closure = inspect.getclosurevars(function)
        names |= {**closure.nonlocals, **self._builtins(), **given}
        self.trace.files.add(function.__code__.co_filename)
        ended = Block(self, names).run(_body(function))
        return ended.value if ended is not None else None

    def _builtins(self) -> dict[str, Any]:
        def extreme(name: str) -> Callable[..., Any]:
            def made(*given: Any) -> Any:
                if any(isinstance(g, Tile) for g in given):
                    return functools.reduce(getattr(np, f"{name}imum"), given)
                return getattr(builtins, name)(*given)

            return made

        return {
            "range": self.range_of, "min": extreme("min"), "max": extreme("max"),
            "__both": _both(np.logical_and, False), "__either": _both(np.logical_or, True),
            "__not": lambda x: np.logical_not(x) if isinstance(x, Tile) else not x,
            "__chosen": self._chosen,
        }  # fmt: skip

    def _chosen(self, test: Any, on_true: Callable[[], Any], on_false: Callable[[], Any]) -> Any:
        known = self.known(test)
        if known is not None:
            return on_true() if known else on_false()
        return self.merged(self.truth(test), on_true(), on_false())

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
        leaves = [_leaves(self.trace, one) for one in (on_true, on_false)]
        base = [_memory(one) for one in (on_true, on_false)]
        if leaves[0] and leaves[1] and len(leaves[0]) == len(leaves[1]) and base[0] is base[1]:
            made: list[Tile] = []
            for one, other in zip(*leaves, strict=True):
                shape = np.broadcast_shapes(one.shape, other.shape)
                pair = (one.broadcast(shape).value, other.broadcast(shape).value)
                dtype = np.result_type(one.dtype, other.dtype)
                made.append(self.trace.array(shape, dtype, select(self.trace, truth, *pair)))
            return _rebuilt(on_true, made)
        try:
            if on_true == on_false:
                return on_true
        except Exception:
            pass
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

    def write(
        self, pointer: Pointer, address: Index, value: Value, mask: Value, combiner: str,
        numbers: Mapping[Axis, Value],
    ) -> None:  # fmt: skip
        """Notes a store of a tile, whose axes are d0, d1, ..., at an address of those and of axes that
        are `numbers`."""
        grid = self.grid or ()
        tile = tuple(a for a in axes_of_shape(pointer.shape) if a.extent > 1)
        names = {a: index_of(written(a)) for a in (*tile, *self.loops, *grid)}
        value, mask = (self.values.substitute(v, names) for v in (value, self.guarded(mask)))
        if mask == Constant(0.0):
            return
        found = tuple((a, self.values.substitute(v, names)) for a, v in numbers.items())
        tiles, loops, programs = (tuple(map(written, group)) for group in (tile, self.loops, grid))
        pointer.buffer.writes.append(
            Write(address.substitute(names), value, mask, tiles, loops, programs, pointer.radix, combiner,
                  self.trace.line(), found)
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
        element = Element(name, number, tile.dtype.name, row_major(indices, shape))
        return self.trace.array(tile.shape, tile.dtype, self.values.same(element))

    def names(self) -> int:
        """A number that nothing else has."""
        self._names += 1
        return self._names


def _both(function: Any, ends: bool) -> Callable[..., Any]:
    def made(first: Any, *later: Callable[[], Any]) -> Any:
        found = first
        for other in later:
            if not isinstance(found, Tile):
                if bool(found) == ends:
                    return found
                found = other()
                continue
            if isinstance(found.value, Constant) and bool(found.value.value) == ends:
                return found
            found = function(found, other())
        return found

    return made


class _Expressions(ast.NodeTransformer):
    """`and`, `or`, `not` and conditional expressions as calls; `x += y` makes a new tile."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "__both" if isinstance(node.op, ast.And) else "__either"
        later = [_delayed(value) for value in node.values[1:]]
        return ast.copy_location(_call(name, [node.values[0], *later]), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        found = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.copy_location(ast.Assign([node.target], found), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(_call("__not", [node.operand]), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        parts = [node.test, _delayed(node.body), _delayed(node.orelse)]
        return ast.copy_location(_call("__chosen", parts), node)


def _call(name: str, arguments: list[Any]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _delayed(value: ast.expr) -> ast.Lambda:
    none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(none, value)


@functools.lru_cache(maxsize=512)
def _body(function: Callable[..., Any]) -> tuple[ast.stmt, ...]:
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    made = ast.fix_missing_locations(_Expressions().visit(tree)).body[0]
    for node in ast.walk(made):
        node.file = function.__code__.co_filename  # type: ignore[attr-defined]
    return tuple(made.body)


@functools.lru_cache(maxsize=8192)
def _compiled(node: ast.AST) -> CodeType:
    file = getattr(node, "file", "")
    if isinstance(node, ast.expr):
        return compile(ast.fix_missing_locations(ast.Expression(node)), file, "eval")
    if isinstance(node, ast.AnnAssign):
        value = node.value or ast.Constant(None)
        node = ast.copy_location(ast.Assign([node.target], value), node)
    module = ast.Module([cast(ast.stmt, node)], [])
    return compile(ast.fix_missing_locations(module), file, "exec")


def _stored(nodes: Sequence[ast.stmt]) -> list[str]:
    """The variables that statements assign."""
    found = dict[str, None]()
    for node in (part for statement in nodes for part in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
    return list(found)


def _has(nodes: Sequence[ast.stmt], *kinds: type) -> bool:
    return any(isinstance(part, kinds) for node in nodes for part in ast.walk(node))


class Block:
    """The variables of one function, and how its statements change them."""

    def __init__(self, execution: Execution, names: dict[str, Any]) -> None:
        self.execution = execution
        self.trace = execution.trace
        self.values = execution.values
        self.names = names
        self.line = ("", 0)

    def run(self, body: Sequence[ast.stmt]) -> Returned | None:
        """Executes statements; what ends the function, where they do."""
        for number, node in enumerate(body):
            self.line = (getattr(node, "file", ""), node.lineno)
            if isinstance(node, (ast.Return, ast.Continue)):
                value = node.value if isinstance(node, ast.Return) else None
                return Returned(self.value(value) if value is not None else None)
            if isinstance(node, ast.If):
                ended = self._branch(node, body[number + 1 :])
                if ended is not None:
                    return ended
            elif isinstance(node, ast.For):
                if _has(node.body, ast.Return):
                    self.trace.refuse_at(self.line, "a loop ends by `return`")
                self._for(node)
            elif isinstance(node, ast.While):
                self._while(node)
            elif isinstance(node, ast.Assert):
                if self.execution.known(self.value(node.test)) is False:
                    self.trace.refuse_at(self.line, "an assertion of the kernel does not hold")
            elif isinstance(node, ast.Break):
                self.trace.refuse_at(self.line, "a loop ends by `break`")
            else:
                self._check(node)
                exec(_compiled(node), self.names)
        return None

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        self._check(node)
        return eval(_compiled(node), self.names)

    def _check(self, node: ast.AST) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                held = self.names.get(part.id)
                if isinstance(held, Unknown):
                    self.trace.refuse_at(held.line, held.reason)

    # Branches.

    def _branch(self, node: ast.If, rest: Sequence[ast.stmt]) -> Returned | None:
        test = self.value(node.test)
        known = self.execution.known(test)
        ends = _has([*node.body, *node.orelse], ast.Return, ast.Continue)
        after = list(rest) if ends else []
        if known is not None:
            ended = self.run([*(node.body if known else node.orelse), *after])
            return ended or (Returned() if ends else None)
        truth = self.execution.truth(test)
        otherwise = select(self.trace, truth, self.values.number(0), self.values.number(1))
        before, outcomes = dict(self.names), []
        for body, guard in ((node.body, truth), (node.orelse, otherwise)):
            self.names.clear()
            self.names.update(before)
            marks = {buffer: len(buffer.writes) for buffer in self.execution.buffers}
            with self.execution.under(guard):
                outcomes.append((self.run([*body, *after]), dict(self.names)))
            if guard is truth:  # what one branch writes, the other does not see
                aside = [(b, n, b.writes[n:]) for b, n in marks.items()]
                for buffer, n, _ in aside:
                    del buffer.writes[n:]
        for buffer, n, writes in aside:
            buffer.writes[n:n] = writes
        (yes, names), (no, others) = outcomes
        self.names.clear()
        for name in {**names, **others}:
            if name in names and name in others:
                self.names[name] = self.execution.merged(truth, names[name], others[name])
            else:
                self.names[name] = names.get(name, others.get(name))
        if not ends:
            return None
        one_value, other = (r.value if r is not None else None for r in (yes, no))
        return Returned(self.execution.merged(truth, one_value, other))

    # Loops.

    def _while(self, node: ast.While) -> None:
        for _ in range(MOST_UNROLLED * 64):
            known = self.execution.known(self.value(node.test))
            if known is None:
                self.trace.refuse_at(
                    self.line, "how often a `while` loop runs is only known at run time"
                )
            if not known:
                return
            if self.run(node.body) is not None:
                self.trace.refuse_at(self.line, "a loop ends by `return`")
        self.trace.refuse_at(self.line, "a `while` loop does not end")

    def _for(self, node: ast.For) -> None:
        over = self.value(node.iter)
        if not isinstance(over, Range):
            for item in over:
                self._iteration(node, item)
            return
        starts, stops = self._ends(over.start, "maximum"), self._ends(over.stop, "minimum")
        first = [index for index in map(index_value, starts) if index is not None]
        last = [index for index in map(index_value, stops) if index is not None]
        if len(first) < len(starts) or (over.step < 0 and len(last) < len(stops)):
            self.trace.refuse_at(self.line, "where this loop begins is only known at run time")
        if len(last) == len(stops) and not any(index.terms for index in (*first, *last)):
            trips = range(max(i.constant for i in first), min(i.constant for i in last), over.step)
            if over.static or len(trips) <= 1:
                for item in trips:
                    self._iteration(node, item if over.static else self.execution.scalar(item))
                return
        start = self._start(first, over.step)
        lower = [s * -1 for s in first if s is not start and (s - start).bounds[1] > 0]
        upper = [s - 1 for s in last]
        if over.step < 0:
            lower, upper = [s * -1 - 1 for s in last], []
        ends = [-(-(stop - start).bounds[over.step > 0] // over.step) for stop in last]
        tests = [stop for stop in stops if index_value(stop) is None]

        def held(index: Index) -> Value:
            values = self.values
            one, zero = values.number(1), values.number(0)
            place = values.position(index)
            for test in tests:
                less = scalar(self.trace, "less", [place, test], True)
                one = select(self.trace, less, one, zero)
            return values.where(
                [*(index + a for a in lower), *(a - index for a in upper)], one, zero
            )

        extent = min(ends) if ends else self._reach(node, start, over.step)
        if extent > 0:
            self._symbolic_or_unrolled(node, start, over.step, extent, held)

    def _reach(self, node: ast.For, start: Index, step: int) -> int:
        """How often a loop runs at most whose end is a number of an input: no longer than what it loads
        is in memory."""
        axis, execution, names = Axis("?reach", FARTHEST), self.execution, dict(self.names)
        marks = {buffer: len(buffer.writes) for buffer in execution.buffers}
        reads = len(execution.reads)
        line, most = self.line, FARTHEST
        self._iteration(node, execution.scalar(start + index_of(axis) * step))
        for buffer, address in execution.reads[reads:]:
            low, high = 0, most
            while low < high:
                middle = (low + high) // 2
                inside = address.substitute({axis: Index(middle)}).bounds[0] < buffer.size
                low, high = (middle + 1, high) if inside else (low, middle)
            most = low
        self.names.clear()
        self.names.update(names)
        self.restore(marks, reads)
        if most == FARTHEST:
            self.trace.refuse_at(line, "how often this loop runs is only known at run time")
        return most

    def _start(self, starts: list[Index], step: int) -> Index:
        """The least of several starts, from which on all others are multiples of the step away."""
        for start in starts:
            apart = [other - start for other in starts]
            whole = all(not (a.constant % step or any(c % step for _, c in a.terms)) for a in apart)
            if whole and (not start.terms or len(starts) == 1):
                return start
        return self.trace.refuse_at(self.line, "where this loop begins is no multiple of its step away "
                                    "from a number")  # fmt: skip

    def _ends(self, given: Any, function: str) -> list[Value]:
        value = self.trace.traced(given).reshape(()).value
        return arguments_of(value, function)

    def _iteration(self, node: ast.For, item: Any) -> None:
        assert isinstance(node.target, ast.Name)
        self.names[node.target.id] = item
        self.run(node.body)

    def _symbolic_or_unrolled(
        self, node: ast.For, start: Index, step: int, extent: int, held_at: Callable[[Index], Value]
    ) -> None:
        """`held_at` says whether there is an iteration with an index."""
        execution, line = self.execution, self.line
        names = dict(self.names)
        marks = {buffer: len(buffer.writes) for buffer in execution.buffers}
        reads = len(execution.reads)
        try:
            _Loop(self, node, start, step, extent, held_at).execute()
        except NotTraced:
            if extent > MOST_UNROLLED:
                raise
            self.names.clear()
            self.names.update(names)
            self.restore(marks, reads)
            for number in range(extent):
                self.line = line
                index = start + number * step
                held = held_at(index)
                if held == Constant(0.0):
                    continue
                before = dict(self.names)
                with execution.under(held if held != Constant(1.0) else None):
                    self._iteration(node, execution.scalar(index))
                if held != Constant(1.0):
                    for name in _stored(node.body):
                        if name in before:
                            self.names[name] = execution.merged(
                                held, self.names[name], before[name]
                            )
                for name in _stored(node.body) if extent >= LEAST_STAGED else ():
                    tile = self.names.get(name)
                    if name in names and isinstance(tile, Tile) and is_float(tile.dtype):
                        self.names[name] = execution.staged(tile)

    def restore(self, marks: Mapping[Buffer, int], reads: int) -> None:
        """Takes back what was stored since."""
        for buffer in self.execution.buffers:
            del buffer.writes[marks.get(buffer, 0) :]
        del self.execution.reads[reads:]


class _Loop:
    """One loop that is executed once for all its iterations."""

    def __init__(
        self, block: Block, node: ast.For, start: Index, step: int, extent: int,
        held_at: Callable[[Index], Value],
    ) -> None:  # fmt: skip
        self.block, self.node = block, node
        self.execution, self.values, self.trace = block.execution, block.values, block.trace
        self.start, self.step = start, step
        self.axis = Axis(f"i{self.execution.names()}", extent)
        self.path = (self.execution.names(),)
        around = (*(self.execution.grid or ()), *self.execution.loops)
        self.record = LoopRecord(self.axis, around, block.line)
        self.execution.records[self.path] = self.record
        self.held = held_at(self.index)
        self.always = self.held == Constant(1.0)
        self.numbers: dict[str, int] = {}
        self.marks: dict[Buffer, int] = {}
        self.reads = 0

    @property
    def index(self) -> Index:
        """The loop's variable."""
        return self.start + (index_of(self.axis) * self.step if self.axis.extent > 1 else 0)

    def execute(self) -> None:
        """Leaves in the block's names what they are after the loop."""
        names = self.block.names
        assigned = _stored(self.node.body)
        before = dict(names)
        carried = {n: _leaves(self.trace, names[n]) for n in assigned if n in names}
        initial = {n: leaves for n, leaves in carried.items() if leaves is not None}
        steps = self._inductions(initial, before)
        for _ in range(3):
            started = self._started(initial, steps)
            ended = self._body(started, before)
            shapes = {n: [leaf.shape for leaf in leaves] for n, leaves in initial.items()}
            grown = {n: [leaf.shape for leaf in ended[n]] for n in initial if n in ended}
            if all(shapes[n] == grown[n] for n in grown):
                break
            self.block.restore(self.marks, self.reads)
            for n, leaves in initial.items():
                initial[n] = [
                    cast(Tile, leaf.broadcast(np.broadcast_shapes(leaf.shape, shape)))
                    for leaf, shape in zip(leaves, grown.get(n, shapes[n]), strict=True)
                ]
        self._finish(initial, steps, started, ended, before)

    def _started(
        self, initial: Mapping[str, list[Tile]], steps: Mapping[tuple[str, int], Index]
    ) -> dict[str, list[Tile]]:
        """What the variables hold where an iteration begins."""
        made = dict[str, list[Tile]]()
        for name, leaves in initial.items():
            made[name] = []
            for n, leaf in enumerate(leaves):
                if (name, n) in steps:
                    moved = self._moved(leaf, steps[name, n], index_of(self.axis))
                    made[name].append(moved)
                    continue
                number = self.numbers.setdefault(f"{name} {n}", self.execution.names())
                around = tuple(map(index_of, self.record.around))
                address = row_major(identity(leaf.shape), leaf.shape)
                state = Carried(number, address, self.path, around, index_of(self.axis), leaf.value)
                made[name].append(self.trace.array(leaf.shape, leaf.dtype, self.values.same(state)))
        return made

    def _moved(self, leaf: Tile, step: Index, times: Index) -> Tile:
        """A tile of integers after a number of steps."""
        if step.terms and times.terms:
            self.trace.refuse_at(self.record.line, "what each iteration adds to an address differs by "
                                 "program")  # fmt: skip
        added = times * step.constant if times.terms else step * times.constant
        parts = [(leaf.value, 1.0), (self.values.position(added), 1.0)]
        return self.trace.array(leaf.shape, leaf.dtype, _summed(self.values, parts))

    def _body(
        self, started: Mapping[str, list[Tile]], before: Mapping[str, Any]
    ) -> dict[str, list[Tile]]:
        """What the variables hold where an iteration ends."""
        block, execution = self.block, self.execution
        block.names.clear()
        block.names.update(before)
        for name, leaves in started.items():
            block.names[name] = _rebuilt(before[name], leaves)
        if self.axis.extent > 1:
            execution.loops.append(self.axis)
        self.reads = len(execution.reads)
        self.marks = {buffer: len(buffer.writes) for buffer in execution.buffers}
        try:
            with execution.under(None if self.always else self.held):
                block._iteration(self.node, execution.scalar(self.index))
            self._refuse_overtaking()
        finally:
            if self.axis.extent > 1:
                execution.loops.pop()
        found = {n: _leaves(self.trace, block.names[n]) for n in started}
        return {n: leaves for n, leaves in found.items() if leaves is not None}

    def _refuse_overtaking(self) -> None:
        """Raises NotTraced where an iteration may read, or write again, what an earlier one writes
        further down."""
        for buffer in self.execution.buffers:
            writes = buffer.writes[self.marks.get(buffer, 0) :]
            asked = [(a, None) for b, a in self.execution.reads[self.reads :] if b is buffer]
            for address, own in (*asked, *((w.plain, w) for w in writes if not w.combiner)):
                for write in writes:
                    found = where_is(write, address) if write is not own else None
                    if found is None or (own is not None and write.combiner):
                        continue
                    place = found.axes.get(written(self.axis))
                    if not found.unique or place != index_of(self.axis):
                        self.trace.refuse_at(write.line, "an iteration needs the place where an "
                                             "earlier one may have stored this")  # fmt: skip

    def _inductions(
        self, initial: Mapping[str, list[Tile]], before: Mapping[str, Any]
    ) -> dict[tuple[str, int], Index]:
        """The integers to which each iteration adds the same, and what that is."""
        wanted = [(n, k) for n, leaves in initial.items() for k, leaf in enumerate(leaves)
                  if not is_float(leaf.dtype) and leaf.dtype.kind != "b"]  # fmt: skip
        if not wanted:
            return {}
        started = self._started(initial, {})
        probes = {Axis(f"?s{k}", FARTHEST): key for k, key in enumerate(wanted)}
        for probe, (name, n) in probes.items():
            leaf = initial[name][n]
            parts = [(leaf.value, 1.0), (self.values.position(index_of(probe)), 1.0)]
            started[name][n] = self.trace.array(leaf.shape, leaf.dtype, _summed(self.values, parts))
        try:
            ended = self._body(started, before)
        except NotTraced:
            ended = {
                name: leaves
                for name in initial
                if (leaves := _leaves(self.trace, self.block.names.get(name))) is not None
            }
        self.block.restore(self.marks, self.reads)
        found = dict[tuple[str, int], Index]()
        for name, n in probes.values():
            if name not in ended or ended[name][n].shape != initial[name][n].shape:
                continue
            pair = [(ended[name][n].value, 1.0), (started[name][n].value, -1.0)]
            step = index_value(_summed(self.values, pair))
            own = {*probes, self.axis, *axes_of_shape(initial[name][n].shape)}
            if step is not None and not step.axes & own:
                found[name, n] = step
        return found

    # What is left.

    def _finish(
        self, initial: dict[str, list[Tile]], steps: Mapping[tuple[str, int], Index],
        started: Mapping[str, list[Tile]], ended: Mapping[str, list[Tile]], before: Mapping[str, Any],
    ) -> None:  # fmt: skip
        names = self.block.names
        states = [(n, k) for n, leaves in initial.items() for k in range(len(leaves))
                  if (n, k) not in steps and n in ended]  # fmt: skip
        owns = {key: started[key[0]][key[1]].value for key in states}
        left = {key: ended[key[0]][key[1]].value for key in states}
        if not self.always:
            left = self._under_conditions(owns, left)
        for (name, k), value in left.items():
            shape = initial[name][k].shape
            self.record.left[self.numbers[f"{name} {k}"]] = (shape, value)
        around = tuple(map(index_of, self.record.around))
        for name in _stored(self.node.body):
            if name not in initial or name not in ended:
                names[name] = self._last(names.get(name), name in before)
                continue
            after: list[Tile] = []
            try:
                for k, leaf in enumerate(initial[name]):
                    if (name, k) in steps:
                        after.append(self._moved(leaf, steps[name, k], self._count()))
                        continue
                    number = self.numbers[f"{name} {k}"]
                    address = row_major(identity(leaf.shape), leaf.shape)
                    value = closed(self.execution, number, address, self.path, around)
                    after.append(self.trace.array(leaf.shape, ended[name][k].dtype, value))
            except NotTraced as refusal:
                names[name] = Unknown(refusal.reason, (refusal.path, refusal.line))
                if self.axis.extent <= MOST_UNROLLED:
                    raise
                continue
            names[name] = _rebuilt(before[name], after)
        assert isinstance(self.node.target, ast.Name)
        names[self.node.target.id] = Unknown("a loop's variable after the loop", self.record.line)

    def _count(self) -> Index:
        """How many iterations there are."""
        if self.always:
            return Index(self.axis.extent)
        if isinstance(self.held, Choice) and len(self.held.conditions) == 1 and self.step > 0:
            (condition,) = self.held.conditions  # stop - 1 - index >= 0
            count = (condition + index_of(self.axis) * self.step) // self.step + 1
            exact = (self.held.on_true, self.held.on_false) == (Constant(1.0), Constant(0.0))
            if exact and self.axis not in count.axes and count.bounds[0] >= 0:
                return count
        raise NotTraced("how often this loop runs is no number here", *self.record.line)

    def _last(self, held: Any, existed: bool) -> Any:
        """A variable of the last iteration."""
        leaves = _leaves(self.trace, held)
        if leaves is None or not self.always or existed:
            return held if leaves is None else Unknown("a loop leaves it", self.record.line)
        last = {self.axis: Index(self.axis.extent - 1)}
        made: list[Tile] = []
        for leaf in leaves:
            value = settled(cast(Any, self.execution), self.values.substitute(leaf.value, last))
            if any(part.loop == self.path for part in self.values.carried(value)):
                return Unknown("what the last iteration leaves has no form", self.record.line)
            made.append(self.trace.array(leaf.shape, leaf.dtype, value))
        return _rebuilt(held, made)

    def _under_conditions(
        self, owns: Mapping[tuple[str, int], Value], left: dict[tuple[str, int], Value]
    ) -> dict[tuple[str, int], Value]:
        """What an iteration leaves that is one only where conditions hold: extremes and sums go on with
        what changes nothing, so that they have the form of a loop without conditions."""
        values = self.values

        def where(value: Value, otherwise: Value) -> Value:
            return select(self.trace, self.held, value, otherwise)

        replaced: list[tuple[Value, Value, Value]] = []
        for key, value in left.items():
            own = owns[key]
            if isinstance(value, Application) and value.function in ("maximum", "minimum"):
                others = [a for a in arguments_of(value, value.function) if a != own]
                if len(others) < len(arguments_of(value, value.function)):
                    neutral = values.number(NEUTRAL[value.function])
                    parts = [where(other, neutral) for other in others]
                    whole: Value = own
                    for part in parts:
                        whole = apply(values, value.function, [whole, part])
                    replaced.append((value, whole, own))
        found = dict[tuple[str, int], Value]()
        for key, value in left.items():
            own = owns[key]
            for old, new, _ in replaced:
                value = values.replace(value, old, new)
            if value == own or any(value == new for _, new, _ in replaced):
                found[key] = value
                continue
            assert isinstance(own, Carried)
            linear = factor_and_term(values, value, own)
            if linear is None or (own not in values.carried(value)):
                found[key] = where(value, own)
                continue
            factor, term = linear
            resting = factor  # where no extreme changes, what online softmax scales by is exp(0)
            for _, new, before in replaced:
                resting = values.replace(resting, new, before)
            if resting not in (Constant(1.0), Application("exp", (Constant(0.0),))):
                factor = where(factor, values.number(1))
            kept = where(term, values.number(0))
            found[key] = values.sum(
                [(values.product([(own, 1.0), (factor, 1.0)]), 1.0), (kept, 1.0)]
            )
        return found


def _summed(values: Values, parts: list[tuple[Value, float]]) -> Value:
    """A sum, as an index where it is one."""
    whole = values.sum(parts)
    index = index_value(whole)
    return whole if index is None else values.position(index)


def _leaves(trace: KernelTrace, held: Any) -> list[Tile] | None:
    """The tiles that a variable is made of; None for what no loop changes."""
    if isinstance(held, Tile):
        return [held]
    if isinstance(held, (bool, int, float)):
        return [cast(Tile, trace.traced(held))]
    if isinstance(held, Pointer):
        return [held.offset]
    if isinstance(held, BlockPointer):
        return [cast(Tile, trace.traced(offset)) for offset in held.offsets]
    if isinstance(held, tuple):
        parts = [_leaves(trace, part) for part in held]
        return None if any(p is None for p in parts) else [x for p in parts if p for x in p]
    return None


def _memory(held: Any) -> Buffer | None:
    """What a pointer points to."""
    pointer = held.base if isinstance(held, BlockPointer) else held
    return pointer.buffer if isinstance(pointer, Pointer) else None


def _rebuilt(held: Any, leaves: list[Tile]) -> Any:
    """A variable made of other tiles."""
    if isinstance(held, Pointer):
        return replace(held, offset=leaves[0])
    if isinstance(held, BlockPointer):
        return replace(held, offsets=tuple(leaves))
    if isinstance(held, tuple):
        made, rest = [], list(leaves)
        for part in held:
            size = len(part.offsets) if isinstance(part, BlockPointer) else 1
            made.append(_rebuilt(part, rest[:size]))
            rest = rest[size:]
        return tuple(made)
    return leaves[0]
