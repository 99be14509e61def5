"""Reductions made in two: of parts of an axis, by programs of their own, and of what those give (split-K).

A sum relative to a maximum is split with it: each part has a maximum of its own, and what it gives is rescaled
to the maximum of all, `total = sum over parts of total[part] * exp(largest[part] - largest)`.
"""

from __future__ import annotations

from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.value_nodes import NEUTRAL
from accelopt.kernels.triton.emission.running import grown, growth
from accelopt.kernels.triton.emission.schedule import NotEmitted, Split
from accelopt.kernels.triton.emission.simplifying import chosen, conditions_of, simple

NOTHING = -1e38
"""A maximum of nothing is less."""


def in_two(algorithm: ir.Algorithm, split: Split) -> ir.Algorithm:
    """With a reduction made of parts of its first axis, and of what they give. Raises NotEmitted."""
    name = split.definition
    found = [d for d in algorithm.definitions if d.out == name]
    definition = found[0] if found else None
    if not isinstance(definition, ir.Reduce) or not definition.reduced:
        raise NotEmitted(f"{name} is no reduction that could be split")
    if any(d.out == f"{name}_parts" for d in algorithm.definitions):
        return algorithm  # with the maximum that it is relative to
    made: list[ir.Definition] = []
    for own in algorithm.definitions:
        b = _relative(own, definition)
        if own is definition:
            made += _parted(definition, split.parts)
        elif b is not None and isinstance(own, ir.Reduce):
            one, two = _parted(own, split.parts)
            part = one.axes[0]
            assert isinstance(one, (ir.Map, ir.Reduce)) and isinstance(two, ir.Reduce)
            local = _local(b, name, part)
            factor: ir.Expression = ir.Apply("exp", (grown(local, b),))
            held = next(
                p for p in ir.walk(local) if isinstance(p, ir.Read) and p.array == f"{name}_parts"
            )
            some = ir.Apply("greater", (held, ir.Constant(NOTHING)))
            factor = ir.Apply("select", (some, factor, ir.Constant(0.0)))
            made.append(replace(one, expression=_local(one.expression, name, part)))
            made.append(replace(two, expression=ir.Apply("multiply", (two.expression, factor))))
        else:
            made.append(own)
    return replace(algorithm, definitions=tuple(made))


def _relative(own: ir.Definition, largest: ir.Reduce) -> ir.Expression | None:
    """What stands for a maximum in the exponent of a sum over an axis like its own."""
    if not isinstance(own, ir.Reduce) or own.combiner != "add" or largest.combiner != "maximum":
        return None
    if not own.reduced or own.reduced[0].extent != largest.reduced[0].extent:
        return None
    if largest.out not in ir.arrays_read(own):
        return None
    return growth(own.expression, {largest.out}, own.reduced[0])


def _parted(definition: ir.Reduce, count: int) -> tuple[ir.Definition, ir.Definition]:
    first, *others = definition.reduced
    size = -(-first.extent // count)
    parts = -(-first.extent // size)
    taken = {axis.name for axis in (*definition.axes, *definition.reduced)}
    part = Axis(next(f"part{n or ''}" for n in range(99) if f"part{n or ''}" not in taken), parts)
    rest = Axis(first.name, size)
    inner = index_of(rest) if size > 1 else Index()
    index = index_of(part) * size + inner
    ends_early = not all(isinstance(c, Index) for c in conditions_of(definition))
    if others and ends_early and size * parts == first.extent:  # each part has some of a short row
        index = inner * parts + index_of(part)
    body = simple(ir.substituted(definition.expression, {first: index}, {}), {})
    if size * parts > first.extent:
        neutral = ir.Constant(NEUTRAL[definition.combiner])
        body = chosen((index * -1 + (first.extent - 1),), body, neutral)
    reduced = (*([rest] if size > 1 else []), *others)
    axes, name = (part, *definition.axes), f"{definition.out}_parts"
    one: ir.Definition = ir.Map(name, axes, body)
    if reduced:
        one = ir.Reduce(name, axes, reduced, definition.combiner, body)
    read = ir.Read(name, tuple(map(index_of, axes)))
    return one, replace(definition, reduced=(part,), expression=read)


def _local(expression: ir.Expression, name: str, part: Axis) -> ir.Expression:
    """With the maximum of a part in the place of that of all."""

    def of_part(read: ir.Expression) -> ir.Expression | None:
        if not isinstance(read, ir.Read) or read.array != name:
            return None
        return ir.Read(f"{name}_parts", (index_of(part), *read.indices))

    return ir.rewritten(expression, of_part)
