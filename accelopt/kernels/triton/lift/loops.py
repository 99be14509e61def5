"""A loop of a kernel that is executed once for all its iterations."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from accelopt.algorithm.elementwise_functions import select
from accelopt.algorithm.index import Axis, Index, element_number, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.loop_results import settled
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.recurrences import closed, factor_and_term
from accelopt.algorithm.rerolling import arguments_of
from accelopt.algorithm.traced_array import (
    NotTraced,
    axes_of_shape,
    identity,
    index_value,
    is_float,
)
from accelopt.algorithm.value_nodes import NEUTRAL, Application, Carried, Choice, Value
from accelopt.algorithm.values import Values
from accelopt.kernels.triton.lift.execution import (
    Execution,
    LoopRecord,
    Unknown,
    leaves_of,
    rebuilt,
)
from accelopt.kernels.triton.lift.kernel_trace import KernelTrace, Tile
from accelopt.kernels.triton.lift.memory import Buffer, where_is, written

MOST_UNROLLED = 32
"""Iterations of a loop without a closed form that are executed one by one."""
FARTHEST = 1 << 40
"""The most that an integer which a loop carries is followed to."""


class LoopBlock(Protocol):
    """The statements around a loop, as it needs them."""

    execution: Execution
    trace: KernelTrace
    values: Values
    names: dict[str, Any]
    line: tuple[str, int]

    def iterate(self, node: ast.For, item: Any) -> Any:
        """Executes the body once; what ends it, None where that is its last statement."""


class TracedLoop:
    """One loop that is executed once for all its iterations."""

    def __init__(
        self, block: LoopBlock, node: ast.For, start: Index, step: int, extent: int,
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
        assigned = assigned_in(self.node.body)
        before = dict(names)
        carried = {n: leaves_of(self.trace, names[n]) for n in assigned if n in names}
        initial = {n: leaves for n, leaves in carried.items() if leaves is not None}
        steps = self._inductions(initial, before)
        for _ in range(3):
            started = self._started(initial, steps)
            ended = self._body(started, before)
            shapes = {n: [leaf.shape for leaf in leaves] for n, leaves in initial.items()}
            grown = {n: [leaf.shape for leaf in ended[n]] for n in initial if n in ended}
            if all(shapes[n] == grown[n] for n in grown):
                break
            self.execution.restore(self.marks, self.reads)
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
                address = element_number(identity(leaf.shape), leaf.shape)
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
        return self.trace.array(
            leaf.shape, leaf.dtype, self.trace.whole_number(self.values.sum(parts))
        )

    def _body(
        self, started: Mapping[str, list[Tile]], before: Mapping[str, Any]
    ) -> dict[str, list[Tile]]:
        """What the variables hold where an iteration ends."""
        block, execution = self.block, self.execution
        block.names.clear()
        block.names.update(before)
        for name, leaves in started.items():
            block.names[name] = rebuilt(before[name], leaves)
        if self.axis.extent > 1:
            execution.loops.append(self.axis)
        self.reads = len(execution.reads)
        self.marks = execution.marks()
        try:
            with execution.under(None if self.always else self.held):
                ended = block.iterate(self.node, execution.scalar(self.index))
            if ended is not None and ended.by != "continue":
                self.trace.refuse_at(self.record.line, f"a loop ends by `{ended.by}`")
            self._refuse_overtaking()
        finally:
            if self.axis.extent > 1:
                execution.loops.pop()
        found = {n: leaves_of(self.trace, block.names[n]) for n in started}
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
            started[name][n] = self.trace.array(
                leaf.shape, leaf.dtype, self.trace.whole_number(self.values.sum(parts))
            )
        try:
            ended = self._body(started, before)
        except NotTraced:
            ended = {
                name: leaves
                for name in initial
                if (leaves := leaves_of(self.trace, self.block.names.get(name))) is not None
            }
        self.execution.restore(self.marks, self.reads)
        found = dict[tuple[str, int], Index]()
        for name, n in probes.values():
            if name not in ended or ended[name][n].shape != initial[name][n].shape:
                continue
            pair = [(ended[name][n].value, 1.0), (started[name][n].value, -1.0)]
            step = index_value(self.trace.whole_number(self.values.sum(pair)))
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
        lines = assigned_in(self.node.body)
        for name in lines:
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
                    address = element_number(identity(leaf.shape), leaf.shape)
                    value = closed(self.execution, number, address, self.path, around)
                    after.append(self.trace.array(leaf.shape, ended[name][k].dtype, value))
            except NotTraced as refusal:
                names[name] = Unknown(refusal.reason, (refusal.path, refusal.line))
                if self.axis.extent <= MOST_UNROLLED:
                    raise
                continue
            names[name] = rebuilt(before[name], after)
            self.trace.note(names[name], (self.record.line[0], lines[name]))
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
        leaves = leaves_of(self.trace, held)
        if leaves is None or not self.always or existed:
            return held if leaves is None else Unknown("a loop leaves it", self.record.line)
        last = {self.axis: Index(self.axis.extent - 1)}
        made: list[Tile] = []
        for leaf in leaves:
            value = settled(cast(Any, self.execution), self.values.substitute(leaf.value, last))
            if any(part.loop == self.path for part in self.values.carried(value)):
                return Unknown("what the last iteration leaves has no form", self.record.line)
            made.append(self.trace.array(leaf.shape, leaf.dtype, value))
        return rebuilt(held, made)

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


def assigned_in(nodes: Sequence[ast.stmt]) -> dict[str, int]:
    """The variables that statements assign, and the last line that does; where that names another of
    them alone, the line of that."""
    found, same = dict[str, int](), dict[str, str]()
    for node in (part for statement in nodes for part in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = max(node.lineno, found.get(node.id, 0))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            same |= {to.id: node.value.id for to in node.targets if isinstance(to, ast.Name)}
    return found | {name: found[other] for name, other in same.items() if other in found}
