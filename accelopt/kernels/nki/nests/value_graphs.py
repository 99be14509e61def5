"""Definitions as graphs of scalar values, in the normal form that the engines compute."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import ONE, Contraction
from accelopt.algorithm.functions import COMPARISONS, CONVERSIONS, ROUNDINGS
from accelopt.algorithm.index import Axis, Floor, Index, index_of
from accelopt.algorithm.value_nodes import ORDERED
from accelopt.kernels.nki.nests.nest import product_in
from accelopt.kernels.nki.nests.preparing import MOST_PIECES
from accelopt.kernels.nki.nests.values import Value, size_of

NARROW = ("bfloat16", "float16")
EXACT_IN_BFLOAT16 = ("int8", "uint8", "float8_e4m3", "float8_e5m2")
"""Formats whose numbers are numbers of bfloat16."""


class Product(NamedTuple):
    """A matrix product: operands with the axes that each has of the result, what they share and sum
    over, the factor that comes after, the format in which it is multiplied, and whether the operands are one but
    for the name of the axis."""

    left: Value
    right: Value
    scale: Value
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    contracted: tuple[Axis, ...]
    dtype: str
    alike: bool = False


class Meaning(NamedTuple):
    """What a definition computes: `value`, which may have reductions in it; or a product; or a
    recurrence with its factor, term and initial value."""

    value: Value | None = None
    product: Product | None = None
    scan: tuple[Value, Value, Value] | None = None
    at: Value | None = None

    @property
    def roots(self) -> tuple[Value, ...]:
        """The values that it asks for."""
        if self.product:
            return self.product.left, self.product.right, self.product.scale
        own = (self.value,) if self.value else ()
        return self.scan or (*own, *((self.at,) if self.at else ()))


SHORT = ("uint8", "int8", "uint16", "int16")
"""Formats of whole numbers that fp32 holds."""


def ends_of(dtype: str) -> tuple[float, float]:
    """The least and the largest number of a format of whole ones."""
    ends = np.iinfo(dtype)
    return float(ends.min), float(ends.max)


class Reading:
    """The meanings of all definitions of an Algorithm, each value made once. The sums `by_ones` are products
    with ones: what they sum over lies on partitions."""

    def __init__(self, algorithm: ir.Algorithm, by_ones: Collection[str] = ()) -> None:
        self.by_ones = by_ones
        self.builder = Builder()
        self._dtypes = {array.name: array.dtype for array in algorithm.inputs}
        self._formats: dict[Value, str] = {}
        self._whole: dict[Value, tuple[float, float]] = {}
        """The least and the largest of what is a whole number."""
        self._memory: dict[ir.Expression, Value] = {}
        self.meanings = {d.out: self._meaning(d) for d in algorithm.definitions}
        products = [m.product for m in self.meanings.values() if m.product]
        for out in {*by_ones} & self.meanings.keys():
            own = self.meanings[out].product
            if own and own.right is self.builder.constant(1.0):
                # What another product has as an operand is there in the format of that.
                same = (p.dtype for p in products if p is not own and own.left in (p.left, p.right))
                self.meanings[out] = Meaning(product=own._replace(dtype=next(same, own.dtype)))
        self._conditional: dict[Value, bool] = {}
        self.uses = self._uses()
        self.readers: dict[str, set[str]] = defaultdict(set)
        """By array, the definitions that read it."""
        for out, meaning in self.meanings.items():
            for value in (value for root in meaning.roots for value in inputs_of(root)):
                self.readers[value.array].add(out)

    def _uses(self) -> dict[Value, int]:
        """How many other values, and definitions, take each value."""
        found: dict[Value, int] = {}
        seen: set[Value] = set()

        def visit(value: Value) -> None:
            found[value] = found.get(value, 0) + 1
            if value not in seen:
                seen.add(value)
                for argument in dict.fromkeys(value.arguments):
                    visit(argument)

        for meaning in self.meanings.values():
            for root in meaning.roots:
                visit(root)
        return found

    def _meaning(self, definition: ir.Definition) -> Meaning:
        if isinstance(definition, ir.Scan):
            parts = definition.factor, definition.term, definition.initial
            factor, term, initial = map(self.value, parts)
            return Meaning(scan=(factor, term, initial))
        if not isinstance(definition, ir.Reduce):
            at = None if definition.at is None else self.value(definition.at)
            return Meaning(self.value(definition.expression), at=at)
        found = product_in(definition)
        if found is None and definition.out in self.by_ones and definition.combiner == "add":
            whole = definition.expression
            found = Contraction(whole, ONE, (), definition.axes, (), definition.reduced, ONE)
        if found is None:
            value = self.value(definition.expression)
            return Meaning(self.builder.reduce(definition.combiner, value, definition.reduced))
        left, right = self.value(found.left), self.value(found.right)
        own = (*found.rows, *found.columns)
        names = dict(zip(found.rows, map(index_of, found.columns), strict=False))
        alike = len(own) == 2 and len(names) == 1 and own[0].extent == own[1].extent
        alike = alike and ir.substituted(found.left, names, {}) == found.right
        dtype = self._multiplied(left, right)
        return Meaning(
            product=Product(
                left, right, self.value(found.scale), found.batch, found.rows, found.columns,
                found.contracted, dtype, alike,
            )
        )  # fmt: skip

    def with_ranks(self, value: Value) -> bool:
        """Whether a maximum is of what others of the largest are of, with which it is found."""
        found = (other for other in self.uses if other.function in ORDERED)
        return value.function == "maximum" and any(
            (other.arguments, other.reduced) == (value.arguments, value.reduced) for other in found
        )

    def narrowed(self, value: Value) -> str:
        """The format to which all products round a value that one sum takes besides, as it is; else none."""
        dtype = self._formats.get(value, "")
        products = (m.product for m in self.meanings.values() if m.product)
        taking = sum(value in (p.left, p.right) for p in products if p.dtype == dtype)
        return dtype if taking and self.uses.get(value) == taking + 1 else ""

    def _multiplied(self, left: Value, right: Value) -> str:
        """The format in which two operands are multiplied: as narrow as both are, where that is one
        format; what has no numbers of its own but ones follows the other."""
        found = {dtype for operand in (left, right) if (dtype := self._format(operand))}
        return found.pop() if len(found) == 1 and found <= set(NARROW) else "float32"

    def _format(self, operand: Value) -> str:
        """The format that has all numbers of an operand; none for a number, and for ones with zeros by position."""
        if operand.kind == "constant":
            return ""
        dtype = self._formats.get(operand)
        if operand.kind == "where" and not dtype and operand.arguments[1].constant == 0.0:
            chosen = operand.arguments[0]
            return self._format(chosen) if chosen.constant in (0.0, 1.0) else operand.dtype
        dtype = dtype or operand.dtype
        exact = dtype in EXACT_IN_BFLOAT16 or operand.function in COMPARISONS  # 0 or 1
        return "bfloat16" if exact else dtype

    def value(self, expression: ir.Expression) -> Value:
        """The value of an expression."""
        if expression not in self._memory:
            self._memory[expression] = self._made(expression)
        return self._memory[expression]

    def _made(self, expression: ir.Expression) -> Value:
        builder = self.builder
        if isinstance(expression, ir.Constant):
            return builder.constant(expression.value)
        if isinstance(expression, ir.Read):
            dtype = self._dtypes.get(expression.array, "float32")
            found = builder.input(expression.array, expression.indices, dtype)
            if dtype in SHORT:
                self._whole[found] = ends_of(dtype)
            return found
        if isinstance(expression, ir.Position):
            return self.index(expression.index)
        if isinstance(expression, ir.Where):
            return self._chosen(expression)
        if isinstance(expression, ir.Indirect):
            return self._gathered(expression)
        if expression.function in ROUNDINGS:
            exact = self.value(expression.arguments[0])
            self._formats[exact] = expression.function
            return exact
        return self._applied(expression.function, *map(self.value, expression.arguments))

    def _gathered(self, expression: ir.Indirect) -> Value:
        """An element of an array at numbers, which may be several."""
        element: ir.Expression = expression
        numbers: dict[Axis, Value] = {}
        while isinstance(element, ir.Indirect):
            numbers[element.axis] = self.value(element.at)
            element = element.element
        assert isinstance(element, ir.Read)
        free = {a for i in element.indices for a in i.axes} - numbers.keys()
        return self.builder.value(
            "gather", free.union(*(number.axes for number in numbers.values())),
            array=element.array, indices=element.indices, reduced=tuple(numbers),
            arguments=tuple(numbers.values()), dtype=self._dtypes.get(element.array, "float32"),
        )  # fmt: skip

    def _applied(self, name: str, *given: Value) -> Value:
        """A function by those that the engines have."""
        apply, number = self.builder.apply, self.builder.constant
        x = given[0]
        whole = self._whole.get(x)
        if whole and name in ("floor", "trunc", "mod", *SHORT):
            low, high = ends_of(name) if name in SHORT else whole
            if name == "mod":
                low, high = 0, given[1].constant - 1 if given[1].kind == "constant" else 0
            if low <= whole[0] and whole[1] <= high:
                return x
            if name == "mod" and high > 0 and high == int(high):
                made = apply(name, *given)
                self._whole[made] = (low, high)
                return made
        if name == "floor" and x.function == "multiply" and x.arguments[1].kind == "constant":
            inner, step = x.arguments[0], 1 / x.arguments[1].constant
            if (ends := self._whole.get(inner)) and step >= 1 and step == int(step):
                rest = apply("subtract", inner, apply("mod", inner, number(step)))
                made = apply("multiply", rest, x.arguments[1])
                self._whole[made] = (ends[0] // step, ends[1] // step)
                return made
        if name == "cos":
            return apply("sin", apply("add", x, number(math.pi / 2)))
        if name == "tan":
            cosine = self._applied("cos", x)
            return apply("multiply", apply("sin", x), apply("reciprocal", cosine))
        if name in ("floor", "trunc"):
            rest = apply("mod" if name == "floor" else "fmod", x, number(1.0))
            return apply("subtract", x, rest)
        if name == "ceil":
            return apply("negative", self._applied("floor", apply("negative", x)))
        if name == "logical_not":
            return apply("equal", x, number(0.0))
        if name in ("logical_and", "logical_or", "logical_xor"):
            form = {"logical_and": "multiply", "logical_or": "maximum", "logical_xor": "not_equal"}
            return apply(form[name], *(apply("not_equal", g, number(0.0)) for g in given))
        if name in ("abs_max", "abs_min"):
            form = {"abs_max": "maximum", "abs_min": "minimum"}
            return apply(form[name], *(apply("abs", g) for g in given))
        if name == "power" and given[1].kind == "constant" and given[1].constant == 1.0:
            return x
        if name == "select":
            return self._choice(*given)
        return apply(name, *given)

    def _choice(self, condition: Value, yes: Value, no: Value) -> Value:
        axes = condition.axes | yes.axes | no.axes
        return self.builder.value("choose", axes, arguments=(condition, yes, no))

    def _chosen(self, where: ir.Where) -> Value:
        if any(c.bounds[1] < 0 for c in where.conditions):
            return self.value(where.on_false)
        conditions = tuple(c for c in where.conditions if c.bounds[0] < 0)
        if not conditions:
            return self.value(where.on_true)
        yes, no = self.value(where.on_true), self.value(where.on_false)
        if all(c.is_affine for c in conditions):
            if no.kind != "constant" and all(map(is_along_one, conditions)):
                return self.builder.either(conditions, yes, no)
            return self.builder.where(conditions, yes, no)
        zero = self.builder.constant(0.0)
        for condition in conditions:
            holds = self.builder.apply("greater_equal", self.index(condition), zero)
            yes = self._choice(holds, yes, no)
        return yes

    def either(self, value: Value, left: tuple[Index, ...], arguments: tuple[Value, ...]) -> Value:
        """An `either` of which only some conditions are left, of other arguments."""
        if not left or arguments[0] is arguments[1]:
            return arguments[0]
        if left == value.indices and arguments == value.arguments:
            return value
        made = self.builder.either(left, *arguments)
        self.uses.setdefault(made, self.uses.get(value, 1))
        return made

    def chosen(self, value: Value) -> Value:
        """An `either` of which both are computed everywhere: what engines have for it."""
        if len(value.indices) == 1:
            return self.builder.where(value.indices, *value.arguments)
        return self._choice(self._all_hold(value.indices), *value.arguments)

    def _all_hold(self, conditions: tuple[Index, ...]) -> Value:
        """Whether the least of some conditions is at least 0, those of the same axes first: it is the same
        in loops over others."""
        groups: dict[frozenset[Axis], list[Value]] = {}
        for condition in conditions:
            groups.setdefault(condition.axes, []).append(self.index(condition))
        minimum = functools.partial(self.builder.apply, "minimum")
        least = functools.reduce(minimum, (functools.reduce(minimum, g) for g in groups.values()))
        return self.builder.apply("greater_equal", least, self.builder.constant(0.0))

    def conditional(self, value: Value) -> bool:
        """Whether there are conditions in a value."""
        if value not in self._conditional:
            below = any(map(self.conditional, value.arguments))
            self._conditional[value] = value.kind in ("where", "either") or below
        return self._conditional[value]

    def conditions(self, value: Value) -> frozenset[Index]:
        """The conditions in a value; parts that others share are looked at once."""
        seen, left = set[Value](), [value]
        while left:
            one = left.pop()
            if one not in seen and self.conditional(one):
                seen.add(one)
                left += one.arguments
        kinds = ("where", "either")
        return frozenset(index for one in seen if one.kind in kinds for index in one.indices)

    def changed(self, value: Value, change: Callable[[Value, tuple[Value, ...]], Value]) -> Value:
        """A value in which `change` makes each part with conditions of it and its arguments, those that others
        share once."""
        found: dict[Value, Value] = {}

        def visit(part: Value) -> Value:
            if part not in found:
                own = self.conditional(part)
                found[part] = change(part, tuple(map(visit, part.arguments))) if own else part
            return found[part]

        return visit(value)

    def rebuilt(self, value: Value, arguments: tuple[Value, ...]) -> Value:
        """A value of other arguments."""
        if arguments == value.arguments:
            return value
        if value.kind == "where":
            made = self.builder.where(value.indices, *arguments)
        elif value.kind == "either":
            return self.either(value, value.indices, arguments)
        elif value.kind == "apply":
            made = self.builder.apply(value.function, *arguments)
        elif value.kind == "reduce":
            made = self.builder.reduce(value.function, arguments[0], value.reduced)
        elif value.kind == "gather":
            made = self.builder.value(
                "gather", value.axes, array=value.array, indices=value.indices,
                reduced=value.reduced, arguments=arguments, dtype=value.dtype,
            )  # fmt: skip
        else:
            made = self._choice(*arguments)
        self.uses.setdefault(made, self.uses.get(value, 1))
        return made

    def exchanged(self, value: Value, array: str, other: Value) -> Value:
        """A value with another one in the place of the elements of an array."""
        if value.kind == "input" and value.array == array:
            return other
        return self.rebuilt(
            value, tuple(self.exchanged(part, array, other) for part in value.arguments)
        )

    def index(self, index: Index) -> Value:
        """An index as a number; floors are computed."""
        if not index.terms:
            return self.builder.constant(index.constant)
        plain = tuple((t, c) for t, c in index.terms if isinstance(t, Axis))
        total = self._position(Index(index.constant, plain))
        for term, factor in index.terms:
            if isinstance(term, Floor):
                inner, divisor = self.index(term.inner), self.builder.constant(term.divisor)
                rest = self.builder.apply("mod", inner, divisor)
                whole = self.builder.apply("subtract", inner, rest)
                # A quotient is exact where a product with an inverse need not be.
                floor = self.builder.value(
                    "apply", whole.axes, arguments=(whole, divisor), function="divide"
                )
                part = self.builder.apply("multiply", floor, self.builder.constant(factor))
                total = self.builder.apply("add", total, part)
        return total

    def _position(self, index: Index) -> Value:
        if not index.terms:
            return self.builder.constant(index.constant)
        return self.builder.value("position", index.axes, indices=(index,))


def is_along_one(condition: Index) -> bool:
    """Whether a condition is on one axis, but for short ones that are taken element by element."""
    return sum(axis.extent > MOST_PIECES for axis in condition.axes) <= 1


def inputs_of(value: Value) -> Iterator[Value]:
    """The elements of arrays that a value is made of."""
    parts = ir.each_once(value, lambda found: found.arguments)
    return (found for found in parts if found.kind in ("input", "gather"))


LARGEST = 3e38
"""No number of fp32 is much larger."""


class Builder:
    """Makes values, each once, in normal form: the functions are those that the engines have.

    `x / (1 + exp(-x))` is a silu; dividing by a number, or by a row's sum, is multiplying; factors that a
    sum does not run over come after it; of three factors the two that give the smallest array come first.
    All of it is exact in real numbers."""

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
