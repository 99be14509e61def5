"""The meaning of each opcode: the value of one element of an instruction's result.

As `accelopt.sim.compute` computes it, but in real numbers: what is left of formats are roundings to
narrower ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from accelopt.kernels.nki.lift.addresses import index_from
from accelopt.kernels.nki.lift.algorithm import Constant, Position
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.functions import FUNCTIONS
from accelopt.kernels.nki.lift.index import Axis, Index, index_of
from accelopt.kernels.nki.lift.nodes import (
    NEUTRAL,
    Call,
    Carried,
    Chain,
    Choice,
    Element,
    Fold,
    Product,
    Sum,
    Value,
)
from accelopt.kernels.nki.lift.normal_forms import apply
from accelopt.kernels.nki.lift.reductions import fold
from accelopt.kernels.nki.lift.values import fresh_axis
from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.mask import Mask
from accelopt.sim.operators import COMPARISONS
from accelopt.sim.program import Instruction

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.reaching import Place, Reaching

_BY_DATA = frozenset(("tensor_reduce", "partition_reduce", "bn_stats", "bn_aggr"))
"""Opcodes whose mask excludes elements of what they read, not of what they write."""


def written_where(
    instruction: Instruction, variables: Mapping[LoopVariable, Index], coordinates: Sequence[Index]
) -> list[Index]:
    """The conditions (each >= 0) under which an instruction writes an element of its result."""
    if instruction.opcode in _BY_DATA:
        return []
    masks = instruction.mask.constraints + instruction.result.mask.constraints
    return [index_from(c, variables, coordinates) for c in masks]


def meaning(
    reaching: Reaching,
    instruction: Instruction,
    output: str,
    coordinates: tuple[Index, ...],
    place: Place,
) -> Value:
    """The value of the element at `coordinates` of an output. Raises NotLifted."""
    site = Site(reaching, instruction, coordinates, place)
    if output == "reduce_result":
        return site.stored(_register(site), instruction.outputs[output])
    found = _MEANINGS.get(instruction.opcode)
    if output != "result" or found is None:
        raise site.refusal(_WHY.get(instruction.opcode, f"{instruction.opcode} has no algorithm"))
    value = found(site)
    return value if instruction.opcode == "dma_copy" and site.same_format() else site.stored(
        value, instruction.result)  # fmt: skip


_WHY = {
    "gather": "it gathers by indices that are only known at run time",
    "local_gather": "it gathers by indices that are only known at run time",
    "max8": "it sorts: the eight largest elements are no reduction",
    "find_index8": "it searches for the positions of values",
    "match_replace8": "it searches for values and replaces them",
    "sequence_bounds": "it searches for the ends of segments",
    "random": "it draws random numbers",
    "dropout": "it draws random numbers",
    "stream_shuffle": "it shuffles partitions by a table",
}


class Site(NamedTuple):
    """One element of one execution of an instruction."""

    reaching: Reaching
    instruction: Instruction
    coordinates: tuple[Index, ...]
    place: Place

    def refusal(self, reason: str) -> NotLifted:
        """What to raise."""
        return NotLifted(reason, self.instruction.source)

    def same_format(self) -> bool:
        """True where a copy keeps the format."""
        return self.instruction.inputs["source"].dtype == self.instruction.result.dtype

    def text(self, name: str) -> str:
        """An attribute that is a word; empty when absent."""
        value = self.instruction.attributes.get(name)
        return "" if value is None else str(value)

    def indexed(self, expression: Affine, coordinates: Sequence[Index]) -> Index:
        """An affine expression of the loops around and of some axes."""
        return index_from(expression, self.reaching.variables(self.place), coordinates)

    def taken(self) -> list[Axis]:
        """Every axis that stands in the element's coordinates."""
        return [a for i in (*self.coordinates, *self.place.trips) for a in i.axes]

    def fresh(self, extents: Sequence[int]) -> list[Axis]:
        """Axes to reduce over."""
        axes: list[Axis] = []
        for extent in extents:
            axes.append(fresh_axis(extent, [*self.taken(), *axes]))
        return axes

    def read(self, access: Access, coordinates: Sequence[Index]) -> Value:
        """An element of an operand."""
        return self.reaching.read(access, coordinates, self.place)

    def old(self) -> Value:
        """What the element of the result holds before."""
        return self.read(self.instruction.result, self.coordinates)

    def operand(self, name: str) -> Value:
        """The element of a tile (or the number) that belongs to the element of the result."""
        access = self.instruction.inputs.get(name)
        if access is None:
            value = self.instruction.attributes.get(name)
            if not isinstance(value, (int, float)):
                raise self.refusal(f"its operand {name} is missing")
            return self.reaching.values.number(float(str(np.float32(value))))  # as it was meant
        return self.read(access, self.fitted(access))

    def fitted(self, access: Access) -> list[Index]:
        """The result's coordinates as those of an operand, which may lack free axes or group its
        elements differently."""
        shape, result = access.shape, self.instruction.result.shape
        own = list(self.coordinates)
        if len(shape) != len(result) and math.prod(shape) == math.prod(result):
            return _reshaped(own, result, shape)
        if len(shape) < len(result):
            own = own[: len(shape)]
        elif len(shape) > len(result):
            own = [Index()] * (len(shape) - len(result)) + own
        return [i if extent > 1 else Index() for i, extent in zip(own, shape, strict=True)]

    def stored(self, value: Value, access: Access) -> Value:
        """A value as it is after it was rounded to the result's format."""
        name = self.instruction.attributes.get("dtype")
        main = access is self.instruction.outputs.get("result")
        if main and isinstance(name, str):
            value = self._rounded(value, dtypes.parse(name))
        return self._rounded(value, access.dtype)

    def _rounded(self, value: Value, dtype: np.dtype) -> Value:
        if dtype == dtypes.FLOAT32 or _is_exact(value, dtype):
            return value
        name = dtypes.name_of(dtype)
        values = self.reaching.values
        if isinstance(value, Constant):
            stored = dtypes.convert(np.asarray(value.value, np.float32), dtype)
            return values.number(float(stored))
        if isinstance(value, Choice):
            parts = (self._rounded(value.on_true, dtype), self._rounded(value.on_false, dtype))
            return values.where(value.conditions, *parts)
        if not dtypes.is_float(dtype) or name not in FUNCTIONS:
            raise self.refusal(f"it converts to {name}, which real numbers have no counterpart for")
        return values.same(Call(name, (value,)))


