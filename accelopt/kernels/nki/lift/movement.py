"""The meaning of instructions that move elements, for one element."""

from __future__ import annotations

import math
from collections.abc import Iterator

from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.value_nodes import Value
from accelopt.kernels.nki.lift.instruction_element import WriteSite, reshaped
from accelopt.sim.attribute_kinds import KEPT


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
