"""The meaning of instructions that combine elements: reductions, scans, statistics, products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.value_nodes import (
    INFINITE,
    NEUTRAL,
    PLACES,
    RANKED,
    REMAINING,
    Application,
    Carried,
    Fold,
    Product,
    ScanElement,
    Sum,
    Value,
)
from accelopt.algorithm.values import Values
from accelopt.kernels.nki.lift.instruction_element import WriteSite, reshaped, written_where
from accelopt.sim.isa.matrix import rows_at_once


def _reduced(site: WriteSite, op: str, axes: list[Axis], body: Value) -> Value:
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


def tensor_reduce(site: WriteSite) -> Value:
    """A reduction of the data over some of its axes."""
    instruction, values = site.instruction, site.reaching.values
    given = instruction.attributes["axes"]
    reduced = {int(str(a)) for a in (given if isinstance(given, tuple) else (given,))}
    value = _over(site, site.text("op"), reduced)
    negate = instruction.attributes.get("negate")
    return values.product([(value, 1.0)], -1.0) if negate else value


def max8(site: WriteSite) -> Value:
    """The largest to the eighth largest of the data on each partition."""
    data, values = site.instruction.inputs["data"], site.reaching.values
    row, place = site.coordinates[0], site.coordinates[-1]
    fresh = site.fresh(data.shape[1:])
    where = (row, *map(index_of, fresh))
    if any(site.indexed(c, where).axes & {*fresh} for c in site.instruction.mask.constraints):
        raise site.refusal("its mask changes what its largest elements are taken of")
    body = site.read(data, where)
    *others, found = _largest(values, fresh, body)
    for number, one in reversed([*enumerate(others)]):
        found = values.where([place * -1 + number], one, found)
    return found


def _largest(values: Values, axes: Sequence[Axis], body: Value) -> list[Value]:
    """The largest to the eighth largest, all of the same elements: what they have in common is in each."""
    names = ["maximum", *(f"largest_{rank}" for rank in range(2, 9))]
    first, *others = (fold(values, name, axes, body) for name in names)
    if isinstance(body, (Sum, Product)) and {*axes} <= values.axes(body):
        first = values.same(Fold("maximum", tuple(axes), body))
    return [first, *others]


def match_replace8(site: WriteSite) -> Value:
    """The data without its eight largest, where those are replaced by less than any."""
    inputs, values, row = site.instruction.inputs, site.reaching.values, site.coordinates[0]
    shape = inputs["values"].shape[1:]
    fresh = site._replace(coordinates=(row,)).fresh(inputs["data"].shape[1:])
    body = site.read(inputs["data"], (row, *map(index_of, fresh)))
    replaced = [
        site.read(inputs["values"], (row, *reshaped([Index(n)], [8], shape))) for n in range(8)
    ]
    number = float(str(site.instruction.attributes["replacement"]))
    plain = number <= -INFINITE and not site.instruction.mask.constraints
    if not plain or replaced != _largest(values, fresh, body):
        said = "it searches for values and replaces them, other than the largest by -1e38 or less"
        raise site.refusal(said)
    element, count = site.operand("data"), len(replaced)
    if isinstance(element, Application) and isinstance(body, Application):
        count += REMAINING.get(element.function, 0)
        if count > len(replaced):
            element, body = element.arguments[0], body.arguments[0]
    most = min(len(RANKED), math.prod(axis.extent for axis in fresh))
    if count + len(replaced) > most:
        raise site.refusal(f"only the {most} largest are told apart")
    least = fold(values, f"largest_{count}", fresh, body)
    return values.same(Application(f"without_largest_{count}", (element, least)))


def find_index8(site: WriteSite) -> Value:
    """The first position on its partition of the data's element that equals each of eight values."""
    data, values = site.instruction.inputs["data"], site.reaching.values
    row, place = site.coordinates[0], site.coordinates[-1]
    (axis,) = fresh = site.fresh([math.prod(data.shape[1:])])
    where = (row, *reshaped([index_of(axis)], [axis.extent], data.shape[1:]))
    body, wanted = site.read(data, where), site.operand("values")
    if site.instruction.attributes.get("successive") and place != Index():
        return _places(site, axis, body, place)
    if wanted != _largest(values, fresh, body)[0]:
        raise site.refusal("it searches for the positions of values that are not the largest")
    matches = apply(values, "equal", [body, wanted])
    position = values.position(index_of(axis))
    pair = [position, values.number(axis.extent)]
    return fold(values, "minimum", fresh, apply(values, "select", [matches, *pair]))


def _places(site: WriteSite, axis: Axis, body: Value, place: Index) -> Value:
    """Where the eight largest of a row are, or the next ones where those before are replaced, in order."""
    values, before, eight = site.reaching.values, 0, site.instruction.inputs["values"]
    for number, largest in enumerate(_largest(values, [axis], body)):
        coordinates = (site.coordinates[0], *reshaped([Index(number)], [8], eight.shape[1:]))
        if site.read(eight, coordinates) != largest:
            raise site.refusal("it searches for the positions of values that are not the largest")
    if isinstance(body, Application) and body.function in REMAINING:
        before = REMAINING[body.function]
        body = body.arguments[0]
    if before + 8 > min(len(PLACES), axis.extent):
        raise site.refusal("it searches for more elements than there are")
    found = fold(values, f"place_{before + 8}", [axis], body)
    for number in reversed(range(7)):
        one = fold(values, f"place_{before + number + 1}", [axis], body)
        found = values.where([place * -1 + number], one, found)
    return found


