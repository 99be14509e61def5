"""Consecutive rows beside each other on one partition: they lie so in HBM, and short rows are then
moved, and worked on, many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.lift.emission.dimensions import with_dimension_cut
from accelopt.kernels.nki.lift.emission.graph import (
    Graph,
    GraphValue,
    NotLowered,
    ResultPart,
    pruned,
)
from accelopt.kernels.nki.lift.emission.storage import PARTITIONS

ELEMENTS = (1024, 2048, 4096)
"""Of all rows on a partition, about."""


def beside_counts(graph: Graph, rows: Axis) -> Iterator[int]:
    """How many rows may lie beside each other: numbers that leave whole tiles of rows, and make
    pieces of each of ELEMENTS; none for work that is not element by element."""
    if not _elementwise(graph, rows.name):
        return
    width = max(
        (axis.extent for out in graph.outputs for axis in out.value.axes - {rows}), default=1
    )
    tiles = rows.extent // PARTITIONS
    if rows.extent % PARTITIONS:
        return
    possible = [count for count in range(2, tiles + 1) if tiles % count == 0]
    found = {max((c for c in possible if c * width <= most), default=1) for most in ELEMENTS}
    yield from sorted(found - {1})


def _elementwise(graph: Graph, rows: str) -> bool:
    """Whether all work is on elements of rows. One number a row is one for a whole partition, and of
    rows that share a partition each has its own."""
    return all(
        value.kind == "constant"
        or (
            value.kind in ("input", "apply")
            and value.padding is None
            and any(axis.name != rows for axis in value.axes)
        )
        for value in graph.values
    )


def rows_beside(graph: Graph, rows: str, count: int) -> tuple[Graph, Axis]:
    """The graph with rows cut into groups of `count`, each row array in one dimension more; and the
    axis within a group."""
    if not _elementwise(graph, rows):
        raise NotLowered("rows lie beside each other for work element by element alone")
    axes = {axis for value in graph.values for axis in value.axes}
    whole = next((axis for axis in axes if axis.name == rows), None)
    if whole is None or whole.extent % count:
        raise NotLowered(f"{count} does not divide the rows")
    inner = Axis(f"{rows}_in", count)
    renamed = {whole: index_of(Axis(rows, whole.extent // count)) * count + index_of(inner)}
    groups = frozenset({Axis(rows, whole.extent // count), inner})

    def cut(indices: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(index.substitute(renamed) for index in indices)

    made: dict[GraphValue, GraphValue] = {}
    for value in graph.values:
        if value.kind != "constant" and whole not in value.axes:
            raise NotLowered("something that has no rows beside rows that lie beside each other")
        made[value] = replace(
            value,
            axes=(value.axes - {whole}) | groups if whole in value.axes else value.axes,
            indices=cut(value.indices),
            arguments=tuple(made[argument] for argument in value.arguments),
        )
    outputs = tuple(ResultPart(o.array, cut(o.indices), made[o.value]) for o in graph.outputs)
    graph = pruned(replace(graph, outputs=outputs))
    for name in (*graph.inputs, *graph.results):
        accesses = [v.indices for v in graph.values if v.kind == "input" and v.array == name]
        accesses += [output.indices for output in graph.outputs if output.array == name]
        for indices in accesses[:1]:
            place = next(n for n, index in enumerate(indices) if inner in index.axes)
            if any(dict(access[place].terms).get(inner) != 1 for access in accesses):
                raise NotLowered(f"rows of {name} that do not lie side by side")
            graph = with_dimension_cut(graph, name, place, count)
    return graph, inner
