"""What a kernel computes, apart from how: whole arrays, and what defines each of their elements.

An Algorithm is a list of definitions. A Map gives every element of an array by an expression; a
Reduce combines an expression over further axes; a Scan is a first-order recurrence along an axis.
Expressions are scalar functions (named as in `accelopt.sim.operators`) of elements of arrays,
numbers, and conditions on axes; an index may be an element of an integer array. Nothing says where or when anything is computed.

Values are real numbers: copies, layouts and conversions to a wider format are not there. What a
kernel rounds to a narrower format is, as a function named after it (`bfloat16(x)`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from accelopt.algorithm.index import Axis, CachedHash, Floor, Index, index_of
from accelopt.algorithm.linear import row_major

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Array:
    """A whole array. Elements are read by indices into `shape`, whose axes are those of the
    problem; the kernel has the same elements, row-major, in the shape `given`. A result is `partial`
    whose kernel leaves elements as its memory held them: those at places that no number says, which its
    definition has as 0. It `updates` the input that its kernel changes in place and returns, or an output
    before it, which is not returned itself; what is
    prepared for a kernel may be those elements alone that change, the `first` of which and `steps` along
    whose axes count elements of the input. Where its Map says `at` which number, it is a scatter: the
    elements of an axis lie that many times `row` further on."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    given: tuple[int, ...]
    partial: bool = field(default=False, compare=False)
    updates: str = ""
    first: int = 0
    steps: tuple[int, ...] = ()
    row: int = 0


@dataclass(frozen=True, slots=True)
class Constant:
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class Read:
    """One element of an input or of an earlier definition."""

    array: str
    indices: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """An index, as a number to compute with."""

    index: Index


@dataclass(frozen=True, slots=True)
class Apply(CachedHash):
    """A scalar function (`add`, `exp`, `silu`, ...) of scalars."""

    function: str
    arguments: tuple[Expression, ...]

    __hash__ = CachedHash.cached_hash


@dataclass(frozen=True, slots=True)
class Where(CachedHash):
    """`on_true` where every condition is at least 0, else `on_false`, which is not evaluated
    elsewhere: its reads may lie out of bounds there, and so may those of `on_true`."""

    conditions: tuple[Index, ...]
    on_true: Expression
    on_false: Expression

    __hash__ = CachedHash.cached_hash


@dataclass(frozen=True, slots=True)
class Indirect(CachedHash):
    """`element`, a Read or another Indirect, in whose indices `axis` is the integer `at`, a number from
    0 to the axis's extent - 1 that is read or computed at run time: a gather. No definition has `axis`;
    it is named @0, @1, ..."""

    axis: Axis
    at: Expression
    element: Expression

    __hash__ = CachedHash.cached_hash


Expression = Constant | Read | Position | Apply | Where | Indirect


@dataclass(frozen=True, slots=True)
class Map:
    """`out[axes] = expression`. Of a result that updates an input, `at` may be a whole number that is read
    or computed at run time, of the row of the input where an element is put; of those that are put in one
    place the last stays, in the order of the axes."""

    out: str
    axes: tuple[Axis, ...]
    expression: Expression
    at: Expression | None = None


@dataclass(frozen=True, slots=True)
class Reduce:
    """`out[axes] = combiner over reduced of expression`."""

    out: str
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    combiner: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Scan:
    """`out[.., t, ..] = combine(scale(factor, out[.., t - 1, ..]), term)` along the axis t of
    `axes`, with `initial` before the first element. `scale` and `combine` name functions:
    multiply and add make the recurrence of a state space model, or a cumulative sum."""

    out: str
    axes: tuple[Axis, ...]
    along: Axis
    scale: str
    factor: Expression
    combine: str
    term: Expression
    initial: Expression