def partition_reduce(site: WriteSite) -> Value:
    """A reduction of the data over its partitions."""
    return _over(site, site.text("op"), {0})


def _over(site: WriteSite, op: str, reduced: set[int]) -> Value:
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
    # A condition on what is kept says which results are written, not what they are of.
    conditions = [site.indexed(c, where) for c in site.instruction.mask.constraints]
    if conditions := [c for c in conditions if c.axes & {*fresh}]:
        if op not in NEUTRAL:
            raise site.refusal(f"its mask changes what its {op} is taken of")
        body = values.where(conditions, body, values.number(NEUTRAL[op]))
    return _reduced(site, op, fresh, body)


def register(site: WriteSite, result: Callable[[WriteSite], Value]) -> Value:
    """The reduction of an instruction's `result` over its free axes, which the engine hands out
    beside it."""
    instruction = site.instruction
    if instruction.attributes.get("reduce_cmd") not in (None, "", "reset_reduce", 3):
        raise site.refusal("it adds to an engine's registers over several instructions")
    op = site.text("reduce_op") or "add"
    shape = instruction.result.shape
    axes = site.fresh(shape[1:])
    inner = WriteSite(site.reaching, instruction,
                 (site.coordinates[0], *map(index_of, axes)), site.place)  # fmt: skip
    body = inner.stored(result(inner), instruction.result)
    conditions = written_where(instruction, site.reaching.variables(site.place), inner.coordinates)
    neutral = site.reaching.values.number(NEUTRAL.get(op, 0.0))
    return _reduced(site, op, axes, site.reaching.values.where(conditions, body, neutral))


def loop_reduce(site: WriteSite) -> Value:
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


def tensor_tensor_scan(site: WriteSite) -> Value:
    """A first-order recurrence along the free axes."""
    instruction, values = site.instruction, site.reaching.values
    data0, data1 = instruction.inputs["data0"], instruction.inputs["data1"]
    row, shape = site.coordinates[0], instruction.result.shape
    length = math.prod(shape[1:])
    (at,) = reshaped(site.coordinates[1:], shape[1:], (length,))
    (along,) = site.fresh([length])
    step = index_of(along)
    operands = [
        site.read(data, [row if data.shape[0] > 1 else Index(),
                         *reshaped([step], [length], data.shape[1:])])
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
    return values.same(ScanElement(scale, factor, combine, term, initial, along, at))


def bn_stats(site: WriteSite) -> Value:
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
    where = reshaped([index_of(axis) * 2 + half], [length], data.shape[1:])
    element = site.read(data, [site.coordinates[0], *where])
    found = _reduced(site, "mean" if kind.constant == 1 else "variance", [axis], element)
    return found if kind.constant == 1 else values.product([(found, 1.0)], length / 2)


def bn_aggr(site: WriteSite) -> Value:
    """Mean and variance of all elements whose statistics `data` holds."""
    data, values = site.instruction.inputs["data"], site.reaching.values
    columns = math.prod(data.shape[1:])
    (group,) = site.fresh([columns // 3])

    def column(kind: int) -> Value:
        where = reshaped([index_of(group) * 3 + kind], [columns], data.shape[1:])
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


def matmul(site: WriteSite) -> Value:
    """The sum over the contraction of products, added to what was there where it accumulates."""
    values, instruction = site.reaching.values, site.instruction
    stationary, moving = instruction.inputs["stationary"], instruction.inputs["moving"]
    summed = 1 if rows_at_once(instruction) == 1 else 2  # of operands (K, 2, F) both
    columns = len(moving.shape) - summed
    rows = len(instruction.result.shape) - columns
    shape = instruction.result.shape
    left, right = list(site.coordinates[:rows]), list(site.coordinates[rows:])
    if len(stationary.shape) - summed != rows:
        left = reshaped(left, shape[:rows], stationary.shape[summed:])
    depth = site.fresh(stationary.shape[:summed])
    k = [index_of(axis) for axis in depth]
    factors = []
    conditions: list[Index] = []
    for access, own in ((stationary, left), (moving, right)):
        own = [
            i if extent > 1 else Index()
            for i, extent in zip(own, access.shape[summed:], strict=True)
        ]
        factors.append((site.read(access, [*k, *own]), 1.0))
        conditions += [site.indexed(c, [*k, *own]) for c in access.mask.constraints]
    product = values.where(conditions, values.product(factors), values.number(0))
    found = fold(values, "add", [*depth], product)
    if not instruction.attributes.get("accumulate"):
        return found
    return values.sum([(site.old(), 1.0), (found, 1.0)])
