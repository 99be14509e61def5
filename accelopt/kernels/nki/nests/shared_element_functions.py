"""A function of one element of an array that a definition takes of several elements beside each other is
computed once for each element.

before: y[k] = x[k] * 0.75 + x[k + 1] * 0.25; z[k] = x[k] * 0.25 + x[k + 1] * 0.75
after:  x_scaled[k] = x[k] * 0.75 and x_scaled_2[k] = x[k] * 0.25, of which both are sums
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.nests.axis_positions import free_name

MOST_TAKEN = 4
"""Elements of a result that take one element at one place, each in another way: the phases of a filter."""
HERE = "@here"
"""The array's name in a function that is told apart from where it is applied."""


def functions_shared(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With definitions for such functions: of elements whose places differ by numbers alone. All elements
    of the array have one, so no condition guards it."""
    shapes = {array.name: array.shape for array in algorithm.inputs}
    made: list[ir.Definition] = []
    taken = {*shapes, *(d.out for d in algorithm.definitions)}
    for definition in algorithm.definitions:
        shapes[definition.out] = tuple(axis.extent for axis in definition.axes)
        if isinstance(definition, ir.Map):
            names: dict[tuple[str, ir.Expression], str] = {}
            for array, function in _repeated(definition):
                name = free_name(f"{array}_{word_of(function)}", taken)
                names[array, function] = name
                axes = tuple(Axis(f"{name}_{n}", extent) for n, extent in enumerate(shapes[array]))
                read = ir.Read(array, tuple(map(index_of, axes)))
                made.append(ir.Map(name, axes, _at(function, read)))
            if names:
                expression = _reading(definition.expression, names)
                definition = replace(definition, expression=expression)
        made.append(definition)
    return replace(algorithm, definitions=tuple(made))


def word_of(function: ir.Expression) -> str:
    """A word for what a function makes."""
    name = function.function if isinstance(function, ir.Apply) else ""
    return "scaled" if name in ("multiply", "divide") else name or "made"


def _repeated(definition: ir.Map) -> Iterator[tuple[str, ir.Expression]]:
    """The functions of one element, with its array, of which two differ in numbers of their places alone."""
    found: dict[tuple[str, ir.Expression, tuple[Index, ...]], set[tuple[Index, ...]]] = {}
    for read, function in _functions(definition.expression):
        left = (axis.extent for axis in definition.axes if axis not in ir.axes_of(read))
        if math.prod(left) <= MOST_TAKEN:
            bare = tuple(index - index.constant for index in read.indices)
            found.setdefault((read.array, function, bare), set()).add(read.indices)
    shared = {(array, function) for (array, function, _), at in found.items() if len(at) > 1}
    yield from sorted(shared, key=str)


def _functions(expression: ir.Expression) -> Iterator[tuple[ir.Read, ir.Expression]]:
    """The largest parts of an expression that are made of one element and of numbers."""

    def below(part: ir.Expression) -> tuple[ir.Expression, ...]:
        return () if _only(part) else ir.parts_of(part)

    for part in ir.each_once(expression, below):
        read = _only(part)
        if read is not None and read != part:
            yield read, _at(part, ir.Read(HERE, ()))


def _only(expression: ir.Expression) -> ir.Read | None:
    """The one element that a function of numbers besides takes."""
    parts = list(ir.walk(expression))
    reads = [part for part in parts if isinstance(part, ir.Read)]
    plain = all(isinstance(part, (ir.Read, ir.Constant, ir.Apply)) for part in parts)
    return reads[0] if plain and len(reads) == 1 else None


def _at(function: ir.Expression, element: ir.Read) -> ir.Expression:
    """A function of another element."""
    if isinstance(function, ir.Read):
        return element
    return ir.with_parts(function, (_at(part, element) for part in ir.parts_of(function)))


def _reading(
    expression: ir.Expression, names: dict[tuple[str, ir.Expression], str]
) -> ir.Expression:
    read = _only(expression)
    if read is not None and read != expression:
        name = names.get((read.array, _at(expression, ir.Read(HERE, ()))))
        return ir.Read(name, read.indices) if name else expression
    return ir.with_parts(expression, (_reading(part, names) for part in ir.parts_of(expression)))