def _is_exact(value: Value, dtype: np.dtype) -> bool:
    """True where a value is a number of a format for certain."""
    name = dtypes.name_of(dtype)
    if isinstance(value, Element):
        return dtypes.promote(dtypes.parse(value.dtype), dtype) == dtype and (
            dtypes.is_float(dtype) or value.dtype == name
        )
    if isinstance(value, Position):
        return dtypes.is_integer(dtype) or value.index.bounds[1] <= 256
    if isinstance(value, Sum):
        whole = value.constant == int(value.constant) and all(c == int(c) for _, c in value.terms)
        return (
            whole and dtypes.is_integer(dtype) and all(_is_exact(t, dtype) for t, _ in value.terms)
        )
    if isinstance(value, Call):
        return value.function == name or value.function in COMPARISONS
    if isinstance(value, Carried):
        return True  # rounded where it is written
    if isinstance(value, Constant):
        return bool(
            float(dtypes.convert(np.asarray(value.value, np.float32), dtype)) == value.value
        )
    return False


def _reshaped(
    coordinates: Sequence[Index], shape: Sequence[int], other: Sequence[int]
) -> list[Index]:
    """The coordinates that a row-major element has in another shape."""
    number = Index()
    for coordinate, extent in zip(coordinates, shape, strict=True):
        number = number * extent + coordinate
    result: list[Index] = []
    for extent in reversed(other):
        result.append(number % extent)
        number = number // extent
    return result[::-1]


# Data movement.


def _dma_copy(site: Site) -> Value:
    value = site.operand("source")
    accumulate = site.text("accumulate")
    if not accumulate:
        return value
    return apply(site.reaching.values, accumulate, [site.old(), value])


