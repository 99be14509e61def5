"""Results that are inputs of the kernel, changed in place: what of them is computed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.index import Index, element_number, index_of
from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.nests.read_ranges import branches_of, reads_of


def with_changes_alone(algorithm: ir.Algorithm, needed: Collection[ir.Definition]) -> ir.Algorithm:
    """With results that are inputs changed in place as far along their axes as those change, where no other
    definition reads what they change, of those `needed`: as far as somebody reads them. What lies elsewhere
    stays as it was."""
    for array in algorithm.outputs:
        definition = algorithm.definition(array.name)
        if not array.updates or array.steps or not isinstance(definition, ir.Map):
            continue
        place, shape = ir.place_of(array, definition), algorithm.updated(array).shape
        changed = [
            [left.get(axis, axis.bounds) for axis in definition.axes]
            for branch, left in branches_of(definition.expression, {})
            if not isinstance(branch, ir.Read)
            or branch.array != array.updates
            or element_number(branch.indices, shape) != place
        ]
        ends = [
            (min(e[0] for e in own), max(e[1] for e in own)) for own in zip(*changed, strict=True)
        ]
        others = [d for d in needed if d.out != array.name]
        taken = [
            where
            for other in others
            for expression in ir.expressions_of(other)
            for where in reads_of(array.updates, expression, {})
        ]
        apart = shape == array.shape and all(
            any(high < first or last < low for (low, high), (first, last) in zip(own, ends, strict=True))
            for own in taken
        )  # fmt: skip
        read = any(places_read(other, array.name, array.shape) for other in others)
        own = places_read(definition, array.updates, shape) <= {place}
        if ends and own and not read and (apart or not taken):
            algorithm = _narrowed(algorithm, array, definition, ends)
    return algorithm


def _narrowed(
    algorithm: ir.Algorithm, array: ir.Array, definition: ir.Map, ends: Sequence[tuple[int, int]]
) -> ir.Algorithm:
    """With some elements of a result alone, between the `ends` of its axes."""
    steps = row_major(array.shape)
    kept = [
        replace(axis, extent=high - low + 1)
        for axis, (low, high) in zip(definition.axes, ends, strict=True)
    ]
    values = {
        old: index_of(new) + low if new.extent > 1 else Index(low)
        for old, new, (low, _) in zip(definition.axes, kept, ends, strict=True)
    }
    if tuple(kept) == definition.axes:
        return algorithm
    left = [n for n, axis in enumerate(kept) if axis.extent > 1]
    expression = ir.substituted(definition.expression, values, {})
    made = ir.Map(definition.out, tuple(kept[n] for n in left), expression)
    changed = replace(
        array,
        shape=tuple(kept[n].extent for n in left),
        first=sum(step * low for step, (low, _) in zip(steps, ends, strict=True)),
        steps=tuple(steps[n] for n in left) or (0,),
    )
    return replace(
        algorithm,
        definitions=tuple(made if d is definition else d for d in algorithm.definitions),
        outputs=tuple(changed if a is array else a for a in algorithm.outputs),
    )


def places_read(definition: ir.Definition, array: str, shape: Sequence[int]) -> set[Index]:
    """Where a definition reads an array."""
    return {
        element_number(read.indices, shape)
        for read in ir.reads_in(definition)
        if read.array == array
    }
