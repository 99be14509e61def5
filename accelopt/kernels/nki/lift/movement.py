"""The meaning of instructions that move elements, for one element."""

from __future__ import annotations

import math
from collections.abc import Iterator

from accelopt.algorithm.index import Axis, Index
from accelopt.algorithm.lookups import index_by
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.value_nodes import Value
from accelopt.kernels.nki.lift.elementwise import applied
from accelopt.kernels.nki.lift.instruction_element import WriteSite, reshaped
from accelopt.kernels.nki.lift.runtime_indices import looked_up
from accelopt.sim.affine import Affine
from accelopt.sim.attribute_kinds import KEPT
from accelopt.sim.mask import Mask


def dma_copy(site: WriteSite) -> Value:
    """`source`, combined with what was there where it accumulates."""
    value = site.operand("source")
    accumulate = site.text("accumulate")
    if not accumulate:
        return value
    return apply(site.reaching.values, accumulate, [site.old(), value])


def copy(site: WriteSite) -> Value:
    """`data`."""
    return site.operand("data")


def memset(site: WriteSite) -> Value:
    """`value`."""
    return site.operand("value")


def transpose(site: WriteSite) -> Value:
    """The element of `data` with row and column exchanged."""
    data = site.instruction.inputs["data"]
    free, result = data.shape[1:], site.instruction.result.shape
    row, column = reshaped(site.coordinates, result, (math.prod(free), data.shape[0]))
    return site.read(data, [column, *reshaped([row], [math.prod(free)], free)])


def copy_predicated(site: WriteSite) -> Value:
    """`source` where the predicate holds, else what was there."""
    values = site.reaching.values
    predicate, source, old = site.operand("predicate"), site.operand("source"), site.old()
    if site.instruction.attributes.get("reverse"):
        source, old = old, source
    return apply(values, "select", [predicate, source, old])


def stream_shuffle(site: WriteSite) -> Value:
    """Each run of the table that counts evenly is a source of its own: a table of one number (a row
    on all partitions), a rotation or a reversal has one or two."""
    table = site.instruction.attributes["shuffle_mask"]
    source, result = site.instruction.inputs["source"], site.instruction.result
    assert isinstance(table, tuple)
    rows = [int(str(row)) for row in table]
    deepest = max((row for row in rows if row != KEPT), default=0)
    if source.shape[0] < deepest + 1 + (result.shape[0] - 1) // len(rows) * len(rows):
        raise site.refusal("it shuffles partitions that its source does not have")
    lane = site.coordinates[0] % len(rows)
    group = site.coordinates[0] - lane
    free = reshaped(site.coordinates[1:], result.shape[1:], source.shape[1:])
    last = min(len(rows), result.shape[0])
    value: Value | None = None
    for start, stop, step in reversed(list(_even_runs(rows[:last]))):
        row = group + lane * step + (rows[start] - start * step)
        part = site.old() if rows[start] == KEPT else site.read(source, [row, *free])
        after = lane * -1 + (stop - 1)
        value = part if value is None else site.reaching.values.where([after], part, value)
    assert value is not None
    return value


def _even_runs(rows: list[int]) -> Iterator[tuple[int, int, int]]:
    """The runs of a table of partitions by their begin, their end and the step from each to the next."""
    start = 0
    while start < len(rows):
        step = rows[start + 1] - rows[start] if start + 1 < len(rows) else 0
        if step and KEPT in rows[start : start + 2]:
            step = 0
        stop = start + 1
        while stop < len(rows) and rows[stop] == rows[start] + step * (stop - start):
            stop += 1
        yield start, stop, step
        start = stop


def iota(site: WriteSite) -> Value:
    """The value of an affine expression at the element."""
    expression = site.instruction.attributes["expression"]
    assert isinstance(expression, Affine)
    return site.reaching.values.position(site.indexed(expression, site.coordinates))


def affine_select(site: WriteSite) -> Value:
    """The data where affine constraints hold, else a number."""
    predicate = site.instruction.attributes["predicate"]
    assert isinstance(predicate, (Mask, Affine))
    constraints = predicate.constraints if isinstance(predicate, Mask) else (predicate,)
    conditions = [site.indexed(c, site.coordinates) for c in constraints]
    pair = [site.operand("data"), site.operand("on_false")]
    if site.instruction.attributes.get("negate"):
        pair.reverse()
    return site.reaching.values.where(conditions, *pair)


def range_select(site: WriteSite) -> Value:
    """The data where both comparisons of the position hold, else a number."""
    values, instruction = site.reaching.values, site.instruction
    start = instruction.attributes.get("range_start", 0)
    shape = instruction.result.shape[1:]
    (column,) = reshaped(site.coordinates[1:], shape, (math.prod(shape),))
    begin = site.indexed(start, ()) if isinstance(start, Affine) else Index(int(str(start)))
    position = values.position(column + begin)
    value = site.operand("data")
    for number in (1, 0):
        pair = [position, site.operand(f"bound{number}")]
        chosen = applied(site, site.text(f"op{number}"), pair)
        value = apply(values, "select", [chosen, value, site.operand("on_false")])
    return value


def select_reduce(site: WriteSite) -> Value:
    """`where(predicate, on_true, on_false)`; `reverse` exchanges the operands."""
    pair = [site.operand("on_true"), site.operand("on_false")]
    if site.instruction.attributes.get("reverse"):
        pair.reverse()
    return applied(site, "select", [site.operand("predicate"), *pair])


def gather(site: WriteSite) -> Value:
    """The element of the same partition of `data` whose number the index is."""
    data, numbers = site.instruction.inputs["data"], dict[Axis, Value]()
    size, beside = math.prod(data.shape[1:]), (*site.coordinates, *site.place.trips)
    values = site.reaching.values
    index = index_by(values, site.operand("indices"), size, beside, numbers)
    own = [site.coordinates[0], *reshaped([index], [size], data.shape[1:])]
    return looked_up(values, site.read(data, own), numbers, site.instruction.source)
