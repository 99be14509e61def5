"""Arrays in the dimensions that their reads and stores have: `x[64*m + n]`, with n below 64, is
`x[m, n]` of an array of rows of 64."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from accelopt.algorithm.index import Index
from accelopt.kernels.nki.lift.emission.graph import (
    Graph,
    GraphValue,
    NotLowered,
    ResultPart,
    pruned,
)


def cut_dimensions(graph: Graph) -> Graph:
    """The graph with every dimension cut in two along which all accesses are of that form."""
    while (cut := _cut(graph)) is not None:
        graph = cut
    return graph


def _cut(graph: Graph) -> Graph | None:
    for name in (*graph.inputs, *graph.results):
        accesses = [v.indices for v in graph.values if v.kind == "input" and v.array == name]
        accesses += [output.indices for output in graph.outputs if output.array == name]
        padded = any(v.padding is not None for v in graph.values if v.array == name)
        for place, extent in enumerate(graph.arrays[name].shape):
            length = _row_length([indices[place] for indices in accesses], extent)
            if length and not padded:
                return with_dimension_cut(graph, name, place, length)
    return None


def _row_length(indices: Iterable[Index], extent: int) -> int:
    """The length of the rows that a dimension is cut into; 0 for one that stays whole."""
    indices = list(indices)
    lengths = {step for index in indices for _, step in index.terms if step > 1}
    for length in sorted(lengths):
        whole = extent % length == 0 and length < extent
        if whole and all(_divided(index, length) for index in indices):
            return length
    return 0


def _divided(index: Index, by: int) -> tuple[Index, Index] | None:
    """Quotient and remainder of an index, where each of its terms belongs to one of them."""
    inner = Index(index.constant % by, tuple((t, c) for t, c in index.terms if c % by))
    low, high = inner.bounds
    if low < 0 or high >= by or not index.is_affine:
        return None
    outer = tuple((term, step // by) for term, step in index.terms if step % by == 0)
    return Index(index.constant // by, outer), inner


def with_dimension_cut(graph: Graph, name: str, place: int, length: int) -> Graph:
    """The graph with one dimension of an array cut into rows of that length."""

    def cut(indices: tuple[Index, ...]) -> tuple[Index, ...]:
        parts = _divided(indices[place], length)
        if parts is None:
            raise NotLowered(f"{name} has no rows of {length}")
        return (*indices[:place], *parts, *indices[place + 1 :])

    array = graph.arrays[name]
    sizes = (array.shape[place] // length, length)
    shape = (*array.shape[:place], *sizes, *array.shape[place + 1 :])
    made: dict[GraphValue, GraphValue] = {}
    for value in graph.values:
        arguments = tuple(made[argument] for argument in value.arguments)
        if value.kind == "input" and value.array == name:
            made[value] = replace(value, indices=cut(value.indices))
        else:
            same = arguments == value.arguments
            made[value] = value if same else replace(value, arguments=arguments)
    outputs = tuple(
        ResultPart(
            output.array,
            cut(output.indices) if output.array == name else output.indices,
            made[output.value],
        )
        for output in graph.outputs
    )
    arrays = {**graph.arrays, name: replace(array, shape=shape)}
    return pruned(replace(graph, arrays=arrays, outputs=outputs))