def _copy(site: Site) -> Value:
    return site.operand("data")


def _memset(site: Site) -> Value:
    return site.operand("value")


def _transpose(site: Site) -> Value:
    data = site.instruction.inputs["data"]
    free, result = data.shape[1:], site.instruction.result.shape
    row, column = _reshaped(site.coordinates, result, (math.prod(free), data.shape[0]))
    return site.read(data, [column, *_reshaped([row], [math.prod(free)], free)])


def _copy_predicated(site: Site) -> Value:
    values = site.reaching.values
    predicate, source, old = site.operand("predicate"), site.operand("source"), site.old()
    if site.instruction.attributes.get("reverse"):
        source, old = old, source
    return apply(values, "select", [predicate, source, old])


# The Tensor engine.


def _matmul(site: Site) -> Value:
    values, instruction = site.reaching.values, site.instruction
    stationary, moving = instruction.inputs["stationary"], instruction.inputs["moving"]
    if instruction.attributes.get("perf_mode") and len(stationary.shape) == 3:
        raise site.refusal("it multiplies two rows at a time")
    columns = len(moving.shape) - 1
    rows = len(instruction.result.shape) - columns
    shape = instruction.result.shape
    left, right = list(site.coordinates[:rows]), list(site.coordinates[rows:])
    if len(stationary.shape) - 1 != rows:
        left = _reshaped(left, shape[:rows], stationary.shape[1:])
    (depth,) = site.fresh([stationary.shape[0]])
    k = index_of(depth)
    factors = []
    conditions: list[Index] = []
    for access, own in ((stationary, left), (moving, right)):
        own = [
            i if extent > 1 else Index() for i, extent in zip(own, access.shape[1:], strict=True)
        ]
        factors.append((site.read(access, [k, *own]), 1.0))
        conditions += [site.indexed(c, [k, *own]) for c in access.mask.constraints]
    product = values.where(conditions, values.product(factors), values.number(0))
    found = fold(values, "add", [depth], product)
    if not instruction.attributes.get("accumulate"):
        return found
    return values.sum([(site.old(), 1.0), (found, 1.0)])


# Elementwise.


def _activation(site: Site) -> Value:
    values = site.reaching.values
    value = site.operand("data")
    if "scale" in site.instruction.inputs or "scale" in site.instruction.attributes:
        value = values.product([(value, 1.0), (site.operand("scale"), 1.0)])
    if "bias" in site.instruction.inputs:
        value = values.sum([(value, 1.0), (site.operand("bias"), 1.0)])
    return _applied(site, site.text("op"), [value])


def _applied(site: Site, function: str, arguments: list[Value]) -> Value:
    """A function of values. Raises NotLifted for what real numbers do not have."""
    if function in COMPARISONS:
        return _comparison(site, function, arguments)
    known = ("copy", "negative", "relu", "square", "reciprocal", "sqrt", "rsqrt")
    if function not in FUNCTIONS and function not in known:
        raise site.refusal(f"{function} acts on bits, which real numbers do not have")
    return apply(site.reaching.values, function, arguments)


def _comparison(site: Site, function: str, arguments: list[Value]) -> Value:
    """A comparison; of positions it is a condition on axes."""
    values = site.reaching.values
    difference = _as_index(values.sum([(arguments[0], 1.0), (arguments[1], -1.0)]))
    if difference is None:
        return apply(values, function, arguments)
    one, zero = values.number(1), values.number(0)
    if function in ("equal", "not_equal"):
        pair = (one, zero) if function == "equal" else (zero, one)
        return values.where([difference, difference * -1], *pair)
    condition = {
        "greater_equal": difference,
        "greater": difference - 1,
        "less_equal": difference * -1,
        "less": difference * -1 - 1,
    }[function]
    return values.where([condition], one, zero)


