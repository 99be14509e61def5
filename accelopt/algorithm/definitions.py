"""From the values of a kernel's outputs to the definitions of an Algorithm.

Every reduction and every scan becomes an array of its own, the same one for all that are alike;
what is elementwise stays in the definitions that need it. Axes are named so that one letter means
one axis of the problem throughout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from accelopt.algorithm import ir
from accelopt.algorithm.addresses import GuardedAddress, narrowed, subscripts, view_of
from accelopt.algorithm.axis_joining import join_free, joined_within
from accelopt.algorithm.axis_names import AxisNames
from accelopt.algorithm.bound_names import BoundNames
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.normal_forms import common_factor
from accelopt.algorithm.origins import Origins
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.value_nodes import (
    ORDERED,
    Application,
    Choice,
    Element,
    Fold,
    Lookup,
    Product,
    ScanElement,
    Sum,
    Undefined,
    Value,
    children,
    details,
    every,
    own_indices,
)
from accelopt.algorithm.values import Values, fresh_axis

MOST_SUMMED = 2
"""Axes of a reduction's result over which another one goes on."""
_KINDS = {"add": "total", "multiply": "power", "maximum": "largest", "minimum": "smallest"}


class UndefinedOutput(Exception):
    """An output has elements that nothing has written."""


@dataclass(frozen=True, slots=True)
class DefinedOutput:
    """A result: its value over its axes, and the array that the kernel returns; of an input that the kernel
    changes, or of a result before, which it `updates`. One that is put into rows, of so many elements, of that
    has the value `put`."""

    name: str
    axes: tuple[Axis, ...]
    value: Value
    dtype: str
    given: tuple[int, ...]
    updates: str = ""
    row: int = 0


def put(values: Values, value: Value, at: Value, place: Index, row: int) -> Value:
    """A value and the number of the row, of so many elements, that it is put into, `place` being the rest of
    its address."""
    known = at if isinstance(at, Sum) else Sum(0.0, ((at, 1.0),))
    place = place + int(known.constant) * row
    for term, step in known.terms:
        if isinstance(term, ir.Position):
            place = place + term.index * int(step) * row
    numbers = [(term, step) for term, step in known.terms if not isinstance(term, ir.Position)]
    return values.same(Application("put", (value, values.sum(numbers), ir.Position(place))))


def algorithm_of(
    values: Values,
    name: str,
    inputs: Sequence[ir.Array],
    outputs: Sequence[DefinedOutput],
    stages: Sequence[DefinedOutput] = (),
    origins: Origins | None = None,
    places: dict[str, Hashable] | None = None,
) -> ir.Algorithm:
    """The Algorithm that computes some outputs from inputs, which are in the kernel's shapes. `stages`
    are arrays on the way, in order, whose elements the outputs read. `places` comes to have the place
    that `origins` knows for each definition."""
    made = _Definitions(values, inputs, outputs, stages)
    algorithm = made.algorithm(name)
    if origins is not None and places is not None:
        for defined, value in made.made.items():
            if (place := origins.place(value)) is not None:
                places[defined] = place
    return algorithm


