"""What is computed, as a graph of values.

A value is a scalar that depends on axes. Definitions have fallen away: what a Map gives is part of
every expression that reads it, and each value is there once, whoever uses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from accelopt.algorithm.algorithm import Array
from accelopt.algorithm.index import Axis, Index


class NotLowered(Exception):
    """An algorithm, or a schedule of one, that this lowering does not write; the text says why."""


@dataclass(frozen=True, eq=False)
class GraphValue:
    """A scalar that depends on axes, however it is laid out. `kind` is `input` (an element of
    `array`), `constant`, `apply` (`function` of the arguments), `reduce` (`function` over `reduced`),
    `product` (the sum of matrix products, two arguments and one axis of `reduced` each) or `scan`
    (factor, term and initial value along the axis `reduced`). `dtype` is the format of its tiles.
    An input with a `padding` may lie outside of its array, where it is that number. A `gather` is an
    element of `array` in whose `indices` the axes `reduced` are the arguments."""

    number: int
    kind: str
    axes: frozenset[Axis]
    arguments: tuple[GraphValue, ...] = ()
    function: str = ""
    constant: float = 0.0
    array: str = ""
    indices: tuple[Index, ...] = ()
    reduced: tuple[Axis, ...] = ()
    dtype: str = "float32"
    padding: float | None = None

    @property
    def terms(self) -> tuple[tuple[GraphValue, GraphValue, Axis], ...]:
        """Of a product: left operand, right operand and the axis they share."""
        pairs = zip(self.arguments[::2], self.arguments[1::2], self.reduced, strict=True)
        return tuple((left, right, axis) for left, right, axis in pairs)


@dataclass(frozen=True)
class ResultPart:
    """A part of a result: `array[indices] = value`."""

    array: str
    indices: tuple[Index, ...]
    value: GraphValue


@dataclass(frozen=True)
class Graph:
    """What a kernel computes. `arrays` has inputs and results by name."""

    name: str
    arrays: Mapping[str, Array]
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    outputs: tuple[ResultPart, ...]
    values: tuple[GraphValue, ...] = ()

    def users(self) -> dict[GraphValue, list[GraphValue]]:
        """Who takes each value as an argument."""
        found: dict[GraphValue, list[GraphValue]] = {value: [] for value in self.values}
        for value in self.values:
            for argument in dict.fromkeys(value.arguments):
                found[argument].append(value)
        return found


def pruned(graph: Graph) -> Graph:
    """The graph with the values that its outputs need, arguments first."""
    order: dict[GraphValue, None] = {}

    def visit(value: GraphValue) -> None:
        if value not in order:
            for argument in value.arguments:
                visit(argument)
            order[value] = None

    for output in graph.outputs:
        visit(output.value)
    return replace(graph, values=tuple(order))


def sums_of_rounded(graph: Graph) -> Graph:
    """The graph with sums over what is rounded for a product as well taken of the rounded values:
    one instruction then gives both, and weights that are divided by their sum add up to one."""
    rounded = {
        value.arguments[0]: value
        for value in graph.values
        if value.kind == "apply" and value.function == value.dtype
    }
    made: dict[GraphValue, GraphValue] = {}
    for value in graph.values:
        arguments = tuple(made[argument] for argument in value.arguments)
        if value.kind == "reduce" and value.function == "add" and value.arguments[0] in rounded:
            exact = value.arguments[0]
            narrow = replace(rounded[exact], arguments=(made[exact],))
            arguments = (made.setdefault(rounded[exact], narrow),)
        if value not in made:
            same = arguments == value.arguments
            made[value] = value if same else replace(value, arguments=arguments)
    outputs = (replace(output, value=made[output.value]) for output in graph.outputs)
    return pruned(replace(graph, outputs=tuple(outputs)))


def size_of(axes: Iterable[Axis]) -> int:
    """How many elements some axes span."""
    return math.prod(axis.extent for axis in axes)