def _as_index(value: Value) -> Index | None:
    """A value as an index, where it is one."""
    if isinstance(value, Position):
        return value.index
    if isinstance(value, Constant) and value.value == int(value.value):
        return Index(int(value.value))
    if isinstance(value, Product):
        inner = _as_index(value.factors[0][0])
        if inner is None or len(value.factors) > 1 or value.factors[0][1] != 1:
            return None
        whole = value.coefficient == int(value.coefficient)
        return inner * int(value.coefficient) if whole else None
    if isinstance(value, Sum) and value.constant == int(value.constant):
        result = Index(int(value.constant))
        for term, coefficient in value.terms:
            inner = _as_index(term)
            if inner is None or coefficient != int(coefficient):
                return None
            result = result + inner * int(coefficient)
        return result
    return None


def _tensor_scalar(site: Site) -> Value:
    value = site.operand("data")
    for number in (0, 1):
        name = site.text(f"op{number}")
        if name:
            value = _chained(site, number, name, value)
    return value


_UNARY = frozenset(
    "rsqrt sqrt abs exp log square reciprocal negative sign relu sigmoid silu tanh gelu erf copy "
    "floor ceil trunc logical_not".split()
)


def _chained(site: Site, number: int, name: str, value: Value) -> Value:
    if name in _UNARY:
        return _applied(site, name, [value])
    arguments = [value, site.operand(f"operand{number}")]
    if site.instruction.attributes.get(f"reverse{number}"):
        arguments.reverse()
    return _applied(site, name, arguments)


def _tensor_tensor(site: Site) -> Value:
    return _applied(site, site.text("op"), [site.operand("data1"), site.operand("data2")])


def _scalar_tensor_tensor(site: Site) -> Value:
    first = _chained(site, 0, site.text("op0"), site.operand("data"))
    return _chained(site, 1, site.text("op1"), first)


def _reciprocal(site: Site) -> Value:
    return _applied(site, "reciprocal", [site.operand("data")])


def _select(site: Site) -> Value:
    names = ("predicate", "on_true", "on_false")
    return _applied(site, "select", [site.operand(name) for name in names])


def _select_reduce(site: Site) -> Value:
    pair = [site.operand("on_true"), site.operand("on_false")]
    if site.instruction.attributes.get("reverse"):
        pair.reverse()
    return _applied(site, "select", [site.operand("predicate"), *pair])


# Reductions and scans.


def _reduced(site: Site, op: str, axes: list[Axis], body: Value) -> Value:
    values = site.reaching.values
    if op not in NEUTRAL and op not in ("mean", "variance"):
        raise site.refusal(f"a reduction by {op} depends on the order of its elements")
    if op in NEUTRAL:
        return fold(values, op, axes, body)
    count = float(math.prod(axis.extent for axis in axes))
    mean = values.product([(fold(values, "add", axes, body), 1.0)], 1 / count)
    if op == "mean":
        return mean
    centred = values.product([(values.sum([(body, 1.0), (mean, -1.0)]), 2.0)])
    return values.product([(fold(values, "add", axes, centred), 1.0)], 1 / count)


def _tensor_reduce(site: Site) -> Value:
    instruction, values = site.instruction, site.reaching.values
    given = instruction.attributes["axes"]
    reduced = {int(str(a)) for a in (given if isinstance(given, tuple) else (given,))}
    value = _over(site, site.text("op"), reduced)
    negate = instruction.attributes.get("negate")
    return values.product([(value, 1.0)], -1.0) if negate else value


def _partition_reduce(site: Site) -> Value:
    return _over(site, site.text("op"), {0})


def _over(site: Site, op: str, reduced: set[int]) -> Value:
    """The reduction of an instruction's data over some of its axes."""
    data, values = site.instruction.inputs["data"], site.reaching.values
    rank = len(data.shape)
    fresh = site.fresh([data.shape[n] for n in sorted(reduced)])
    axes = dict(zip(sorted(reduced), fresh, strict=True))
    kept = [n for n in range(rank) if n not in reduced]
    own = list(site.coordinates)
    if len(own) == rank:
        own = [own[n] for n in kept]
    where = [index_of(axes[n]) if n in axes else Index() for n in range(rank)]
    for n, coordinate in zip(kept, own, strict=False):
        where[n] = coordinate
    body = site.read(data, where)
    if site.instruction.mask.constraints:
        if op not in NEUTRAL:
            raise site.refusal(f"its mask changes what its {op} is taken of")
        conditions = [site.indexed(c, where) for c in site.instruction.mask.constraints]
        body = values.where(conditions, body, values.number(NEUTRAL[op]))
    return _reduced(site, op, fresh, body)