class _Definitions:
    def __init__(
        self, values: Values, inputs: Sequence[ir.Array], outputs: Sequence[DefinedOutput],
        stages: Sequence[DefinedOutput],
    ) -> None:  # fmt: skip
        stages, outputs = (
            [replace(o, value=rolled_up(values, o.value, o.axes)) for o in found]
            for found in (stages, outputs)
        )
        self._stages = stages
        self.made: dict[str, Value] = {}
        self._values = values
        self._outputs = outputs
        self._inputs = inputs
        self._found: dict[Value, tuple[str, tuple[Axis, ...]]] = {}
        self._definitions: list[ir.Definition] = []
        self._expressions: dict[Value, ir.Expression] = {}
        self._taken = {array.name for array in inputs} | {o.name for o in (*outputs, *stages)}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._subscripts: dict[tuple[str, Index], tuple[Index, ...]] = {}
        self._rank: dict[Axis, int] = {}
        self._bound_names = BoundNames(values)
        self._leaves: dict[Value, tuple[Element, ...]] = {}
        self._wholes: dict[Hashable, dict[Value, Fold]] = {}
        """Reductions by what those share that may be parts of one, and by their form over axes f0, f1, ..."""
        self._guards: dict[tuple[Value, Axis], tuple[int, int]] = {}
        for output in (*stages, *outputs):
            self._note_guards(output.value)
        parts = (ir.each_once(o.value, self._parts) for o in (*stages, *outputs))
        for part in dict.fromkeys(itertools.chain.from_iterable(parts)):
            if isinstance(part, Fold):
                renamed = self._named(part)[0]
                self._wholes.setdefault(self._kind(renamed), {})[renamed] = part

    def algorithm(self, name: str) -> ir.Algorithm:
        """The whole."""
        for output in (*self._stages, *self._outputs):
            self._rank = {axis: n for n, axis in enumerate(output.axes)}
            if self._direct(output) is None:
                parts = children(output.value)[:2] if output.row else (output.value,)
                self._definitions.append(
                    ir.Map(output.name, output.axes, *map(self._expression, parts))
                )
        self._view_inputs()
        inputs = tuple(
            ir.Array(a.name, self._shapes.get(a.name, a.shape), a.dtype, a.given)
            for a in self._inputs
        )
        definitions = [self._viewed(definition) for definition in self._definitions]
        outputs = tuple(map(_array, self._outputs))
        return AxisNames(inputs, definitions, outputs).algorithm(name)

    def _direct(self, output: DefinedOutput) -> ir.Definition | None:
        """An output that is a reduction or a scan as it stands."""
        value = output.value
        free = self._values.axes(value)
        if not isinstance(value, (Fold, ScanElement)) or set(output.axes) - free:
            return None
        if any(axis.extent > 1 and axis not in free for axis in output.axes):
            return None
        if isinstance(value, ScanElement) and value.at != index_of(value.along):
            axis = next((a for a in output.axes if value.at == index_of(a)), None)
            if axis is None or axis in self._values.axes(value.factor) | self._values.axes(
                value.term
            ):
                return None
        return self._define(value, output.axes, output.name)

    def _define(
        self, value: Fold | ScanElement, axes: tuple[Axis, ...], name: str
    ) -> ir.Definition:
        """Adds the definition of a reduction or scan over its free axes, in an order; an empty name
        is one to be found."""
        if isinstance(value, Fold):
            rest = self._of_parts(value)
            body = self._expression(rest.body)
            name = name or self._fresh_name(value)
            made: ir.Definition = ir.Reduce(name, axes, rest.axes, value.combiner, body)
        else:
            along = next(a for a in axes if value.at == index_of(a))
            own = {value.along: index_of(along)}
            parts = [
                self._expression(self._values.substitute(v, own))
                for v in (value.factor, value.term)
            ]
            initial = self._expression(value.initial)
            name = name or self._fresh_name(value)
            made = ir.Scan(
                name, axes, along, value.scale, parts[0], value.combine, parts[1], initial
            )
        self._definitions.append(made)
        self.made[name] = value
        return made

    # Expressions.

    def _expression(self, value: Value) -> ir.Expression:
        if value not in self._expressions:
            self._expressions[value] = self._made(value)
        return self._expressions[value]

    def _made(self, value: Value) -> ir.Expression:
        if isinstance(value, (ir.Constant, ir.Position)):
            return value
        if isinstance(value, Element):
            return ir.Read(value.array, (value.address,))
        if isinstance(value, Application):
            return ir.Apply(value.function, tuple(map(self._expression, value.arguments)))
        if isinstance(value, Choice):
            return ir.Where(
                value.conditions, self._guarded(value), self._expression(value.on_false)
            )
        if isinstance(value, Sum):
            return self._sum(value)
        if isinstance(value, Product):
            return self._product(value)
        if isinstance(value, (Fold, ScanElement)):
            return self._array(value)
        if isinstance(value, Lookup):
            found = self._expression(value.element)
            for axis, number in zip(value.axes, value.indices, strict=True):
                found = ir.Indirect(axis, self._expression(number), found)
            return found
        assert isinstance(value, Undefined), "what loops carry is settled or refused before"
        raise UndefinedOutput("a part of an output may be made of memory that nothing has written")

    def _guarded(self, choice: Choice) -> ir.Expression:
        """What a choice is where its conditions hold, of which reductions are defined nowhere else if what they
        read lies beyond its array there."""
        value, back = self._narrowed(choice)
        return (
            ir.substituted(self._expression(value), back, {}) if back else self._expression(value)
        )

    def _narrowed(self, choice: Choice) -> tuple[Value, dict[Axis, Index]]:
        """What a choice is where its conditions hold, over an axis as short as they leave it if what is read lies
        beyond its array elsewhere, and what that axis is."""
        narrow, value = narrowed(choice.conditions), choice.on_true
        if not narrow or all(e.address.bounds[0] >= 0 for e in self._elements(value)):
            return value, {}
        axis = narrow[0]
        ends = [self._guards[part, axis] for part in every(value) if (part, axis) in self._guards]
        if not ends:
            return value, {}
        low, high = min(e[0] for e in ends), max(e[1] for e in ends)
        shorter = Axis(f"{axis.name}'", high - low + 1)
        made = self._values.substitute(value, {axis: index_of(shorter) + low})
        return made, {shorter: index_of(axis) - low}

    def _note_guards(self, value: Value) -> None:
        """Where along an axis each reduction below a choice on that axis is taken at all."""
        for choice in every(value):
            if not isinstance(choice, Choice) or not (narrow := narrowed(choice.conditions)):
                continue
            axis, meaning, _ = narrow
            for part in (p for p in every(choice.on_true) if isinstance(p, Fold)):
                low = meaning.constant
                high = low + sum(other.extent for other in meaning.axes) - 1
                first, last = self._guards.get((part, axis), (low, high))
                self._guards[part, axis] = min(first, low), max(last, high)

    def _parts(self, value: Value) -> tuple[Value, ...]:
        """The values right below a value, as they are defined."""
        if isinstance(value, Choice):
            return self._narrowed(value)[0], value.on_false
        return children(value)

    def _sum(self, value: Sum) -> ir.Expression:
        lead = abs(common_factor(value))
        if lead != 1 and len(value.terms) > 2:  # of two, an activation takes both factors
            signs = tuple((term, math.copysign(1.0, c)) for term, c in value.terms)
            bare = Sum(math.copysign(1.0, value.constant) if value.constant else 0.0, signs)
            return ir.Apply("multiply", (self._sum(bare), ir.Constant(lead)))
        result: ir.Expression | None = None
        for term, coefficient in sorted(value.terms, key=_late):
            part = ir.times(self._expression(term), abs(coefficient))
            if result is None:
                result = part if coefficient > 0 else ir.Apply("negative", (part,))
            else:
                result = ir.Apply("add" if coefficient > 0 else "subtract", (result, part))
        assert result is not None
        if value.constant:
            name = "add" if value.constant > 0 else "subtract"
            result = ir.Apply(name, (result, ir.Constant(abs(value.constant))))
        return result

    def _product(self, value: Product) -> ir.Expression:
        above = [self._powered(f, p) for f, p in value.factors if p > 0 or p == -0.5]
        below = [self._powered(f, -p) for f, p in value.factors if p < 0 and p != -0.5]
        size = abs(value.coefficient)
        if size != 1 or not above:
            above.append(ir.Constant(size))
        result = above[0]
        for factor in above[1:]:
            result = ir.Apply("multiply", (result, factor))
        for factor in below:
            result = ir.Apply("divide", (result, factor))
        return result if value.coefficient > 0 else ir.Apply("negative", (result,))

    def _powered(self, value: Value, power: float) -> ir.Expression:
        part = self._expression(value)
        names = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt"}
        if power == 1:
            return part
        if power in names:
            return ir.Apply(names[power], (part,))
        return ir.Apply("power", (part, ir.Constant(power)))

    # Arrays of their own.

    def _array(self, value: Fold | ScanElement) -> ir.Expression:
        """A read of the array that a reduction or scan defines, made where it is new."""
        at: Index | None = None
        if isinstance(value, ScanElement):
            at = value.at
            value = self._whole_scan(value)
        renamed, own = self._named(value)
        places = {axis: index_of(axis) for axis in own}
        part = renamed
        while renamed not in self._found and (found := self._whole_of(renamed)):
            renamed = found[0]
            places = {axis: place.substitute(places) for axis, place in found[1].items()}
        if renamed is not part and renamed not in self._found:
            self._array(self._wholes[self._kind(renamed)][renamed])
        if renamed not in self._found:
            axes = tuple(self._as_asked(own))
            assert isinstance(renamed, (Fold, ScanElement))
            self._found[renamed] = (self._define(renamed, axes, "").out, axes)
        name, defined = self._found[renamed]
        indices = [places[axis].substitute(own) for axis in defined]
        if at is not None:
            assert isinstance(value, ScanElement)
            indices = [at if i == value.at else i for i in indices]
        return ir.Read(name, tuple(indices))

    def _named(self, value: Fold | ScanElement) -> tuple[Value, dict[Axis, Index]]:
        """A reduction or scan over axes f0, f1, ..., joined as far as they may be, and what they are."""
        joined, meaning = join_free(self._values, value)
        order = self._values.order_of_axes(joined)
        canonical = {axis: Axis(f"f{n}", axis.extent) for n, axis in enumerate(order)}
        renamed = self._values.substitute(joined, {a: index_of(b) for a, b in canonical.items()})
        own = {canonical[axis]: meaning.get(axis, index_of(axis)) for axis in order}
        return self._bound_names.of(renamed)[0], own

    def _whole_of(self, part: Value) -> tuple[Value, dict[Axis, Index]] | None:
        """A reduction over one more or one longer axis that another is at some places of, and those."""
        own = self._values.order_of_axes(part)
        for whole in self._wholes.get(self._kind(part), ()):
            others = self._values.order_of_axes(whole)
            for axis in others if 0 <= len(others) - len(own) <= 1 else ():
                number = others.index(axis)
                along = own[number : number + 1 - len(others) + len(own)]
                rest = [axis for axis in own if axis not in along]
                beside = [other for other in others if other != axis]
                if [a.extent for a in rest] != [a.extent for a in beside]:
                    continue
                moved = {b: index_of(a) for a, b in zip(rest, beside, strict=True)}
                for place in self._places(whole, part, axis, *along):
                    places = {**moved, axis: place}
                    found = self._values.substitute(whole, places)
                    if self._bound_names.of(found)[0] == part:
                        return whole, places
        return None

    def _of_parts(self, whole: Fold) -> Fold:
        """A reduction as one of what another has come to over some of its axes, where there is such a one: a sum
        over all of what is summed by rows as well is the sum of those of the rows."""
        size = math.prod(axis.extent for axis in whole.axes)
        kept, own = self._named(whole)
        parts = [pair for found in self._wholes.values() for pair in found.items()]
        parts.sort(key=lambda pair: pair[0] not in self._found)
        for _, part in parts:
            own_size = math.prod(axis.extent for axis in part.axes)
            if (
                part.combiner != whole.combiner
                or whole.combiner in ORDERED
                or not 1 < own_size < size
            ):
                continue
            free = self._values.order_of_axes(part)
            for count in range(1, min(len(free), MOST_SUMMED) + 1):
                for summed in itertools.combinations(free, count):
                    if math.prod(axis.extent for axis in summed) * own_size != size:
                        continue
                    made = fold(self._values, part.combiner, [*summed, *part.axes], part.body)
                    made = joined_within(self._values, made)
                    found, places = self._named(made) if isinstance(made, Fold) else (made, {})
                    if found != kept or any(len(i.terms) != 1 for i in places.values()):
                        continue
                    taken = {*self._values.axes(part), *self._values.axes(whole)}
                    fresh = list[Axis]()
                    for axis in summed:
                        fresh.append(fresh_axis(axis.extent, {*taken, *fresh}))
                    moved = {next(iter(i.axes)): own[axis] for axis, i in places.items()}
                    moved |= {a: index_of(b) for a, b in zip(summed, fresh, strict=True)}
                    inner = self._values.substitute(part, moved)
                    return Fold(whole.combiner, tuple(fresh), inner)
        return whole

    def _kind(self, value: Value) -> Hashable:
        """What reductions share of which one may be a part of the other."""
        if not isinstance(value, Fold):
            return None
        arrays = frozenset(part.array for part in self._elements(value))
        return value.combiner, tuple(sorted(axis.extent for axis in value.axes)), arrays

    def _places(self, whole: Value, part: Value, axis: Axis, *along: Axis) -> Iterator[Index]:
        """Where an axis of a reduction may lie that another one is a part of, by the constants in addresses."""
        length = along[0].extent if along else 1
        first = next((e for e in self._elements(whole) if e.address.coefficient(axis)), None)
        if length < axis.extent and first is not None:
            step = first.address.coefficient(axis)
            for other in self._elements(part):
                if other.array == first.array:
                    number, left = divmod(other.address.constant - first.address.constant, step)
                    if not left and 0 <= number <= axis.extent - length:
                        yield sum(map(index_of, along), Index(number))

    def _elements(self, value: Value) -> tuple[Element, ...]:
        """The elements that a value is made of."""
        if value not in self._leaves:
            below = (part for part in every(value) if isinstance(part, Element))
            self._leaves[value] = tuple(below)
        return self._leaves[value]

    def _as_asked(self, own: dict[Axis, Index]) -> list[Axis]:
        """Axes in the order that they have in the output which they are first needed for."""

        def rank(axis: Axis) -> int:
            return min(self._rank.get(part, len(self._rank)) for part in own[axis].axes)

        return sorted(own, key=rank)

    def _whole_scan(self, value: ScanElement) -> ScanElement:
        """All elements of a scan: its position is an axis of its own."""
        taken = {a.name for a in self._values.axes(value)} | {value.along.name}
        number = 0
        while f"t{number}" in taken:
            number += 1
        along = Axis(f"t{number}", value.along.extent)
        found = self._values.same(
            ScanElement(value.scale, value.factor, value.combine, value.term, value.initial,
                  value.along, index_of(along))
        )  # fmt: skip
        assert isinstance(found, ScanElement)
        return found

    def _fresh_name(self, value: Fold | ScanElement) -> str:
        kind = _KINDS.get(value.combiner, value.combiner) if isinstance(value, Fold) else "state"
        if isinstance(value, Fold) and value.combiner == "add" and isinstance(value.body, Product):
            kind = "product" if len(value.body.factors) > 1 else "total"
        name, number = kind, 1
        while name in self._taken:
            number += 1
            name = f"{kind}{number}"
        self._taken.add(name)
        return name

    # Views.

    def _view_inputs(self) -> None:
        reads: dict[str, dict[GuardedAddress, None]] = {}
        for definition in self._definitions:
            for expression in ir.expressions_of(definition):
                _note_reads(expression, reads)
        stages = {
            stage.name: ir.Array(
                stage.name, tuple(a.extent for a in stage.axes), stage.dtype, stage.given
            )
            for stage in self._stages
        }
        for array in (*self._inputs, *stages.values()):
            accesses = list(reads.get(array.name, ()))
            if not accesses:
                continue
            fixed = array.name in stages
            shape = array.shape if fixed else view_of(accesses, array.shape)
            self._shapes[array.name] = shape
            for access in accesses:
                found = subscripts(access, shape)
                before = self._subscripts.setdefault((array.name, access.address), found)
                if before != found:  # what one of them takes from its guards
                    bare = subscripts(GuardedAddress(access.address), shape)
                    self._subscripts[array.name, access.address] = bare

    def _viewed(self, definition: ir.Definition) -> ir.Definition:
        """A definition with subscripts in the place of addresses."""

        def viewed(read: ir.Read) -> ir.Read:
            if read.array not in self._shapes:
                return read
            return ir.Read(read.array, self._subscripts[read.array, read.indices[0]])

        return ir.with_reads(definition, viewed)


