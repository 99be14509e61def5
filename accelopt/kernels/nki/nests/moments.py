"""A sum and the sum of squares about its mean, of the same elements: both come of the mean and the variance that
Vector finds in one pass (bn_stats, of which bn_aggr joins several). Two passes are faster where Scalar is free.

before: total = sum(x);  spread = sum((x - total / n)**2)
after:  mean, variance = bn_aggr(bn_stats(x));  total = mean * n;  spread = variance * n
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.ir import Definition
from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.nests.axis_positions import At
from accelopt.kernels.nki.nests.places import Round, View, Where, spans_of
from accelopt.kernels.nki.nests.statements import Form
from accelopt.kernels.nki.nests.text import Tile, merged
from accelopt.kernels.nki.nests.value_graphs import Reading
from accelopt.kernels.nki.nests.values import Value, size_of

if TYPE_CHECKING:
    from accelopt.kernels.nki.nests.value_instructions import Calculation

MOST = 512
"""Elements a partition that one bn_stats takes (its page in nki.isa)."""
NUMBERS = 6
"""That a bn_stats gives."""
LEAST = 256
"""Elements of one sum on a partition, below which instructions that each take all sums there are faster."""
CLOSE = 1e-5
"""Of an inverse of a count, which is a number of fp32."""


class Moment(NamedTuple):
    """Which of two numbers, the mean and the variance, a value is but for the count: of what `total` sums."""

    total: Value
    place: int


def moments_of(
    reading: Reading, members: Iterable[Definition], engines: Mapping[str, str]
) -> Mapping[Value, Moment]:
    """The sums of squares about a mean that are on the Vector engine, and the sums of those means."""
    found: dict[Value, Moment] = {}
    for definition in members:
        vector = engines.get(definition.out) == "vector"
        value = reading.meanings[definition.out].value if vector else None
        for spread in _sums(value) if value else ():
            (square,) = spread.arguments
            if square.function != "square" or square.arguments[0].function != "subtract":
                continue
            data, mean = square.arguments[0].arguments
            total, factor = _without_factor(reading, mean)
            alike = (total.kind, total.function) == ("reduce", "add") and total.arguments == (data,)
            whole = alike and {*total.reduced} == {*spread.reduced}
            if whole and abs(factor * size_of(total.reduced) - 1) < CLOSE:
                found |= {total: Moment(total, 0), spread: Moment(total, 1)}
    return found


def _sums(value: Value) -> list[Value]:
    if value.kind == "reduce":
        return [value] if value.function == "add" else []
    return [found for argument in value.arguments for found in _sums(argument)]


def _without_factor(reading: Reading, value: Value) -> tuple[Value, float]:
    """What a number is a constant times, through definitions that are read where they are."""
    factor = 1.0
    while True:
        if value.function == "multiply" and value.arguments[1].kind == "constant":
            factor *= value.arguments[1].constant
            value = value.arguments[0]
            continue
        meaning = reading.meanings.get(value.array) if value.kind == "input" else None
        plain = all(len(i.terms) == 1 and index_of(i.terms[0][0]) == i for i in value.indices)
        if meaning is None or meaning.value is None or not plain:
            return value, factor
        if value.axes != meaning.value.axes:
            return value, factor
        value = meaning.value


def moment(calculation: Calculation, value: Value, where: Where, into: View | None) -> View | None:
    """A sum, or a sum of squares about a mean, of both at once; None where it is no such, or its elements are
    not taken in equal parts."""
    known = calculation.moments.get(value)
    if known is None:
        return None
    axes = where.free(value.axes)
    inner = tuple(axis for axis in known.total.reduced if where.span(axis).width > 1)
    place = Where(where.part, where.spans, (*axes, *inner))
    pieces = calculation.cut(place, inner, min(MOST, calculation.stage.columns))
    count, size = calculation.rounds(place, pieces), size_of(known.total.reduced)
    whole = size == math.prod(where.span(axis).width for axis in inner)
    if not whole or size < LEAST or size % (2 * count):
        return None
    both = _both(calculation, known.total, place, axes, pieces)
    target = into or calculation.new_tile("moment", where, axes)
    one = View(both.tile, both.offset + known.place, both.strides)
    calculation.issue(where, axes, [target, one], lambda dst, given, width: (
        calculation.scalar_form(dst, given[0], ["nl.multiply"], [f"{float(size)}"], False, width, ""),))  # fmt: skip
    return target


def _both(
    calculation: Calculation, total: Value, where: Where, axes: tuple[Axis, ...],
    pieces: Sequence[tuple[Axis, int]],
) -> View:  # fmt: skip
    """Means and variances, beside each other for each element along some axes, made where they are not yet."""
    key = ("moments", total, where.part, spans_of(where, (*where.part, *total.axes)))
    for block in calculation.blocks:
        if key in block.values:
            return block.values[key]
    with calculation.at(calculation.home(where.variables(total.axes))):
        names, text, rows = calculation.names, calculation.text, where.rows
        widths = [where.span(axis).width for axis in axes]
        both = Tile(names.new("moments"), rows, 2 * math.prod(widths))
        calculation.declare(both)
        strides = [2 * step for step in row_major(widths)]
        made = View(both, At(), dict(zip(axes, strides, strict=True)))
        (data,) = total.arguments
        count = calculation.rounds(where, pieces)

        def one(round_: Round) -> None:
            spot = round_.where
            parts = Tile(names.new("statistics"), rows, NUMBERS * count)
            calculation.declare(parts)
            free = spot.free(data.axes)
            together = math.prod(spot.span(a).width for a in free) <= calculation.stage.columns
            held = calculation.view(data, spot) if together else None

            def piece(own: Round) -> None:
                view = held.moved(own.where, spot) if held else calculation.view(data, own.where)
                counts = [own.where.span(axis).width for axis in free]
                sizes, steps = merged(counts, [[view.strides.get(axis, 0) for axis in free]])
                given = text.inside(view.tile, rows, view.offset, sizes, steps[0])
                dst = text.inside(parts, rows, own.number * NUMBERS, [NUMBERS], [1])
                call = text.call(dst, "bn_stats", f"data={given}", "float32")
                ns = calculation.vector_ns(math.prod(sizes))
                calculation.put("", Form(call, "vector", ns))

            calculation.each(spot, pieces, piece)
            place = made.moved(spot, where).offset
            dst = text.inside(both, rows, place, [2], [1])
            call = text.call(dst, "bn_aggr", f"data={parts.name}[...]", "float32")
            calculation.put("", Form(call, "vector", calculation.vector_ns(NUMBERS * count)))

        calculation.each(where, [(axis, 1) for axis in axes], one)
        calculation.blocks[-1].values[key] = made
    return made