def _register(site: Site) -> Value:
    """The reduction of a result over its free axes, which the engine hands out beside it."""
    instruction = site.instruction
    if instruction.attributes.get("reduce_cmd") not in (None, "", "reset_reduce", 3):
        raise site.refusal("it adds to an engine's registers over several instructions")
    op = site.text("reduce_op") or "add"
    shape = instruction.result.shape
    axes = site.fresh(shape[1:])
    inner = Site(site.reaching, instruction,
                 (site.coordinates[0], *map(index_of, axes)), site.place)  # fmt: skip
    body = inner.stored(_MEANINGS[instruction.opcode](inner), instruction.result)
    conditions = written_where(instruction, site.reaching.variables(site.place), inner.coordinates)
    neutral = site.reaching.values.number(NEUTRAL.get(op, 0.0))
    return _reduced(site, op, axes, site.reaching.values.where(conditions, body, neutral))


def _loop_reduce(site: Site) -> Value:
    """The first iteration assigns: it is as if the result held a neutral number before."""
    op, values = site.text("op"), site.reaching.values
    loops = site.instruction.attributes["loops"]
    ids = loops if isinstance(loops, tuple) else (loops,)
    if op not in NEUTRAL:
        raise site.refusal(f"a reduction by {op} depends on the order of its elements")
    around = [
        site.place.path[: n + 1]
        for n, variable in enumerate(site.reaching.variables(site.place))
        if variable.id in ids
    ]
    old = site.old()
    first = [
        part
        for part in values.carried(old)
        if part.loop in around
        and not any(other.loop in around for other in values.carried(part.initial))
    ]
    neutral = values.number(NEUTRAL[op])
    if not first:
        old = neutral
    for part in first:
        fresh = values.same(
            Carried(part.tensor, part.address, part.loop, part.around, part.iteration, neutral)
        )
        old = values.replace(old, part, fresh)
    return apply(values, op, [old, site.operand("data")])


def _scan(site: Site) -> Value:
    instruction, values = site.instruction, site.reaching.values
    data0, data1 = instruction.inputs["data0"], instruction.inputs["data1"]
    row, shape = site.coordinates[0], instruction.result.shape
    length = math.prod(shape[1:])
    (at,) = _reshaped(site.coordinates[1:], shape[1:], (length,))
    (along,) = site.fresh([length])
    step = index_of(along)
    operands = [
        site.read(data, [row if data.shape[0] > 1 else Index(),
                         *_reshaped([step], [length], data.shape[1:])])
        for data in (data0, data1)
    ]  # fmt: skip
    scale, combine = site.text("op0"), site.text("op1")
    factor, term = operands
    if combine == "subtract" and not instruction.attributes.get("reverse1"):
        combine, term = "add", values.product([(term, 1.0)], -1.0)
    if scale not in NEUTRAL or combine not in NEUTRAL:
        raise site.refusal(f"a scan by {scale} and {combine} is no first-order recurrence")
    name = "initial"
    initial = values.number(0)
    access = instruction.inputs.get(name)
    if access is not None:
        initial = site.read(access, [row if access.shape[0] > 1 else Index(),
                                     *[Index()] * (len(access.shape) - 1)])  # fmt: skip
    elif instruction.attributes.get(name) is not None:
        initial = site.operand(name)
    return values.same(Chain(scale, factor, combine, term, initial, along, at))


