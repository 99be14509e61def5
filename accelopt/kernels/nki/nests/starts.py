"""Nests to begin a search with: as much as possible in one stage, for each choice of what lies on partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accelopt.algorithm.algorithm import Algorithm, Definition, Reduce
from accelopt.algorithm.index import Axis
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.nests.nest import (
    Nest,
    NotNested,
    Part,
    Stage,
    default_nest,
    filled,
    product_in,
)
from accelopt.kernels.nki.nests.preparing import prepared


def starting_nests(algorithm: Algorithm, target: str = "trn1") -> Iterator[Nest]:
    """Different nests from which all others are reached by single primitives."""
    from accelopt.kernels.nki.nests.lowering import lower_nest

    ready = prepared(algorithm)
    seen: set[Nest] = set()

    def has_kernel(nest: Nest) -> bool:
        try:
            lower_nest(algorithm, nest, target=target)
        except NotNested:
            return False
        return True

    first = default_nest(algorithm, target)
    seen.add(first)
    yield first
    for lying in _lying(ready):
        stages: list[Stage] = []
        for definition, alone in zip(ready.definitions, first.stages, strict=True):
            if stages:
                joined = _stage(ready, (*stages[-1].members, definition.out), lying, target)
                if joined:
                    rest = first.stages[len([m for s in stages for m in s.members]) + 1 :]
                    if has_kernel(Nest(stages=(*stages[:-1], joined, *rest))):
                        stages[-1] = joined
                        continue
            stages.append(_stage(ready, (definition.out,), lying, target) or alone)
            rest = first.stages[len([m for s in stages for m in s.members]) :]
            if not has_kernel(Nest(stages=(*stages, *rest))):
                stages[-1] = alone
        nest = Nest(stages=tuple(stages))
        if nest not in seen:
            seen.add(nest)
            yield nest


def _lying(algorithm: Algorithm) -> list[tuple[str, ...]]:
    """Names of axes that could lie on partitions together: of each definition the leading axes, the
    trailing ones but for the last, each alone."""
    found: dict[tuple[str, ...], None] = {}
    for definition in algorithm.definitions:
        names = tuple(axis.name for axis in definition.axes)
        for count in range(1, len(names) + 1):
            found[names[:count]] = None
        for name in names:
            found[(name,)] = None
    return list(found)


def _stage(
    algorithm: Algorithm, members: Sequence[str], lying: Sequence[str], target: str
) -> Stage | None:
    """A stage of these members with some axes on partitions; what else they share runs in loops, where
    a member sums or multiplies."""
    definitions = [algorithm.definition(name) for name in members]
    common = shared_axes(definitions)
    names = {axis.name for axis in common}
    chosen = tuple(axis for axis in common if axis.name in lying)
    if not set(lying) <= names:
        return None
    order = tuple(sorted(chosen, key=lambda axis: list(lying).index(axis.name)))
    partition = filled(order, TARGETS[target].partitions)
    held = {part.axis for part in partition}
    products = [found for d in definitions if (found := product_in(d)) and found.rows]
    turning = {axis for found in products for axis in (*found.batch, *found.rows)}
    rest = [axis for axis in common if axis.name not in held and axis in turning]
    whole = all(set(rest) <= set(d.axes) for d in definitions)
    loops = tuple(Part(axis=axis.name, size=1) for axis in rest) if whole else ()
    if len(definitions) == 1:
        loops = ()
    return Stage(members=tuple(members), partition=partition, loops=loops)


def shared_axes(definitions: Sequence[Definition]) -> tuple[Axis, ...]:
    """The axes that all definitions have, those of results first; a plain sum over an axis has it too."""
    sets = []
    for definition in definitions:
        own = set(definition.axes)
        found = product_in(definition)
        if isinstance(definition, Reduce) and found is not None and not found.rows:
            own |= set(definition.reduced)
        sets.append(own)
    common = set.intersection(*sets)
    return tuple(axis for axis in definitions[0].axes if axis in common)