def _array(output: DefinedOutput) -> ir.Array:
    shape = tuple(axis.extent for axis in output.axes)
    if not output.row:
        return ir.Array(output.name, shape, output.dtype, output.given, updates=output.updates)
    place = children(output.value)[2]
    assert isinstance(place, ir.Position)
    return ir.Array(
        output.name, shape, output.dtype, output.given, updates=output.updates, row=output.row,
        first=place.index.constant, steps=tuple(map(place.index.coefficient, output.axes)),
    )  # fmt: skip


def _note_reads(expression: ir.Expression, reads: dict[str, dict[GuardedAddress, None]]) -> None:
    """Adds every read below an expression, with the conditions under which it counts."""
    seen: set[tuple[ir.Expression, tuple[Index, ...]]] = set()
    waiting: list[tuple[ir.Expression, tuple[Index, ...]]] = [(expression, ())]
    while waiting:
        part, guards = waiting.pop()
        if (part, guards) in seen:
            continue
        seen.add((part, guards))
        if isinstance(part, ir.Read):
            for address in part.indices[:1]:  # what is one number has none
                reads.setdefault(part.array, {})[GuardedAddress(address, guards)] = None
        elif isinstance(part, ir.Where):
            waiting.append((part.on_true, (*guards, *part.conditions)))
            otherwise = (
                tuple(c * -1 - 1 for c in part.conditions) if len(part.conditions) == 1 else ()
            )
            waiting.append((part.on_false, (*guards, *otherwise)))
        else:
            waiting.extend((child, guards) for child in ir.parts_of(part))


