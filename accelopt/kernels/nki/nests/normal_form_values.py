"""Makes values in normal form, each once: the functions are those that the engines have.

`x / (1 + exp(-x))` is a silu; dividing by a number, or by a row's sum, is multiplying; factors that a
sum does not run over come after it; of three factors the two that give the smallest array come first.
All of it is exact in real numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from accelopt.algorithm.functions import CONVERSIONS
from accelopt.algorithm.index import Axis, Index
from accelopt.kernels.nki.nests.values import Value, size_of

LARGEST = 3e38
"""No number of fp32 is much larger."""


class Builder:
    """Makes values, each once, in normal form."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Value] = {}

    def value(self, kind: str, axes: Iterable[Axis], **parts: object) -> Value:
        """The value of these parts, as they are."""
        axes = frozenset(axes)
        key = (kind, axes, *sorted(parts.items(), key=lambda item: item[0]))
        if key not in self._made:
            self._made[key] = Value(len(self._made), kind, axes, **parts)  # type: ignore[arg-type]
        return self._made[key]

    def constant(self, number: float) -> Value:
        """A number."""
        return self.value("constant", (), constant=float(number))

    def input(self, array: str, indices: tuple[Index, ...], dtype: str = "float32") -> Value:
        """An element of an array in HBM."""
        axes = {axis for index in indices for axis in index.axes}
        return self.value("input", axes, array=array, indices=indices, dtype=dtype)

    def reduce(self, combiner: str, argument: Value, reduced: tuple[Axis, ...]) -> Value:
        """What is combined; a factor that it does not run over comes after it."""
        if _is(argument, "multiply"):
            for factor, rest in (argument.arguments[::-1], argument.arguments):
                positive = factor.kind == "constant" and factor.constant > 0
                free = combiner == "add" and not factor.axes & set(reduced)
                if free or (positive and combiner in ("maximum", "minimum")):
                    return self.apply("multiply", self.reduce(combiner, rest, reduced), factor)
        return self.value(
            "reduce",
            argument.axes - set(reduced),
            arguments=(argument,),
            function=combiner,
            reduced=reduced,
        )

    def where(self, conditions: tuple[Index, ...], on_true: Value, on_false: Value) -> Value:
        """One of two values, by conditions on axes: engines choose between a tile and a number, by
        one comparison at a time."""
        if len(conditions) > 1:
            inner = self.where(conditions[1:], on_true, on_false)
            return self.where(conditions[:1], inner, on_false)
        (condition,) = conditions
        if on_false.kind != "constant":
            opposite = condition * -1 - 1
            if on_true.kind == "constant":
                return self.where((opposite,), on_false, on_true)
            zero = self.constant(0.0)
            chosen = self.where(conditions, on_true, zero), self.where((opposite,), on_false, zero)
            return self.apply("add", *chosen)
        if _is(on_true, "multiply") and on_true.arguments[1].kind == "constant":
            number = on_false.constant / on_true.arguments[1].constant
            if on_true.arguments[1].constant > 0 and abs(number) < LARGEST:
                scaled = self.where(conditions, on_true.arguments[0], self.constant(number))
                return self.apply("multiply", scaled, on_true.arguments[1])
        axes = on_true.axes | condition.axes
        return self.value("where", axes, arguments=(on_true, on_false), indices=conditions)

    def either(self, conditions: tuple[Index, ...], on_true: Value, on_false: Value) -> Value:
        """One of two values, by conditions on axes, in parts of its domain of which each is of one."""
        if on_false.kind == "constant" or (on_true.kind == "constant" and len(conditions) == 1):
            return self.where(conditions, on_true, on_false)
        values = on_true, on_false
        axes = frozenset[Axis]().union(*(c.axes for c in conditions), *(v.axes for v in values))
        alike = on_true.dtype == on_false.dtype and all(v.kind == "input" for v in values)
        dtype = on_true.dtype if alike else "float32"
        return self.value("either", axes, arguments=values, indices=conditions, dtype=dtype)

    def apply(self, function: str, *arguments: Value) -> Value:
        """The function of the arguments, as the engines have it."""
        if function == "subtract" and arguments[1].kind == "constant":
            return self.apply("add", arguments[0], self.constant(-arguments[1].constant))
        if function == "subtract" and all(_is(a, "multiply") for a in arguments):
            (left, factor), (right, other) = (a.arguments for a in arguments)
            if factor is other and factor.kind == "constant":
                return self.apply("multiply", self.apply("subtract", left, right), factor)
        if function in ("add", "subtract") and any(
            _is(arguments[0], n) for n in ("add", "subtract")
        ):
            # Numbers of fewer axes that stand first are added up before others.
            (inner, other), right = arguments[0].arguments, arguments[1]
            small = size_of(inner.axes | right.axes) < size_of(arguments[0].axes)
            if small and right.kind != "constant":
                first = self.apply(function, inner, right)
                return self.apply(arguments[0].function, first, other)
        if function == "negative":
            return self.apply("multiply", arguments[0], self.constant(-1.0))
        if function == "divide":
            return self._divided(*arguments)
        if function == "multiply":
            return self._multiplied(*arguments)
        if function == "add":
            return self._added(*arguments)
        if function == "power" and arguments[1].kind == "constant":
            form = {-0.5: "rsqrt", 0.5: "sqrt", 2.0: "square", -1.0: "reciprocal"}
            if arguments[1].constant in form:
                return self.apply(form[arguments[1].constant], arguments[0])
        if function == "reciprocal":
            return self._reciprocal(arguments[0])
        if function in ("maximum", "minimum") and arguments[0].kind == "constant":
            arguments = arguments[::-1]
        axes = frozenset[Axis]().union(*(argument.axes for argument in arguments))
        own = {"dtype": function} if function in CONVERSIONS else {}
        return self.value("apply", axes, arguments=arguments, function=function, **own)

    def _divided(self, left: Value, right: Value) -> Value:
        if right.kind == "constant" and right.constant:
            return self.apply("multiply", left, self.constant(1.0 / right.constant))
        inverse = self.apply("reciprocal", right)
        return inverse if left is self.constant(1.0) else self.apply("multiply", left, inverse)

    def _reciprocal(self, value: Value) -> Value:
        if _is(value, "sqrt"):
            return self.apply("rsqrt", value.arguments[0])
        if _is(value, "add") and value.arguments[1] is self.constant(1.0):
            power = value.arguments[0]
            if _is(power, "exp"):
                return self.apply("sigmoid", self.apply("negative", power.arguments[0]))
        return self.value("apply", value.axes, arguments=(value,), function="reciprocal")

    def _multiplied(self, left: Value, right: Value) -> Value:
        if left.kind == "constant":
            left, right = right, left
        if right.kind == "constant":
            if left.kind == "constant":
                return self.constant(left.constant * right.constant)
            if right.constant == 1.0:
                return left
            if _is(left, "multiply") and left.arguments[1].kind == "constant":
                factor = left.arguments[1].constant * right.constant
                return self.apply("multiply", left.arguments[0], self.constant(factor))
        if _is(left, "multiply"):
            inner, other = left.arguments
            if other.kind == "constant":
                return self.apply("multiply", self.apply("multiply", inner, right), other)
            # Of three factors, the two that give the smallest array come first.
            least = size_of(left.axes)
            for one, two in ((inner, other), (other, inner)):
                if size_of(one.axes | right.axes) < least:
                    first = self.apply("multiply", one, right)
                    axes = first.axes | two.axes
                    return self.value("apply", axes, arguments=(first, two), function="multiply")
        if left is right:
            return self.value("apply", left.axes, arguments=(left,), function="square")
        for one, other in ((left, right), (right, left)):
            if _is(other, "sigmoid") and other.arguments[0] is one:
                return self.value("apply", one.axes, arguments=(one,), function="silu")
        axes = left.axes | right.axes
        return self.value("apply", axes, arguments=(left, right), function="multiply")

    def _added(self, left: Value, right: Value) -> Value:
        if left.kind == "constant":
            left, right = right, left
        if right.kind == "constant":
            if left.kind == "constant":
                return self.constant(left.constant + right.constant)
            if right.constant == 0.0:
                return left
        if _is(right, "multiply") and right.arguments[1] is self.constant(-1.0):
            return self.apply("subtract", left, right.arguments[0])
        axes = left.axes | right.axes
        return self.value("apply", axes, arguments=(left, right), function="add")


def _is(value: Value, function: str) -> bool:
    return value.kind == "apply" and value.function == function