Definition = Map | Reduce | Scan


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Inputs, definitions in an order in which they can be computed, and which of the defined
    arrays are the results. Every output is an array of its own, in the order of the kernel's
    results."""

    name: str
    inputs: tuple[Array, ...]
    definitions: tuple[Definition, ...]
    outputs: tuple[Array, ...]

    def input(self, name: str) -> Array:
        """The input of that name. Raises KeyError."""
        found = {array.name: array for array in self.inputs}
        return found[name]

    @property
    def returned(self) -> tuple[Array, ...]:
        """The outputs that the kernel returns: those that no later one updates."""
        updated = {array.updates for array in self.outputs}
        return tuple(array for array in self.outputs if array.name not in updated)

    def updated(self, array: Array) -> Array:
        """The array, an input or an output, that an output updates. Raises KeyError."""
        return {found.name: found for found in (*self.inputs, *self.outputs)}[array.updates]

    def definition(self, name: str) -> Definition:
        """What defines the array of that name. Raises KeyError."""
        found = {definition.out: definition for definition in self.definitions}
        return found[name]

    def to_json(self) -> str:
        """As JSON text, which `from_json` reads."""
        return json.dumps(_plain(self))


def from_json(text: str) -> Algorithm:
    """The Algorithm that `to_json` wrote. Raises ValueError for any other text."""
    found = _revived(json.loads(text))
    if not isinstance(found, Algorithm):
        raise ValueError("this JSON is not an Algorithm")
    return found


def place_of(array: Array, definition: Definition) -> Index:
    """Where an element of a result lies in the input that it updates, but for the number that it is put at."""
    steps = array.steps or row_major(array.shape)
    terms = (index_of(a) * step for a, step in zip(definition.axes, steps, strict=False))
    return sum(terms, Index(array.first))


def expressions_of(definition: Definition) -> tuple[Expression, ...]:
    """The expressions that a definition evaluates."""
    if isinstance(definition, Scan):
        return definition.factor, definition.term, definition.initial
    if isinstance(definition, Map) and definition.at is not None:
        return definition.expression, definition.at
    return (definition.expression,)


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions right below an expression."""
    if isinstance(expression, Apply):
        return expression.arguments
    if isinstance(expression, Where):
        return expression.on_true, expression.on_false
    return (expression.at, expression.element) if isinstance(expression, Indirect) else ()


def with_parts(expression: Expression, parts: Iterable[Expression]) -> Expression:
    """The expression with others in the places of `parts_of` it."""
    parts = tuple(parts)
    if isinstance(expression, Apply):
        return Apply(expression.function, parts)
    if isinstance(expression, Where):
        return Where(expression.conditions, *parts)
    return Indirect(expression.axis, *parts) if isinstance(expression, Indirect) else expression


def exchanged(expression: Expression, old: Expression, new: Expression) -> Expression:
    """The expression with another in the place of a part."""
    if expression == old:
        return new
    return with_parts(expression, (exchanged(p, old, new) for p in parts_of(expression)))


def with_expressions(definition: Definition, made: Iterable[Expression]) -> Definition:
    """The definition with others in the places of `expressions_of` it."""
    if isinstance(definition, Scan):
        factor, term, initial = made
        return replace(definition, factor=factor, term=term, initial=initial)
    expression, *at = made
    if isinstance(definition, Map):
        return replace(definition, expression=expression, at=next(iter(at), None))
    return replace(definition, expression=expression)


def times(expression: Expression, number: float) -> Expression:
    """The expression by a number; itself by 1."""
    return expression if number == 1.0 else Apply("multiply", (expression, Constant(number)))


def rewritten(
    expression: Expression,
    change: Callable[[Expression], Expression | None],
    done: dict[Expression, Expression] | None = None,
) -> Expression:
    """The expression with what `change` gives in the place of its largest parts for which that is not None. `done`
    keeps what was changed before."""
    done = {} if done is None else done
    found = done.get(expression)
    if found is None:
        found = change(expression)
        if found is None:
            parts = (rewritten(part, change, done) for part in parts_of(expression))
            found = with_parts(expression, parts)
        done[expression] = found
    return found


def with_changes(
    definition: Definition, change: Callable[[Expression], Expression | None]
) -> Definition:
    """The definition with its expressions `rewritten`."""
    return with_expressions(definition, [rewritten(e, change) for e in expressions_of(definition)])


def with_reads(definition: Definition, change: Callable[[Read], Expression]) -> Definition:
    """The definition with other expressions in the place of the elements that it reads."""
    return with_changes(definition, lambda part: change(part) if isinstance(part, Read) else None)


def with_part(definition: Definition, old: Expression, new: Expression) -> Definition:
    """The definition with an expression in the place of another, wherever that stands."""
    return with_changes(definition, lambda part: new if part == old else None)


def with_axes(definition: Definition, names: Mapping[Axis, Axis]) -> Definition:
    """The definition with others in the place of its axes."""
    values, done = (
        {old: index_of(new) for old, new in names.items()},
        dict[Expression, Expression](),
    )
    found = (substituted(e, values, done) for e in expressions_of(definition))
    made = replace(with_expressions(definition, found), axes=_renamed(definition.axes, names))
    if isinstance(made, Reduce):
        return replace(made, reduced=_renamed(made.reduced, names))
    return (
        replace(made, along=names.get(made.along, made.along)) if isinstance(made, Scan) else made
    )


def _renamed(axes: Iterable[Axis], names: Mapping[Axis, Axis]) -> tuple[Axis, ...]:
    return tuple(names.get(axis, axis) for axis in axes)


def with_definition(algorithm: Algorithm, old: Definition, *new: Definition) -> Algorithm:
    """The Algorithm with others in the place of a definition."""
    at = algorithm.definitions.index(old)
    before, after = algorithm.definitions[:at], algorithm.definitions[at + 1 :]
    return replace(algorithm, definitions=(*before, *new, *after))


