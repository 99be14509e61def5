"""What a value is while a kernel is lifted.

Besides the expressions of `algorithm`, there are sums and products in a normal form, reductions and
recurrences that stand where they are used, elements of arrays by their row-major address, and what
a loop carries from one iteration to the next. `Values` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from accelopt.algorithm.index import Axis, CachedHash, Index
from accelopt.algorithm.ir import Constant, Position, each_once


@dataclass(frozen=True, slots=True)
class Element(CachedHash):
    """An element of an input, `number` being its place among the kernel's arguments."""

    __hash__ = CachedHash.cached_hash

    array: str
    number: int
    dtype: str
    address: Index


@dataclass(frozen=True, slots=True)
class Undefined:
    """What memory holds that nothing has written. A kernel that uses it has no meaning."""


@dataclass(frozen=True, slots=True)
class Application(CachedHash):
    """A scalar function of values; what sums and products can say is none."""

    function: str
    arguments: tuple[Value, ...]

    __hash__ = CachedHash.cached_hash


@dataclass(frozen=True, slots=True)
class Choice(CachedHash):
    """`on_true` where every condition is at least 0, else `on_false`."""

    conditions: tuple[Index, ...]
    on_true: Value
    on_false: Value

    __hash__ = CachedHash.cached_hash


@dataclass(frozen=True, slots=True)
class Sum(CachedHash):
    """`constant + sum(coefficient * term)`."""

    __hash__ = CachedHash.cached_hash

    constant: float
    terms: tuple[tuple[Value, float], ...]


@dataclass(frozen=True, slots=True)
class Product(CachedHash):
    """`coefficient * product(factor ** power)`."""

    __hash__ = CachedHash.cached_hash

    coefficient: float
    factors: tuple[tuple[Value, float], ...]


@dataclass(frozen=True, slots=True)
class Fold(CachedHash):
    """`body` combined over all values of `axes`, which it binds."""

    __hash__ = CachedHash.cached_hash

    combiner: str
    axes: tuple[Axis, ...]
    body: Value


@dataclass(frozen=True, slots=True)
class ScanElement(CachedHash):
    """Element `at` of the recurrence r[t] = combine(scale(factor, r[t-1]), term) along the axis
    that it binds, with `initial` before element 0."""

    __hash__ = CachedHash.cached_hash

    scale: str
    factor: Value
    combine: str
    term: Value
    initial: Value
    along: Axis
    at: Index


@dataclass(frozen=True, slots=True)
class Lookup(CachedHash):
    """`element`, in whose address the axes @0, @1, ..., which it binds, are the integers `indices`."""

    __hash__ = CachedHash.cached_hash

    element: Value
    axes: tuple[Axis, ...]
    indices: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Carried(CachedHash):
    """What an element of a tensor holds when an iteration of a loop begins: `initial` in the first,
    and what the iteration before left in any other."""

    __hash__ = CachedHash.cached_hash

    tensor: int
    address: Index
    loop: tuple[int, ...]
    around: tuple[Index, ...]
    iteration: Index
    initial: Value


Value = (
    Constant
    | Element
    | Undefined
    | Sum
    | Product
    | Fold
    | ScanElement
    | Lookup
    | Carried
    | Application
    | Position
    | Choice
)
UNDEFINED = Undefined()
NEUTRAL = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}
RANKED = {f"largest_{rank}": rank for rank in range(2, 513)}
"""The second largest of some elements and so on, of which each counts as often as it occurs."""
PLACES = {f"place_{rank}": rank for rank in range(1, 513)}
"""Where the largest element, the second largest and so on is, by its row-major number; of equal ones the first is first."""
ORDERED = frozenset({*RANKED, *PLACES})
"""What depends on the order of all elements: a whole row is combined at once."""
REMAINING = {f"without_{name}": rank for name, rank in RANKED.items()}
"""An element, the other argument being the last of so many that are the largest: less than any where it is one of
those. Only the largest of such are known."""
INFINITE = 1e38
"""Numbers that large stand for infinity: kernels begin maxima with the least number of fp32."""


def children(value: Value) -> tuple[Value, ...]:
    """The values right below a value."""
    if isinstance(value, Sum):
        return tuple(term for term, _ in value.terms)
    if isinstance(value, Product):
        return tuple(factor for factor, _ in value.factors)
    if isinstance(value, Fold):
        return (value.body,)
    if isinstance(value, ScanElement):
        return value.factor, value.term, value.initial
    if isinstance(value, Carried):
        return (value.initial,)
    if isinstance(value, Application):
        return value.arguments
    if isinstance(value, Choice):
        return value.on_true, value.on_false
    return (value.element, *value.indices) if isinstance(value, Lookup) else ()


def own_indices(value: Value) -> tuple[Index, ...]:
    """The indices that stand in a value itself, not below it."""
    if isinstance(value, Element):
        return (value.address,)
    if isinstance(value, Position):
        return (value.index,)
    if isinstance(value, Choice):
        return value.conditions
    if isinstance(value, ScanElement):
        return (value.at,)
    if isinstance(value, Carried):
        return value.address, value.iteration, *value.around
    return ()


def bound_axes(value: Value) -> tuple[Axis, ...]:
    """The axes that a value binds."""
    if isinstance(value, (Fold, Lookup)):
        return value.axes
    return (value.along,) if isinstance(value, ScanElement) else ()


def details(value: Value) -> Hashable:
    """What is neither a part nor an index of a value."""
    if isinstance(value, Element):
        return value.array
    if isinstance(value, Application):
        return value.function, len(value.arguments)
    if isinstance(value, Fold):
        return value.combiner, value.axes
    if isinstance(value, ScanElement):
        return value.scale, value.combine, value.along
    if isinstance(value, Sum):
        return value.constant, tuple(c for _, c in value.terms)
    if isinstance(value, Product):
        return value.coefficient, tuple(power for _, power in value.factors)
    if isinstance(value, Choice):
        return len(value.conditions)
    if isinstance(value, Carried):
        return value.tensor, value.loop
    if isinstance(value, Lookup):
        return value.axes
    return value.value if isinstance(value, Constant) else None


def every(value: Value) -> Iterator[Value]:
    """The value and all below it, each distinct one once."""
    return each_once(value, children)
