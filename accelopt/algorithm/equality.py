"""Whether two Algorithms are one function of real numbers, as far as one normal form of both tells.

Both are taken back to values over the row-major numbers of their outputs, roundings are left out, and
they are written as Algorithms again, by the same rules. Every rule keeps the function, so what comes out
equal is equal; what differs may still be.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

from accelopt.algorithm import ir
from accelopt.algorithm.axis_joining import joined
from accelopt.algorithm.canonical_rewriting import rewritten, whole
from accelopt.algorithm.choice_cells import by_cells, by_fewest_cuts
from accelopt.algorithm.definitions import DefinedOutput, UndefinedOutput, algorithm_of, put
from accelopt.algorithm.expanded_form import by_regions, expanded, overflows
from accelopt.algorithm.functions import ROUNDINGS
from accelopt.algorithm.index import Axis, Index, digits, index_of
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.notation import algorithm_text
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.value_nodes import (
    INFINITE,
    Application,
    Choice,
    Element,
    ScanElement,
    Value,
)
from accelopt.algorithm.values import Values, fresh_axis

LONGEST_LINE = 160  # characters of a definition that is named as different
ROUNDED = 2.0**-20
"""Numbers of two lifts of one kernel are this near: some were in fp32 on the way."""

Change = Callable[[Values, Value, Sequence[Axis]], Value]

SYMMETRIC = ("equal", "not_equal", "logical_and", "logical_or", "logical_xor", "abs_max", "abs_min")
"""Functions whose arguments may change places, which values do not see."""
TURNED = {"less": "greater", "less_equal": "greater_equal"}
"""Functions that are others of the same arguments in reverse."""


def same_function(one: ir.Algorithm, other: ir.Algorithm) -> bool:
    """Whether both have one normal form, for the same arrays in the same order, and so are as far from overflowing.
    Numbers that differ by less than fp32 resolves are the same; so are a function and its rounding to a narrower
    format."""
    return not difference(one, other, FORMS[:1])


def difference(
    one: ir.Algorithm, other: ir.Algorithm, changes: Sequence[Change | None] = ()
) -> str:
    """What differs first in the normal forms of two Algorithms, `first | second`; empty where they are one
    function by one of the `changes` (all of FORMS), and the first has no unbounded exponential that the second does
    without."""
    for what in ("inputs", "returned"):
        sizes = [[math.prod(a.given) for a in getattr(each, what)] for each in (one, other)]
        if sizes[0] != sizes[1]:
            return f"{what.replace('returned', 'outputs')} of {sizes[0]} | {sizes[1]} elements"
    try:
        forms = list[ir.Algorithm]()
        for change in changes or FORMS:
            further = [normal_form(algorithm, change) for algorithm in (one, other)]
            forms = forms or further
            if change is _expanded_by_cells and overflow(one) and not overflow(other):
                break
            if nearly_equal(*(json.loads(form.to_json()) for form in further)):
                return ""
    except UndefinedOutput as error:
        return str(error)
    except RecursionError:
        return "expressions are too deep"
    lines = [algorithm_text(form).splitlines() for form in forms]
    pairs = itertools.zip_longest(*lines, fillvalue="nothing")
    found = next((pair for pair in pairs if pair[0] != pair[1]), ("numbers", "other numbers"))
    return " | ".join(line.strip()[:LONGEST_LINE] for line in found)


def nearly_equal(one: object, other: object) -> bool:
    """Whether two records are equal, but for the rounding of their numbers to fp32."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDED)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(nearly_equal(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(nearly_equal, one, other))
    return one == other


def _expanded_by_cells(values: Values, value: Value, axes: Sequence[Axis]) -> Value:
    value = expanded(values, by_cells(values, expanded(values, value), axes))
    return expanded(values, by_regions(values, value))


FORMS: tuple[Change | None, ...] = (None, by_cells, _expanded_by_cells)
"""What is made of outputs before they are compared: of the last, equal real numbers may overflow otherwise."""


def overflow(algorithm: ir.Algorithm) -> bool:
    """Whether it has an exponential that nothing bounds: an infinity where another form has none."""
    composed = _Composed(Values(), algorithm)
    for array in algorithm.outputs:
        axes = tuple(Axis(f"o{n}", extent) for n, extent in enumerate(array.shape))
        value = composed.element(array.name, [index_of(axis) for axis in axes])
        if overflows(composed.values, whole(composed.values, value)):
            return True
    return False


def normal_form(algorithm: ir.Algorithm, change: Change | None = None) -> ir.Algorithm:
    """The Algorithm of the same real numbers in a form that its spellings share: inputs and outputs
    by number, formats left out, axes as long as they can be; of what `change` makes of each output and its axes."""
    values = Values()
    composed = _Composed(values, algorithm)
    inputs = [ir.Array(f"in{n}", (math.prod(a.given),), "", (math.prod(a.given),))
              for n, a in enumerate(algorithm.inputs)]  # fmt: skip
    outputs: list[DefinedOutput] = []
    names = {a.name: f"in{n}" for n, a in enumerate(algorithm.inputs)} | {"": ""}
    for array in algorithm.outputs:
        given = (math.prod(array.given),)
        flat = Axis("o0", math.prod(array.shape))
        place = index_of(flat) if flat.extent > 1 else Index()
        value = composed.result(array, digits(place, array.shape))
        value = rewritten(values, value, functools.partial(_turned, values))
        axes, value = joined(values, (flat,), whole(values, value))
        own = tuple(Axis(f"o{n}", axis.extent) for n, axis in enumerate(axes))
        value = values.substitute(value, dict(zip(axes, map(index_of, own), strict=True)))
        value = values.under(whole(values, value), ())
        value = rewritten(values, value, functools.partial(by_fewest_cuts, values))
        value = values.under(value, ())
        value = change(values, value, own) if change and not array.row else value
        axes, value = joined(values, own, value)
        value = rewritten(values, value, functools.partial(_in_order, values))
        axes = tuple(axis for axis in axes if axis.extent > 1) or axes[:1]
        if _is_all(value, flat, inputs) and array not in algorithm.returned:
            names[array.name] = value.array  # a copy of it
            continue
        names[array.name] = f"out{len(outputs)}"
        updates = (names[array.updates], array.row) if array.row else ()
        outputs.append(DefinedOutput(f"out{len(outputs)}", axes, value, "", given, *updates))
    return algorithm_of(values, "", inputs, outputs)