def with_names(algorithm: Algorithm, names: Mapping[str, str]) -> Algorithm:
    """The Algorithm with other names for some arrays."""

    def renamed(read: Read) -> Read:
        return replace(read, array=names.get(read.array, read.array))

    def named(array: Array) -> Array:
        updates = names.get(array.updates, array.updates)
        return replace(array, name=names.get(array.name, array.name), updates=updates)

    definitions = (
        replace(with_reads(d, renamed), out=names.get(d.out, d.out)) for d in algorithm.definitions
    )
    return Algorithm(
        algorithm.name, tuple(map(named, algorithm.inputs)), tuple(definitions),
        tuple(map(named, algorithm.outputs)),
    )  # fmt: skip


def each_once(root: T, parts: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """What `parts` leads to from a root, and the root, each distinct one once."""
    seen: set[T] = set()
    waiting = [root]
    while waiting:
        found = waiting.pop()
        if found not in seen:
            seen.add(found)
            yield found
            waiting.extend(parts(found))


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all below it, each distinct one once."""
    return iter(_walked(expression))


@functools.lru_cache(maxsize=8192)  # a search walks the same ones for each of its nests
def _walked(expression: Expression) -> tuple[Expression, ...]:
    return tuple(each_once(expression, parts_of))


@functools.lru_cache(maxsize=1 << 16)
def written_size(expression: Expression) -> int:
    """How many parts an expression has, each counted as often as it stands in it."""
    return 1 + sum(map(written_size, parts_of(expression)))


def indices_of(expression: Expression) -> tuple[Index, ...]:
    """The indices that stand in an expression itself, not below it."""
    if isinstance(expression, Read):
        return expression.indices
    if isinstance(expression, Position):
        return (expression.index,)
    return expression.conditions if isinstance(expression, Where) else ()


def substituted(
    expression: Expression, axes: Mapping[Axis, Index], done: dict[Expression, Expression]
) -> Expression:
    """The expression with indices in the place of axes, and without choices that those decide. `done` keeps what was
    changed before."""
    found = done.get(expression)
    if found is None:
        if isinstance(expression, Read):
            found = Read(expression.array, tuple(i.substitute(axes) for i in expression.indices))
        elif isinstance(expression, Position):
            found = Position(expression.index.substitute(axes))
        else:
            found = with_parts(
                expression, (substituted(p, axes, done) for p in parts_of(expression))
            )
            if isinstance(found, Where):
                conditions = tuple(index.substitute(axes) for index in found.conditions)
                if any(index.bounds[1] < 0 for index in conditions):
                    found = found.on_false
                else:
                    open_ = tuple(index for index in conditions if index.bounds[0] < 0)
                    found = replace(found, conditions=open_) if open_ else found.on_true
        done[expression] = found
    return found


def parts_in(definition: Definition) -> Iterator[Expression]:
    """All parts of the expressions that a definition evaluates."""
    return (part for expression in expressions_of(definition) for part in walk(expression))


def reads_in(definition: Definition) -> list[Read]:
    """Every element that a definition reads."""
    return [part for part in parts_in(definition) if isinstance(part, Read)]


def arrays_read(definition: Definition) -> set[str]:
    """The arrays that a definition reads, but for itself."""
    return {read.array for read in reads_in(definition)} - {definition.out}


def own_axes(definition: Definition) -> tuple[Axis, ...]:
    """Axes of the result, then those that are reduced."""
    return (*definition.axes, *(definition.reduced if isinstance(definition, Reduce) else ()))


@functools.lru_cache(maxsize=8192)
def axes_of(expression: Expression) -> frozenset[Axis]:
    """Every axis that the value of an expression depends on."""
    found: set[Axis] = set()
    bound: set[Axis] = set()
    for part in walk(expression):
        for index in indices_of(part):
            found |= index.axes
        if isinstance(part, Indirect):
            bound.add(part.axis)
    return frozenset(found - bound)


_RECORDS: dict[str, Any] = {
    record.__name__: record
    for record in (
        Axis, Floor, Index, Array, Constant, Read, Position, Apply, Where, Indirect, Map, Reduce, Scan,
        Algorithm,
    )
}  # fmt: skip


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if type(value).__name__ in _RECORDS:
        record = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]
        return {"is": type(value).__name__, **record}
    return value


def _revived(value: object) -> object:
    if isinstance(value, list):
        return tuple(_revived(item) for item in value)
    if isinstance(value, dict):
        record = {key: _revived(item) for key, item in value.items() if key != "is"}
        try:
            return _RECORDS[value["is"]](**record)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this JSON is not an Algorithm: {error}") from None
    return value