def _bn_stats(site: Site) -> Value:
    """Count, mean and scatter of the even, then of the odd elements."""
    data, values = site.instruction.inputs["data"], site.reaching.values
    if site.instruction.mask.constraints:
        raise site.refusal("its mask changes what its mean is taken of")
    half, kind = site.coordinates[1] // 3, site.coordinates[1] % 3
    length = math.prod(data.shape[1:])
    if kind.terms or length % 2:
        raise site.refusal("its statistics of even and odd elements are not read as such")
    if kind.constant == 0:
        return values.number(length / 2)
    (axis,) = site.fresh([length // 2])
    where = _reshaped([index_of(axis) * 2 + half], [length], data.shape[1:])
    element = site.read(data, [site.coordinates[0], *where])
    found = _reduced(site, "mean" if kind.constant == 1 else "variance", [axis], element)
    return found if kind.constant == 1 else values.product([(found, 1.0)], length / 2)


def _bn_aggr(site: Site) -> Value:
    """Mean and variance of all elements whose statistics `data` holds."""
    data, values = site.instruction.inputs["data"], site.reaching.values
    columns = math.prod(data.shape[1:])
    (group,) = site.fresh([columns // 3])

    def column(kind: int) -> Value:
        where = _reshaped([index_of(group) * 3 + kind], [columns], data.shape[1:])
        return site.read(data, [site.coordinates[0], *where])

    count, mean = column(0), column(1)
    if not isinstance(count, Constant) or site.instruction.mask.constraints:
        raise site.refusal("its groups are of different sizes")
    total = count.value * group.extent
    average = values.product([(fold(values, "add", [group], mean), 1.0)], 1 / group.extent)
    if site.coordinates[1] == Index():
        return average
    parts = mean.factors[0][0] if isinstance(mean, Product) else mean
    if not isinstance(parts, Fold) or mean != values.product([(parts, 1.0)], 1 / count.value):
        raise site.refusal("it does not aggregate what bn_stats found")
    body, axes = parts.body, (group, *parts.axes)
    taken = [a for a in parts.axes if a in values.axes(average) or a == group]
    if taken:
        raise site.refusal("its groups cannot be told apart")
    centred = values.product([(values.sum([(body, 1.0), (average, -1.0)]), 2.0)])
    return values.product([(fold(values, "add", axes, centred), 1.0)], 1 / total)


# By position.


def _iota(site: Site) -> Value:
    expression = site.instruction.attributes["expression"]
    assert isinstance(expression, Affine)
    return site.reaching.values.position(site.indexed(expression, site.coordinates))


def _affine_select(site: Site) -> Value:
    predicate = site.instruction.attributes["predicate"]
    assert isinstance(predicate, (Mask, Affine))
    constraints = predicate.constraints if isinstance(predicate, Mask) else (predicate,)
    conditions = [site.indexed(c, site.coordinates) for c in constraints]
    pair = [site.operand("data"), site.operand("on_false")]
    if site.instruction.attributes.get("negate"):
        pair.reverse()
    return site.reaching.values.where(conditions, *pair)


def _range_select(site: Site) -> Value:
    values, instruction = site.reaching.values, site.instruction
    start = instruction.attributes.get("range_start", 0)
    shape = instruction.result.shape[1:]
    (column,) = _reshaped(site.coordinates[1:], shape, (math.prod(shape),))
    begin = site.indexed(start, ()) if isinstance(start, Affine) else Index(int(str(start)))
    position = values.position(column + begin)
    value = site.operand("data")
    for number in (1, 0):
        pair = [position, site.operand(f"bound{number}")]
        chosen = _applied(site, site.text(f"op{number}"), pair)
        value = apply(values, "select", [chosen, value, site.operand("on_false")])
    return value


_MEANINGS: dict[str, Callable[[Site], Value]] = {
    "dma_copy": _dma_copy,
    "copy": _copy,
    "memset": _memset,
    "matmul": _matmul,
    "transpose": _transpose,
    "activation": _activation,
    "tensor_scalar": _tensor_scalar,
    "tensor_tensor": _tensor_tensor,
    "scalar_tensor_tensor": _scalar_tensor_tensor,
    "reciprocal": _reciprocal,
    "select": _select,
    "select_reduce": _select_reduce,
    "copy_predicated": _copy_predicated,
    "tensor_reduce": _tensor_reduce,
    "partition_reduce": _partition_reduce,
    "loop_reduce": _loop_reduce,
    "tensor_tensor_scan": _scan,
    "bn_stats": _bn_stats,
    "bn_aggr": _bn_aggr,
    "iota": _iota,
    "affine_select": _affine_select,
    "range_select": _range_select,
}