def _turned(values: Values, value: Value) -> Value:
    """A comparison as one of those that are not `TURNED`."""
    if not isinstance(value, Application) or value.function not in TURNED:
        return value
    return apply(values, TURNED[value.function], value.arguments[::-1])


def _in_order(values: Values, value: Value) -> Value:
    """A choice with its conditions in one order, a comparison that is not `TURNED`."""
    value = _turned(values, value)
    if not isinstance(value, Choice):
        return value
    return values.same(replace(value, conditions=tuple(sorted(value.conditions, key=str))))


def _is_all(value: Value, axis: Axis, inputs: Sequence[ir.Array]) -> TypeGuard[Element]:
    """Whether a value along an axis is all of an input, in its order."""
    if not isinstance(value, Element) or value.address != index_of(axis):
        return False
    return inputs[value.number].given == (axis.extent,)


class _Composed:
    """Elements of an Algorithm's arrays as values of its inputs alone."""

    def __init__(self, values: Values, algorithm: ir.Algorithm) -> None:
        self.values = values
        self.inputs = {a.name: (n, a) for n, a in enumerate(algorithm.inputs)}
        self.definitions = {d.out: d for d in algorithm.definitions}
        self._known: dict[str, Value] = {}

    def element(self, name: str, indices: Sequence[Index]) -> Value:
        """An element of an array."""
        if name in self.inputs:
            number, array = self.inputs[name]
            address = functools.reduce(
                lambda total, pair: total * pair[0] + pair[1],
                zip(array.shape, indices, strict=True),
                Index(),
            )
            return self.values.same(Element(f"in{number}", number, "", address))
        definition = self.definitions[name]
        if name not in self._known:
            self._known[name] = self._defined(definition)
        axes = dict(zip(definition.axes, indices, strict=True))
        return self.values.substitute(self._known[name], axes)

    def result(self, array: ir.Array, indices: Sequence[Index]) -> Value:
        """An element of a result, with where it is put if that is known at run time."""
        definition, value = self.definitions[array.name], self.element(array.name, indices)
        if not isinstance(definition, ir.Map) or definition.at is None:
            return value
        axes = dict(zip(definition.axes, indices, strict=True))
        at = self.values.substitute(self.value(definition.at), axes)
        place = ir.place_of(array, definition).substitute(axes)
        return put(self.values, value, at, place, array.row)

    def _defined(self, definition: ir.Definition) -> Value:
        """What a definition gives, over its axes."""
        if isinstance(definition, ir.Map):
            return self.value(definition.expression)
        if isinstance(definition, ir.Reduce):
            body = self.value(definition.expression)
            bound: list[Axis] = []
            for axis in definition.reduced:
                fresh = fresh_axis(axis.extent, {*self.values.axes(body), *bound})
                body = self.values.substitute(body, {axis: index_of(fresh)})
                bound.append(fresh)
            return fold(self.values, definition.combiner, bound, body)
        parts = [self.value(e) for e in (definition.factor, definition.term)]
        initial = self.value(definition.initial)
        along = definition.along
        taken = {*self.values.axes(parts[0]), *self.values.axes(parts[1])}
        fresh = fresh_axis(along.extent, taken)
        factor, term = (self.values.substitute(p, {along: index_of(fresh)}) for p in parts)
        return self.values.same(
            ScanElement(
                definition.scale, factor, definition.combine, term, initial, fresh, index_of(along)
            )
        )

    def value(self, expression: ir.Expression) -> Value:
        """The value of an expression, without roundings."""
        if isinstance(expression, ir.Constant):
            large = abs(expression.value) >= INFINITE  # stands for infinity, as in kernels
            number = math.copysign(math.inf, expression.value) if large else expression.value
            return self.values.number(number)
        if isinstance(expression, ir.Position):
            return self.values.position(expression.index)
        if isinstance(expression, ir.Read):
            return self.element(expression.array, expression.indices)
        if isinstance(expression, ir.Where):
            branches = self.value(expression.on_true), self.value(expression.on_false)
            return self.values.where(expression.conditions, *branches)
        if isinstance(expression, ir.Indirect):
            at = {expression.axis: self.value(expression.at)}
            return self.values.lookup(self.value(expression.element), at)
        arguments = [self.value(argument) for argument in expression.arguments]
        if expression.function in ROUNDINGS:
            return arguments[0]
        function = TURNED.get(expression.function, expression.function)
        if function != expression.function:
            arguments.reverse()
        if function in SYMMETRIC:
            arguments.sort(key=self.values.key)
        return apply(self.values, function, arguments)