def _late(pair: tuple[Value, float]) -> tuple[bool, bool]:
    """Elements are added last, and what is subtracted after them."""
    return pair[1] < 0, isinstance(pair[0], Element)


MOST_ROUNDS = 128
"""Of a loop that Python unrolled; each of them is read once more."""


def rolled_up(values: Values, value: Value, axes: tuple[Axis, ...]) -> Value:
    """The value, without choices by the place along those of some axes along which all that is chosen
    follows one rule: what stands at 0 and 1 gives the rule, and all other places are asked."""
    choices = [part for part in every(value) if isinstance(part, Choice)]
    chosen = {axis for part in choices for condition in part.conditions for axis in condition.axes}
    for axis in axes:
        if axis in chosen and 1 < axis.extent <= MOST_ROUNDS:
            first, second = (values.substitute(value, {axis: Index(n)}) for n in (0, 1))
            made = _along(values, first, second, axis)
            if made is not None and all(
                values.substitute(made, {axis: Index(n)})
                == values.substitute(value, {axis: Index(n)})
                for n in range(1, axis.extent)
            ):
                value = made
    return value


def _along(values: Values, first: Value, second: Value, axis: Axis) -> Value | None:
    """The value that is `first` at 0 of an axis and `second` at 1, and differs in places alone."""
    if first is second:
        return first
    if isinstance(first, Constant) and isinstance(second, Constant):
        step = second.value - first.value
        return values.sum([(values.position(index_of(axis)), step)], first.value)
    if type(first) is not type(second) or details(first) != details(second):
        return None
    places = [
        _line(*pair, axis) for pair in zip(own_indices(first), own_indices(second), strict=True)
    ]
    pairs = zip(children(first), children(second), strict=True)
    parts = [_along(values, *pair, axis) for pair in pairs]
    known = [part for part in parts if part is not None]
    found = [place for place in places if place is not None]
    if len(known) < len(parts) or len(found) < len(places):
        return None
    return values.with_parts(first, known, found)


def _line(first: Index, second: Index, axis: Axis) -> Index | None:
    """The index that is `first` at 0 of an axis and `second` at 1."""
    if first.terms != second.terms:
        return None
    return first + index_of(axis) * (second.constant - first.constant)
