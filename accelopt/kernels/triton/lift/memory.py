"""Global memory of launches: buffers, what programs write there, and what an element holds then.

A write stands for all programs of a launch, all iterations of the loops around it and all elements of a
tile. Who asks for an element solves its address for those axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from accelopt.algorithm.addresses import AxisSolution, solve
from accelopt.algorithm.elementwise_functions import scalar, select
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.linear import row_major
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.traced_array import index_value
from accelopt.algorithm.value_nodes import NEUTRAL, UNDEFINED, Application, Choice, Value
from accelopt.algorithm.values import Values, fresh_axis
from accelopt.kernels.triton.lift.kernel_trace import KernelTrace

LEAST = Constant(-math.inf)
"""What memory holds before maxima are stored there."""


@dataclass(frozen=True)
class Write:
    """What a store or an atomic leaves: `value` at `address` where `mask` holds, over `tile`, `loops` and
    `grid`, and over axes that are `numbers` known at run time. With `combiner` it is combined with what is there. `shape` are digits of its addresses."""

    address: Index
    value: Value
    mask: Value
    tile: tuple[Axis, ...]
    loops: tuple[Axis, ...]
    grid: tuple[Axis, ...]
    shape: tuple[int, ...]
    combiner: str
    line: tuple[str, int]
    numbers: tuple[tuple[Axis, Value], ...] = ()

    @property
    def unknown(self) -> frozenset[Axis]:
        """What an address is solved for."""
        return frozenset((*self.tile, *self.loops, *self.grid, *(a for a, _ in self.numbers)))

    @property
    def plain(self) -> Index:
        """The address in the axes of whoever writes."""
        return self.address.substitute({a: index_of(plain(a)) for a in self.unknown})


@dataclass(eq=False)
class Buffer:
    """Storage of `size` elements. `initial` says what one holds before anything is written."""

    name: str
    size: int
    dtype: np.dtype
    initial: Callable[[Index], Value]
    number: int | None = None
    shape: tuple[int, ...] = ()
    writes: list[Write] = field(default_factory=list)
    changed: bool = False


def written(axis: Axis) -> Axis:
    """The name of a writer's axis in its write, where a reader's axes have the plain one."""
    return Axis(f"?{axis.name}", axis.extent)


def plain(axis: Axis) -> Axis:
    """The axis of whoever writes, by its name in the write."""
    return Axis(axis.name.removeprefix("?"), axis.extent)


def where_is(write: Write, address: Index) -> AxisSolution | None:
    """The place at which a write writes an address; None where it does not."""
    unknown = write.unknown & write.address.axes
    if write.unknown == unknown and write.plain == address:  # masks leave a tile in its own row
        return AxisSolution(axes={a: index_of(plain(a)) for a in unknown})
    found = solve(write.address, unknown, address, write.shape, _facts(write.mask))
    if found is None or found.unique or not write.numbers:
        return found
    # A number is the place that is asked for, less what is added to it in its dimension.
    step = write.address.coefficient(write.numbers[0][0])
    above = min((s for s in row_major(write.shape) if s > step), default=math.prod(write.shape))
    beside = {a for a in unknown if step <= abs(write.address.coefficient(a)) < above}
    rest = unknown - beside | {write.numbers[0][0]}
    return solve(write.address, rest, address, write.shape, _facts(write.mask))


def _facts(mask: Value) -> tuple[Index, ...]:
    """The conditions that a mask is made of."""
    if isinstance(mask, Choice) and mask.on_false == Constant(0.0):
        return (*mask.conditions, *_facts(mask.on_true))
    if isinstance(mask, Choice) and mask.on_true == Constant(0.0) and len(mask.conditions) == 1:
        return (mask.conditions[0] * -1 - 1, *_facts(mask.on_false))
    if isinstance(mask, Application) and mask.function == "select":
        chosen, on_true, on_false = mask.arguments
        return (*_facts(chosen), *_facts(on_true)) if on_false == Constant(0.0) else ()
    return ()


def _only(axis: Axis, facts: Sequence[Index]) -> Index | None:
    """The number that conditions leave for an axis, where it is one."""
    low, high = 0, axis.extent - 1
    for fact in facts:
        factor = fact.coefficient(axis) if fact.axes == {axis} and fact.is_affine else 0
        if factor > 0:
            low = max(low, -(fact.constant // factor))
        elif factor < 0:
            high = min(high, fact.constant // -factor)
    return Index(low) if low == high else None


def content(trace: KernelTrace, buffer: Buffer, address: Index) -> Value:
    """What an element of a buffer holds after all that was written so far. Raises NotTraced."""
    value = buffer.initial(address)
    for write in buffer.writes:
        solution = where_is(write, address)
        if solution is not None:
            value = applied(trace, write, solution, value)
    return value


def applied(trace: KernelTrace, write: Write, solution: AxisSolution, before: Value) -> Value:
    """What an element holds after a write that `solution` says where it is made."""
    values = trace.values
    if not solution.unique or any(axis not in solution.axes for axis, _ in write.numbers):
        trace.refuse_at(write.line, "it writes some elements several times")
    place = {a: i for a, i in solution.axes.items() if a in write.unknown}
    mask, value = write.mask, write.value
    for axis, number in write.numbers:  # written where the number is the place that is asked for
        here = values.position(place.pop(axis))
        same = scalar(trace, "equal", [number, here], True)
        mask = select(trace, same, mask, values.number(0))
    mask, value = (values.substitute(v, place) for v in (mask, value))
    free = sorted(write.unknown - place.keys() - {a for a, _ in write.numbers})
    fixed = {axis: only for axis in free if (only := _only(axis, _facts(mask))) is not None}
    mask, value = (values.substitute(v, fixed) for v in (mask, value))
    conditions = [*solution.ranges, *solution.conditions]
    combiner = write.combiner
    if write.numbers and not combiner:  # one of all that may be the place is
        combiner = {UNDEFINED: "add", Constant(0.0): "add", LEAST: "maximum"}.get(before, "")
        before = values.number(0) if before is UNDEFINED and combiner else before
    if combiner:
        neutral = values.number(NEUTRAL[combiner])
        body = values.where(conditions, select(trace, mask, value, neutral), neutral)
        reduced: list[Axis] = []
        for axis in free:
            bound = fresh_axis(axis.extent, {*values.axes(body), *reduced})
            body = values.substitute(body, {axis: index_of(bound)})
            reduced.append(bound)
        return apply(values, combiner, [before, fold(values, combiner, reduced, body)])
    rising = [axis for axis in free if axis in write.loops and axis in values.axes(mask)]
    if len(rising) == 1 and _rises(value, rising[0]):
        return _last_of(values, trace, rising[0], conditions, (mask, value), before)
    for axis in free:
        if axis not in values.axes(value) | values.axes(mask):
            continue
        if axis not in write.loops or axis in values.axes(mask):
            trace.refuse_at(write.line, "several programs or iterations write the same elements")
        value = values.substitute(value, {axis: Index(axis.extent - 1)})
    if before is UNDEFINED:  # what is read of it is taken to be written
        return values.where(conditions, value, before)
    return values.where(conditions, select(trace, mask, value, before), before)


def _rises(value: Value, axis: Axis) -> bool:
    """Whether a value is a whole number that is greater in each next iteration."""
    index = index_value(value)
    return index is not None and index.is_affine and index.coefficient(axis) > 0


def _last_of(
    values: Values, trace: KernelTrace, axis: Axis, conditions: Sequence[Index],
    written: tuple[Value, Value], before: Value,
) -> Value:  # fmt: skip
    """What the last iteration writes of those whose mask holds, each a greater number than the one before."""
    bound = fresh_axis(axis.extent, {a for one in written for a in values.axes(one)})
    mask, value = (values.substitute(one, {axis: index_of(bound)}) for one in written)
    mask = values.where(conditions, mask, values.number(0))
    last = fold(values, "maximum", [bound], select(trace, mask, value, LEAST))
    if before is UNDEFINED:  # what is read of it is taken to be written
        return last
    return select(trace, fold(values, "maximum", [bound], mask), last, before)


def radix(size: int, strides: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """The shape whose row-major strides are those of a view of a buffer, where they are such."""
    pairs = {s for s, e in zip(strides, extents, strict=True) if s > 1 and e > 1}
    above, shape = size, []
    for stride in sorted(pairs, reverse=True):
        if above % stride:
            return (size,)
        shape.append(above // stride)
        above = stride
    return (*shape, above)
