"""From an algorithm to the graph of its values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from accelopt.algorithm.algorithm import (
    Algorithm,
    Apply,
    Array,
    Constant,
    Definition,
    Expression,
    Indirect,
    Map,
    Read,
    Reduce,
    Scan,
    Where,
    axes_of,
    walk,
)
from accelopt.algorithm.contraction import contraction
from accelopt.algorithm.functions import ROUNDINGS
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.lift.emission.axes import axis_of, joined_axes, own_axes, pieces_of
from accelopt.kernels.nki.lift.emission.builder import Builder
from accelopt.kernels.nki.lift.emission.dimensions import cut_dimensions
from accelopt.kernels.nki.lift.emission.graph import (
    Graph,
    GraphValue,
    NotLowered,
    ResultPart,
    pruned,
    sums_of_rounded,
)

FORMATS = ("float32", "bfloat16", "float16")
"""Of arrays in HBM. Between them numbers are fp32, but for operands that the kernel rounded."""


def graph_of(algorithm: Algorithm) -> Graph:
    """The graph of an algorithm. Raises NotLowered for what it has no form for."""
    arrays = {array.name: array for array in (*algorithm.inputs, *algorithm.outputs)}
    for array in arrays.values():
        if array.dtype not in FORMATS:
            formats_known = ", ".join(FORMATS)
            raise NotLowered(f"{array.name} is {array.dtype}; lowered are {formats_known}")
    names = joined_axes(algorithm)
    builder = Builder()
    formats: dict[GraphValue, str] = {}
    known: dict[str, tuple[tuple[Index, ...], GraphValue]] = {}
    results = {array.name for array in algorithm.outputs}
    outputs: list[ResultPart] = []
    for number, definition in enumerate(algorithm.definitions):
        renamed = names[number]
        pieces = pieces_of(definition) if definition.out in results else [{}]
        for piece in pieces:
            values = {axis: piece.get(axis, index_of(axis)) for axis in own_axes(definition)}
            values = {axis: index.substitute(renamed) for axis, index in values.items()}
            made = _Reader(builder, known, values, arrays, formats).defined(definition)
            if definition.out in results:
                indices = tuple(values[axis] for axis in definition.axes)
                stored = builder.rounded(made, arrays[definition.out].dtype)
                outputs.append(ResultPart(definition.out, indices, stored))
            if not any(piece):
                known[definition.out] = (tuple(renamed[axis] for axis in definition.axes), made)
    graph = pruned(
        Graph(
            algorithm.name,
            arrays,
            tuple(array.name for array in algorithm.inputs),
            tuple(array.name for array in algorithm.outputs),
            tuple(outputs),
        )
    )
    return sums_of_rounded(cut_dimensions(graph))


MOST_UNROLLED = 32
"""Terms of a sum that are written one after the other."""


class _Reader:
    """Expressions of one definition as values; `values` says what its axes are in the graph."""

    def __init__(
        self,
        builder: Builder,
        known: Mapping[str, tuple[tuple[Index, ...], GraphValue]],
        values: Mapping[Axis, Index],
        arrays: Mapping[str, Array],
        formats: dict[GraphValue, str],
    ) -> None:
        self._builder = builder
        self._known = known
        self._values = values
        self._arrays = arrays
        self._formats = formats
        self._memory: dict[Expression, GraphValue] = {}

    def defined(self, definition: Definition) -> GraphValue:
        """What a definition defines."""
        if isinstance(definition, Map):
            return self.value(definition.expression)
        if isinstance(definition, Scan):
            if (definition.scale, definition.combine) != ("multiply", "add"):
                raise NotLowered(f"the recurrence of {definition.out} is not linear")
            along = axis_of(self._values[definition.along])
            factor, term = self.value(definition.factor), self.value(definition.term)
            return self._builder.scan(factor, term, self.value(definition.initial), along)
        unrolled = self._unrolled(definition)
        if not unrolled:
            return self._reduced(definition)
        remaining = tuple(axis for axis in definition.reduced if axis not in unrolled)
        terms = [
            self._with(dict(zip(unrolled, map(Index, places), strict=True)))
            for places in itertools.product(*(range(axis.extent) for axis in unrolled))
        ]
        values = [term._reduced(replace(definition, reduced=remaining)) for term in terms]
        result = values[0]
        for value in values[1:]:
            result = self._builder.apply(definition.combiner, result, value)
        return result

    def _with(self, places: Mapping[Axis, Index]) -> _Reader:
        values = {**self._values, **places}
        return _Reader(self._builder, self._known, values, self._arrays, self._formats)

    def _unrolled(self, definition: Reduce) -> tuple[Axis, ...]:
        """The short axes of a Reduce that are written out: those of a window (a convolution, a
        pooling), and those of a matrix product beyond its longest."""
        reads = [p for p in walk(definition.expression) if isinstance(p, Read)]
        if contraction(definition) is not None:
            longest = max(definition.reduced, key=lambda axis: axis.extent)
            short = tuple(axis for axis in definition.reduced if axis != longest)
        elif len(axes_of(definition.expression)) > 2 and all(
            read.array not in self._known for read in reads
        ):
            short = definition.reduced
        else:
            return ()
        return short if math.prod(axis.extent for axis in short) <= MOST_UNROLLED else ()

    def _reduced(self, definition: Reduce) -> GraphValue:
        if not definition.reduced:
            return self.value(definition.expression)
        found = contraction(definition)
        reduced = tuple(
            axis for one in definition.reduced for axis in sorted(self._values[one].axes)
        )
        if found is None:
            return self._builder.reduce(
                definition.combiner, self.value(definition.expression), reduced
            )
        if len(reduced) != 1:
            raise NotLowered(f"{definition.out} is a matrix product over {len(reduced)} axes")
        left, right = self.value(found.left), self.value(found.right)
        product = self._builder.scaled_product(left, right, reduced[0], self._format(left, right))
        return self._builder.apply("multiply", product, self.value(found.scale))

    def _format(self, *operands: GraphValue) -> str:
        """The format in which operands are multiplied: what the kernel rounded them to, or read."""
        found = {self._formats.get(operand, operand.dtype) for operand in operands}
        if len(found) > 1:
            raise NotLowered(f"a matrix product of {' and '.join(sorted(found))}")
        return found.pop()

    def value(self, expression: Expression) -> GraphValue:
        """The value of an expression."""
        if expression not in self._memory:
            self._memory[expression] = self._made(expression)
        return self._memory[expression]

    def _made(self, expression: Expression) -> GraphValue:
        if isinstance(expression, Constant):
            return self._builder.constant(expression.value)
        if isinstance(expression, Apply) and expression.function in ROUNDINGS:
            # In between, more precision than the kernel had costs nothing.
            exact = self.value(expression.arguments[0])
            self._formats[exact] = expression.function
            return exact
        if isinstance(expression, Apply):
            return self._builder.apply(expression.function, *map(self.value, expression.arguments))
        if isinstance(expression, Read):
            return self._read(expression)
        if isinstance(expression, Where):
            conditions = [c.substitute(self._values) for c in expression.conditions]
            open_ones = tuple(c for c in conditions if c.bounds[0] < 0)
            if any(c.bounds[1] < 0 for c in conditions):
                return self.value(expression.on_false)
            if not open_ones:
                return self.value(expression.on_true)
            on_true, on_false = self.value(expression.on_true), self.value(expression.on_false)
            return self._chosen(open_ones, on_true, on_false)
        if isinstance(expression, Indirect):
            raise NotLowered("elements are chosen by numbers that are read at run time")
        raise NotLowered("an index is used as a number")

    def _chosen(
        self, conditions: Sequence[Index], on_true: GraphValue, on_false: GraphValue
    ) -> GraphValue:
        """A choice; one that only keeps an input within its array is a padded input."""
        rest: list[Index] = []
        for condition in conditions:
            padded = self._padded(condition, on_true, on_false)
            if padded:
                on_true = padded
            else:
                rest.append(condition)
        return self._builder.where(tuple(rest), on_true, on_false) if rest else on_true

    def _padded(
        self, condition: Index, value: GraphValue, outside: GraphValue
    ) -> GraphValue | None:
        if outside.kind != "constant":
            return None
        if value.kind == "apply" and value.function == "multiply" and outside.constant == 0.0:
            for number, factor in enumerate(value.arguments):
                if made := self._padded(condition, factor, outside):
                    return self._builder.apply("multiply", made, value.arguments[1 - number])
        if value.kind != "input" or value.padding not in (None, outside.constant):
            return None
        for index, extent in zip(value.indices, self._arrays[value.array].shape, strict=True):
            if condition in (index, index * -1 + (extent - 1)):
                return self._builder.padded(value, outside.constant)
        return None

    def _read(self, read: Read) -> GraphValue:
        indices = tuple(index.substitute(self._values) for index in read.indices)
        if read.array not in self._known:
            return self._builder.input(read.array, indices, self._arrays[read.array].dtype)
        places, value = self._known[read.array]
        if indices != places:
            raise NotLowered(f"{read.array} is read at other places than it is computed at")
        return value
