"""Kernels without rows: elementwise work on arrays that all lie the same way.

Such a kernel may cut its arrays into rows of any length. Tiles are then contiguous in HBM, use every
partition, and avoid strides at which rows collide.
"""

from __future__ import annotations

import math
from dataclasses import replace

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.lift.emission.graph import (
    Graph,
    GraphValue,
    NotLowered,
    ResultPart,
    pruned,
)

ROWS, COLUMNS = "row", "column"


def flat_elements(graph: Graph) -> int:
    """How many elements each array access of an elementwise kernel runs over; 0 where its accesses
    do not all run through memory in the same way."""
    accesses = _accesses(graph)
    if any(value.kind not in ("input", "apply", "constant") for value in graph.values):
        return 0
    if not accesses:
        return 0
    order: dict[Axis, int] | None = None
    for array, indices in accesses:
        address = _address(graph, array, indices)
        strides = {axis: step for axis, step in address.terms if isinstance(axis, Axis)}
        if not address.is_affine or (order is not None and strides != order):
            return 0
        order = strides
    assert order is not None
    step = 1
    for axis, stride in sorted(order.items(), key=lambda item: item[1]):
        if stride != step:
            return 0
        step *= axis.extent
    return step


def flat_offsets(graph: Graph) -> int:
    """The greatest common divisor of where accesses start, and of all lengths."""
    starts = [_address(graph, *access).constant for access in _accesses(graph)]
    sizes = [math.prod(array.shape) for array in graph.arrays.values()]
    return math.gcd(*starts, *sizes, flat_elements(graph))


def flattened(graph: Graph, columns: int) -> Graph:
    """The graph with every array cut into rows of `columns` elements."""
    elements = flat_elements(graph)
    if not elements or flat_offsets(graph) % columns:
        raise NotLowered(f"the arrays cannot be cut into rows of {columns} elements")
    rows, cols = Axis(ROWS, elements // columns), Axis(COLUMNS, columns)
    arrays = {
        name: replace(array, shape=(math.prod(array.shape) // columns, columns))
        for name, array in graph.arrays.items()
    }

    def place(array: str, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        start = _address(graph, array, indices).constant // columns
        return index_of(rows) + start, index_of(cols)

    made: dict[GraphValue, GraphValue] = {}
    for value in graph.values:
        axes = frozenset((rows, cols)) if value.axes else frozenset[Axis]()
        indices = place(value.array, value.indices) if value.kind == "input" else ()
        arguments = tuple(made[argument] for argument in value.arguments)
        made[value] = replace(value, axes=axes, indices=indices, arguments=arguments)
    outputs = tuple(
        ResultPart(out.array, place(out.array, out.indices), made[out.value])
        for out in graph.outputs
    )
    return pruned(replace(graph, arrays=arrays, outputs=outputs))


def _accesses(graph: Graph) -> list[tuple[str, tuple[Index, ...]]]:
    reads = [(value.array, value.indices) for value in graph.values if value.kind == "input"]
    return reads + [(output.array, output.indices) for output in graph.outputs]


def _address(graph: Graph, array: str, indices: tuple[Index, ...]) -> Index:
    total, step = Index(), 1
    for index, extent in zip(reversed(indices), reversed(graph.arrays[array].shape), strict=True):
        total = total + index * step
        step *= extent
    return total
