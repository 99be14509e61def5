"""Arrays of a NumPy reference while it is traced: what each element is, as a value over axes.

A `TracedArray` is a view of a `Storage`, which holds a value over its own axes `d0`, `d1`, ... and
pieces that were assigned since. What NumPy computes of traced arrays are values again; views share
their storage, so what is assigned through one is seen through all.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from accelopt.algorithm.definitions import put
from accelopt.algorithm.index import Axis, Index, digits, element_number, index_of
from accelopt.algorithm.ir import Constant, Position
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.rerolling import progression
from accelopt.algorithm.value_nodes import (
    NEUTRAL,
    UNDEFINED,
    Application,
    Element,
    Product,
    Sum,
    Value,
)
from accelopt.algorithm.values import Values, fresh_axis

MASKED = "elements that a mask chooses have no number that is known beforehand"
LARGEST_TABLE = 64
"""Elements of an array of numbers that follow no formula, and are chosen by their place."""


class NotTraced(Exception):
    """`reason` says what of a reference has no definition as an Algorithm, on which `line`."""

    def __init__(self, reason: str, path: str = "", line: int = 0) -> None:
        self.reason, self.path, self.line = reason, path, line
        super().__init__(f"{Path(path).name}:{line}: {reason}" if line else reason)


@dataclass
class Piece:
    """What was assigned to a box of a storage: `counts` elements in each dimension from `starts` at
    `steps`; `value` is over the axes d0, d1, ... of the box."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    value: Value

    @property
    def region(self) -> tuple[tuple[int, ...], ...]:
        """Where it lies."""
        return self.starts, self.steps, self.counts


class Scatter(NamedTuple):
    """What was assigned where numbers of an input choose: `put` over the axes of its shape, into rows of so
    many elements; `select` makes a value of it and of what was there."""

    put: Value
    shape: tuple[int, ...]
    row: int
    select: Callable[[], None]


@dataclass
class Storage:
    """Elements in memory, of an `input` with that name. A `scatter` is what was assigned last, as long as
    nobody reads that."""

    shape: tuple[int, ...]
    dtype: np.dtype
    value: Value
    pieces: list[Piece] = field(default_factory=list)
    scatter: Scatter | None = None
    input: str = ""

    @property
    def untouched(self) -> str:
        """The name of the input of which it has the elements, in their order; empty where it is none."""
        whole = element_number(identity(self.shape), self.shape)
        own = isinstance(self.value, Element) and self.value.address == whole
        return self.input if own and not self.pieces else ""

    def settle(self) -> None:
        """Makes the elements what they are after the scatter."""
        scatter, self.scatter = self.scatter, None
        if scatter is not None:
            scatter.select()


def axes_of_shape(shape: Sequence[int]) -> tuple[Axis, ...]:
    """The axes that values of a shape are over."""
    return tuple(Axis(f"d{n}", extent) for n, extent in enumerate(shape))


def identity(shape: Sequence[int]) -> tuple[Index, ...]:
    """The indices of an element, by its axes; 0 along dimensions of length 1."""
    return tuple(index_of(a) if a.extent != 1 else Index() for a in axes_of_shape(shape))


class Trace:
    """What all arrays of one trace share: values, and the file that is traced. Elements of inputs that
    numbers of inputs choose are looked up where `looks_up` says so, or where they are more than those they are
    chosen of; else they are summed over all that may be. Where one instruction finds the places of several of the
    largest elements, equal ones among them, places are `ranked_places`; else each is found by comparisons."""

    looks_up = False
    ranked_places = True

    def __init__(self, path: str) -> None:
        self.values = Values()
        self.path = path
        self.own_code: dict[str, dict[str, Any]] = {}  # names in NumPy's modules, by those

    def refuse(self, reason: str) -> NoReturn:
        """Raises NotTraced at the line of the reference that is being executed."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.path:
                raise NotTraced(reason, self.path, frame.f_lineno)
            frame = cast(Any, frame.f_back)
        raise NotTraced(reason, self.path)

    # Making arrays.

    def array(self, shape: Sequence[int], dtype: Any, value: Value) -> TracedArray:
        """A new array, whose value is over d0, d1, ..."""
        return TracedArray(self, Storage(tuple(shape), np.dtype(dtype), value))

    def number(self, value: Any) -> Value:
        """A Python or NumPy number."""
        if isinstance(value, complex) or not isinstance(
            value, (bool, int, float, np.number, np.bool_)
        ):
            self.refuse(f"{type(value).__name__} has no definition as an Algorithm")
        return self.values.number(float(value))

    def traced(self, given: Any) -> TracedArray:
        """An operand of any kind as a traced array."""
        if isinstance(given, TracedArray):
            return given
        if isinstance(given, (list, tuple)) and any(isinstance(g, TracedArray) for g in given):
            return self.stacked([self.traced(g) for g in given], 0)
        array = np.asarray(given)
        if array.dtype.kind not in "biuf" and array.dtype.name not in FLOATS:
            self.refuse(f"an array of {array.dtype} has no definition as an Algorithm")
        if not array.ndim:
            return self.array((), array.dtype, self.number(array.item()))
        return self.array(array.shape, array.dtype, self._formula(array))

    def _formula(self, array: np.ndarray) -> Value:
        """An array of numbers as a function of its indices."""
        numbers = array.astype(np.float64)
        first = float(numbers.flat[0]) if array.size else 0.0
        if array.size and np.all(numbers == first):
            return self.number(first)
        steps = []
        for n, extent in enumerate(array.shape):
            at = tuple(1 if k == n else 0 for k in range(array.ndim))
            steps.append(float(numbers[at]) - first if extent > 1 else 0.0)
        plane = np.full(array.shape, first)
        for n, step in enumerate(steps):
            along = np.arange(array.shape[n]).reshape(-1, *(1,) * (array.ndim - 1 - n))
            plane = plane + along * step
        axes = identity(array.shape)
        if np.array_equal(plane, numbers):
            terms = [(self.values.position(a), s) for a, s in zip(axes, steps, strict=True)]
            found = self.values.sum(terms, first)
            index = index_value(found)
            return found if index is None else self.values.position(index)
        band = self._band(numbers)
        if band is not None:
            return band
        if array.size > LARGEST_TABLE:
            self.refuse(
                f"an array of {' x '.join(map(str, array.shape))} numbers follows no formula that "
                "is known; make it an input"
            )
        place, found = element_number(axes, array.shape), self.number(float(numbers.flat[-1]))
        for n, number in reversed(list(enumerate(numbers.flat[:-1]))):
            found = self.values.where(
                [place - n, place * -1 + n], self.number(float(number)), found
            )
        return found

    def _band(self, numbers: np.ndarray) -> Value | None:
        """Two numbers, one of them between two parallel lines through the last two dimensions."""
        low, high = np.min(numbers), np.max(numbers)
        if numbers.ndim < 1 or not np.all((numbers == low) | (numbers == high)):
            return None
        rows = (numbers == high).reshape(-1, *((1,) * (numbers.ndim == 1)), *numbers.shape[-2:])
        if not np.all(rows == rows[0]):
            return None
        place = identity(numbers.shape)
        row, column = np.indices(rows[0].shape)
        for slope, (within, other) in itertools.product((0, 1, -1), ((high, low), (low, high))):
            held = rows[0] == (within == high)
            line = column - slope * row
            first, last = line[held].min(), line[held].max()
            if np.array_equal(held, (line >= first) & (line <= last)):
                at = place[-1] - (place[-2] * slope if slope else 0)
                ends = (
                    (at - int(first), first > line.min()),
                    (at * -1 + int(last), last < line.max()),
                )
                inside = self.number(float(within)), self.number(float(other))
                return self.values.where([end for end, matters in ends if matters], *inside)
        return None

    # Reading and assigning.

    def read(self, view: TracedArray) -> Value:
        """The value of a view, over the axes of its shape."""
        storage = view.storage
        storage.settle()
        for piece in reversed(storage.pieces):
            inside = _inside(view.indices, piece)
            if inside is not None:
                return self._moved(piece.value, piece.counts, inside)
            if not _apart(view.indices, piece):
                self.flush(storage)
                break
        return self._moved(storage.value, storage.shape, view.indices)

    def _moved(self, value: Value, shape: Sequence[int], indices: Sequence[Index]) -> Value:
        return self.values.substitute(value, dict(zip(axes_of_shape(shape), indices, strict=True)))

    def write(self, view: TracedArray, given: TracedArray) -> None:
        """Assigns through a view."""
        value = given.broadcast(view.shape).value
        storage = view.storage
        storage.settle()
        value = converted(self, value, given.dtype, storage.dtype)
        axes = axes_of_shape(view.shape)
        starts, steps, counts, back = [], [], [], dict[Axis, Index]()
        for own, index in zip(axes_of_shape(storage.shape), view.indices, strict=True):
            if len(index.terms) > 1 or any(t not in axes for t, _ in index.terms):
                self.refuse("assigning through a view that was reshaped is not known to the tracer")
            starts.append(index.constant)
            steps.append(index.terms[0][1] if index.terms else 1)
            axis = cast(Axis, index.terms[0][0]) if index.terms else None
            counts.append(axis.extent if axis else 1)
            if axis is not None:
                if axis in back:
                    self.refuse("assigning to a diagonal is not known to the tracer")
                back[axis] = index_of(Axis(own.name, axis.extent))
        if any(axis not in back for axis in axes if axis.extent > 1):
            self.refuse("assigning to what was broadcast is an error in NumPy")
        for n, step in enumerate(steps):
            if step < 0:  # the same elements from the other end
                starts[n] += step * (counts[n] - 1)
                axis = next(a for a, i in back.items() if axes_named(i) == f"d{n}")
                back[axis] = back[axis] * -1 + (counts[n] - 1)
                steps[n] = -step
        value = self.values.substitute(value, back)
        if tuple(counts) == storage.shape:
            storage.value, storage.pieces = value, []
            return
        piece = Piece(tuple(starts), tuple(steps), tuple(counts), value)
        storage.pieces = [p for p in storage.pieces if p.region != piece.region] + [piece]

    def flush(self, storage: Storage) -> None:
        """Makes one value of a storage and its pieces."""
        storage.settle()
        pieces, storage.pieces = storage.pieces, []
        rolled = self._rolled(storage, pieces) if len(pieces) > 1 else None
        for piece in rolled or pieces:
            self._put(storage, piece)

    def _put(self, storage: Storage, piece: Piece) -> None:
        conditions, inside = [], []
        whole = identity(storage.shape)
        for index, extent, start, step, count in zip(
            whole, storage.shape, *piece.region, strict=True
        ):
            first, rest = divmod(start, step)
            place = index // step - first
            if step > 1 and rest > 0:
                conditions.append(index % step - rest)
            if step > 1 and rest < step - 1:
                conditions.append((index % step) * -1 + rest)
            if first > 0:
                conditions.append(place)
            if (extent - 1 - rest) // step - first > count - 1:
                conditions.append(place * -1 + (count - 1))
            inside.append(place if count > 1 else Index())
        value = self._moved(piece.value, piece.counts, inside)
        base = storage.value
        if base is not UNDEFINED and isinstance(value, Sum):
            added = self.values.sum([(value, 1.0), (base, -1.0)])
            if not isinstance(added, Sum) or len(added.terms) < len(value.terms):
                kept = self.values.where(conditions, added, self.values.number(0))
                storage.value = self.values.sum([(base, 1.0), (kept, 1.0)])
                return
        storage.value = self.values.where(conditions, value, base)

    def _rolled(self, storage: Storage, pieces: list[Piece]) -> list[Piece] | None:
        """Alike pieces that lie in a grid as one piece."""
        pieces = sorted(pieces, key=lambda piece: piece.starts)
        first = pieces[0]
        if any(p.region[1:] != first.region[1:] or any(s != 1 for s in p.steps) for p in pieces):
            return None
        grid: list[tuple[int, int]] = []  # number of pieces and their distance, by dimension
        for n, count in enumerate(first.counts):
            places = sorted({piece.starts[n] for piece in pieces})
            apart = places[1] - places[0] if len(places) > 1 else count
            if places != list(range(places[0], places[0] + apart * len(places), apart)):
                return None
            if apart != count and (len(places) > 1 and count != 1):
                return None
            grid.append((len(places), apart))
        if math.prod(number for number, _ in grid) != len(pieces):
            return None
        found = progression(self.values, [piece.value for piece in pieces])
        if found is None:
            return None
        axis, template = found
        number, inside, steps = Index(), [], []
        counts = tuple(c * n for (n, _), c in zip(grid, first.counts, strict=True))
        for own, (several, apart), count in zip(identity(counts), grid, first.counts, strict=True):
            number = number * several + own // count
            inside.append(own % count)
            steps.append(apart if count == 1 and several > 1 else 1)
        back = dict(zip(axes_of_shape(first.counts), inside, strict=True))
        value = self.values.substitute(template, {**back, axis: number})
        return [Piece(first.starts, tuple(steps), counts, value)]

    def stacked(self, parts: Sequence[TracedArray], axis: int) -> TracedArray:
        """np.stack."""
        return self.joined([part[_key(axis % (part.ndim + 1), None)] for part in parts], axis)

    def joined(self, parts: Sequence[TracedArray], axis: int) -> TracedArray:
        """np.concatenate."""
        axis %= parts[0].ndim
        length = sum(part.shape[axis] for part in parts)
        shape = (*parts[0].shape[:axis], length, *parts[0].shape[axis + 1 :])
        made = self.array(shape, np.result_type(*(part.dtype for part in parts)), UNDEFINED)
        start = 0
        for part in parts:
            end = start + part.shape[axis]
            made[_key(axis, slice(start, end))] = part
            start = end
        return made


FLOATS = ("bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")
"""Formats that NumPy has from elsewhere."""


def is_float(dtype: np.dtype) -> bool:
    """Whether numbers of a format have fractions."""
    return dtype.kind == "f" or dtype.name in FLOATS


def converted(trace: Trace, value: Value, have: np.dtype, want: np.dtype) -> Value:
    """A value in another format: rounded to a narrower one, cut off for an integer."""
    values = trace.values
    if want.kind == "b":
        if have.kind == "b":
            return value
        return values.same(Application("not_equal", (value, values.number(0))))
    if want.kind in "iu":
        return values.same(Application("trunc", (value,))) if is_float(have) else value
    if not is_float(want):
        trace.refuse(f"a conversion to {want} has no definition as an Algorithm")
    narrow = want.name in (*FLOATS, "float16")
    exact = (
        have == want or isinstance(value, Constant) or (have.kind in "iub" and have.itemsize == 1)
    )
    return values.same(Application(want.name, (value,))) if narrow and not exact else value


def axes_named(index: Index) -> str:
    """The name of the only axis of an index."""
    return next(iter(index.axes)).name


def _key(axis: int, what: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, what)


def _inside(indices: Sequence[Index], piece: Piece) -> list[Index] | None:
    """The indices of a view in the axes of a piece that holds all of it."""
    found = []
    for index, start, step, count in zip(indices, *piece.region, strict=True):
        moved = index - start
        if step > 1:
            if any(c % step for _, c in moved.terms) or moved.constant % step:
                return None
            moved = moved // step
        low, high = moved.bounds
        if low < 0 or high >= count:
            return None
        found.append(moved)
    return found


def _apart(indices: Sequence[Index], piece: Piece) -> bool:
    """Whether no element of a view lies in a piece."""
    for index, start, step, count in zip(indices, *piece.region, strict=True):
        low, high = index.bounds
        if high < start or low > start + step * (count - 1):
            return True
        if (
            step > 1
            and (index.constant - start) % step
            and not any(c % step for _, c in index.terms)
        ):
            return True
    return False


class TracedArray(NDArrayOperatorsMixin):
    """A view of a storage: `indices` says which of its elements are there, over the view's axes."""

    __array_priority__ = 100.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, trace: Trace, storage: Storage, shape: Sequence[int] | None = None,
        indices: Sequence[Index] | None = None,
    ) -> None:  # fmt: skip
        self.trace = trace
        self.storage = storage
        self.shape = tuple(storage.shape if shape is None else shape)
        self.indices = tuple(identity(self.shape) if indices is None else indices)

    # What NumPy's arrays have.

    @property
    def dtype(self) -> np.dtype:
        """The format."""
        return self.storage.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def T(self) -> TracedArray:
        """Transposed."""
        return self.transpose()

    __class__ = property(lambda self: np.ndarray)  # for isinstance
    flat = property(lambda self: self.reshape(-1))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.dtype.itemsize)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each dimension, as in an array of its own."""
        lengths = (math.prod(self.shape[n + 1 :]) for n in range(self.ndim))
        return tuple(length * self.dtype.itemsize for length in lengths)

    mT = property(lambda self: self.swapaxes(-1, -2))

    @property
    def value(self) -> Value:
        """What the elements are, over the axes of the shape."""
        return self.trace.read(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[TracedArray]:
        return (self[n] for n in range(len(self)))

    def _known(self, what: str) -> float:
        value = self.value
        if isinstance(value, Constant) and self.size == 1:
            return value.value
        return self.trace.refuse(
            f"{what} of a computed array: what Python does must not depend on numbers of the inputs"
        )

    def __bool__(self) -> bool:
        return bool(self._known("the truth"))

    def __float__(self) -> float:
        return self._known("float()")

    def __int__(self) -> int:
        return int(self._known("int()"))

    def __index__(self) -> int:
        return int(self._known("an index"))

    def item(self, *place: int) -> Any:
        """One number, computed or known."""
        array = self.reshape(-1)[place[0]] if len(place) == 1 else self[place] if place else self
        return array.value.value if isinstance(array.value, Constant) else array.reshape(())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.trace.refuse("a conversion of a computed array to numbers has no definition")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = METHODS.get(name)
        if function is None:
            self.trace.refuse(f"ndarray.{name} has no definition as an Algorithm")
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return HANDLERS["ufunc"](self.trace, ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return HANDLERS["function"](self.trace, func, args, kwargs)

    # Views.

    @property
    def is_whole(self) -> bool:
        """Whether the view has all elements of its storage, in their order."""
        place = element_number(self.indices, self.storage.shape)
        return place == element_number(identity(self.shape), self.shape)

    def view_as(self, shape: Sequence[int], old: Mapping[Axis, Index]) -> TracedArray:
        """A view whose axes stand for this one's as `old` says."""
        indices = [index.substitute(old) for index in self.indices]
        return type(self)(self.trace, self.storage, shape, indices)

    def broadcast(self, shape: Sequence[int]) -> TracedArray:
        """np.broadcast_to."""
        lead = len(shape) - self.ndim
        if lead < 0 or any(
            have not in (1, want) for have, want in zip(self.shape, shape[lead:], strict=True)
        ):
            raise ValueError(f"cannot broadcast an array of shape {self.shape} to {tuple(shape)}")
        own = axes_of_shape(self.shape)
        new = identity(shape)[lead:]
        return self.view_as(shape, {a: i for a, i in zip(own, new, strict=True) if a.extent > 1})

    def transpose(self, *axes: Any) -> TracedArray:
        """np.transpose."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        places = [n % self.ndim for n in (order or range(self.ndim)[::-1])]
        shape = [self.shape[n] for n in places]
        own = axes_of_shape(self.shape)
        return self.view_as(
            shape, {own[p]: i for p, i in zip(places, identity(shape), strict=True)}
        )

    def swapaxes(self, one: int, other: int) -> TracedArray:
        """np.swapaxes."""
        places = list(range(self.ndim))
        places[one], places[other] = places[other], places[one]
        return self.transpose(places)

    def reshape(self, *shape: Any, order: str = "C", **_: Any) -> TracedArray:
        """np.reshape."""
        wanted = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer))
                      else shape)  # fmt: skip
        wanted = [int(n) for n in wanted]
        if order == "F":
            return self.T.reshape(wanted[::-1]).T
        if -1 in wanted:
            rest = math.prod(n for n in wanted if n != -1)
            wanted[wanted.index(-1)] = self.size // rest if rest else 0
        if math.prod(wanted) != self.size:
            raise ValueError(f"cannot reshape an array of shape {self.shape} into {tuple(wanted)}")
        number = element_number(identity(wanted), wanted)
        own = axes_of_shape(self.shape)
        return self.view_as(wanted, dict(zip(own, digits(number, self.shape), strict=True)))

    def astype(self, dtype: Any, *_: Any, **__: Any) -> TracedArray:
        """A copy in another format."""
        want = np.dtype(dtype)
        value = converted(self.trace, self.value, self.dtype, want)
        return self.trace.array(self.shape, want, value)

    def copy(self, *_: Any, **__: Any) -> TracedArray:
        """A copy."""
        return self.trace.array(self.shape, self.dtype, self.value)

    def __getitem__(self, key: Any) -> TracedArray:
        if isinstance(key, TracedArray) and key.dtype.kind == "b" and key.ndim:
            if key.shape != self.shape[: key.ndim]:
                raise IndexError(f"a mask of shape {key.shape} does not match {self.shape}")
            return cast(TracedArray, HANDLERS["chosen"](self.copy(), key))
        keys, advanced = self._keys(key)
        if advanced:
            return self._taken(keys)
        shape: list[int] = []
        for part, extent in zip(keys, self._extents(keys), strict=True):
            if part is None:
                shape.append(1)
            elif isinstance(part, slice):
                shape.append(len(range(*part.indices(extent))))
        new = iter(identity(shape))
        own = iter(axes_of_shape(self.shape))
        old: dict[Axis, Index] = {}
        for part, extent in zip(keys, self._extents(keys), strict=True):
            if part is None:
                next(new)
                continue
            axis = next(own)
            if isinstance(part, slice):
                start, _, step = part.indices(extent)
                old[axis] = next(new) * step + start
            else:
                place = int(part)
                if not -extent <= place < extent:
                    raise IndexError(f"index {place} is out of bounds for length {extent}")
                old[axis] = Index(place % extent)
        return self.view_as(shape, old)

    def _extents(self, keys: Sequence[Any]) -> list[int]:
        lengths = iter(self.shape)
        return [1 if part is None else next(lengths) for part in keys]

    def _keys(self, key: Any) -> tuple[list[Any], bool]:
        """One key for each dimension, None for new ones, and whether one is an array."""
        parts = list(key) if isinstance(key, tuple) else [key]
        used = sum(part is not None and part is not Ellipsis for part in parts)
        at = next((n for n, part in enumerate(parts) if part is Ellipsis), len(parts))
        if used > self.ndim:
            raise IndexError(f"{used} indices for an array of {self.ndim} dimensions")
        fill = [slice(None)] * (self.ndim - used)
        parts = [*parts[:at], *fill, *(p for p in parts[at:] if p is not Ellipsis)]
        advanced = False
        for n, part in enumerate(parts):
            if isinstance(part, (list, np.ndarray)) and np.ndim(part):
                array = part if isinstance(part, TracedArray) else np.asarray(part)
                parts[n] = self.trace.traced(array.nonzero()[0] if array.dtype == bool and array.ndim == 1
                                             and not isinstance(part, TracedArray) else array)  # fmt: skip
            if isinstance(parts[n], TracedArray):
                if not parts[n].ndim and isinstance(parts[n].value, Constant):
                    parts[n] = int(parts[n])
                else:
                    advanced = True
        return parts, advanced

    def _taken(self, keys: list[Any]) -> TracedArray:
        """Elements by arrays of integers, which are functions of the place or read from an input."""
        rest, result, places, chosen = self._addressed(keys)
        own = axes_of_shape(rest.shape)
        if not chosen:
            return rest.view_as(result, {own[n]: i for n, i in places.items()})
        return cast(TracedArray, HANDLERS["gather"](rest, result, places, chosen))

    def _select(self, selected: tuple[TracedArray, TracedArray] | None) -> None:
        """Assigns what `_selected` made."""
        if selected is None:
            self.trace.refuse("elements to which numbers of an input choose what is assigned (a scatter) have no "
                              "definition as an Algorithm where they are read or changed again")  # fmt: skip
        self.trace.write(*selected)

    def _selected(
        self, keys: list[Any], given: TracedArray
    ) -> tuple[TracedArray, TracedArray] | None:
        """A view and what it holds once one element of each of its rows, which numbers of an input choose, is
        assigned to; None where that is no such assignment."""
        trace, values = self.trace, self.trace.values
        rest, result, places, chosen = self._addressed(keys)
        own, back = axes_of_shape(rest.shape), _places_back(rest.shape, result, places)
        if len(chosen) != 1 or back is None or len(back) < sum(n > 1 for n in result):
            return None
        ((n, number),) = chosen
        made, taken = (
            values.substitute(value, back)
            for value in (given.broadcast(result).value, self._taken(keys).value)
        )
        same = Application(
            "equal", (values.substitute(number, back), values.position(index_of(own[n])))
        )
        new = [values.same(same), values.replace(made, taken, rest.value), rest.value]
        return rest, trace.array(rest.shape, rest.dtype, apply(values, "select", new))

    def add_at(self, key: Any, given: TracedArray, combiner: str = "add") -> None:
        """np.add.at, or that of another ufunc."""
        trace, values = self.trace, self.trace.values
        keys, advanced = self._keys(key)
        if not advanced:
            value = apply(
                values, combiner, [self[key].value, given.broadcast(self[key].shape).value]
            )
            trace.write(self[key], trace.array(self[key].shape, self.dtype, value))
            return
        rest, result, places, chosen = self._addressed(keys)
        own, back = axes_of_shape(rest.shape), _places_back(rest.shape, result, places)
        if back is None:
            trace.refuse("np.add.at with these indices has no definition as an Algorithm")
        value = given.broadcast(result).value
        taken = {*own, *axes_of_shape(result), *values.axes(value)}
        summed = list[Axis]()
        for axis in axes_of_shape(result):
            if axis.extent > 1 and axis not in back:
                summed.append(fresh_axis(axis.extent, {*taken, *summed}))
                back[axis] = index_of(summed[-1])
        alike = (Application("equal", (number, values.position(index_of(a))))
                 for n, number in chosen for a in [Axis(f"own{n}", own[n].extent)])  # fmt: skip
        tests = [values.same(a) for a in alike]
        if combiner == "add":
            body = values.product([(value, 1.0), *((test, 1.0) for test in tests)])
        else:
            body = value
            for test in tests:
                none = values.number(NEUTRAL[combiner])
                body = apply(values, "select", [test, body, none])
        back |= {Axis(f"own{n}", own[n].extent): index_of(own[n]) for n, _ in chosen}
        total = fold(values, combiner, summed, values.substitute(body, back))
        total = apply(values, combiner, [rest.value, total])
        trace.write(rest, trace.array(rest.shape, rest.dtype, total))

    def _scatter(
        self, keys: list[Any], given: TracedArray, select: Callable[[], None]
    ) -> Scatter | None:
        """What is assigned to rows that numbers of an input choose; None where they are no rows, and in a loop."""
        values, storage = self.trace.values, self.storage
        rest, result, places, chosen = self._addressed(keys)
        own = axes_of_shape(rest.shape)
        place = element_number(rest.indices, storage.shape)
        steps = {n: place.coefficient(own[n]) for n, _ in chosen}
        if not place.is_affine or 0 in steps.values():
            return None
        moved = {own[n]: i for n, i in places.items()} | {own[n]: Index() for n in steps}
        row = math.gcd(*steps.values())
        at = values.sum([(number, steps[n] / row) for n, number in chosen])
        value = converted(self.trace, given.broadcast(result).value, given.dtype, storage.dtype)
        made = put(values, value, at, place.substitute(moved), row)
        if values.axes(made) - {*axes_of_shape(result)}:
            return None
        return Scatter(made, result, row, select)

    def _addressed(
        self, keys: list[Any]
    ) -> tuple[TracedArray, tuple[int, ...], dict[int, Index], list[tuple[int, Value]]]:
        """What arrays of integers choose of what slices leave: that, the shape of the result, and along which
        dimension its elements are at which places, or at which numbers."""
        trace = self.trace
        if any(key is None for key in keys):  # dimensions of one element, taken whole
            widened = self[tuple(key if key is None else slice(None) for key in keys)]
            return widened._addressed([slice(None) if key is None else key for key in keys])
        arrays = [
            n for n, key in enumerate(keys) if isinstance(key, (TracedArray, int, np.integer))
        ]
        given = [trace.traced(keys[n]) for n in arrays]
        if any(g.dtype.kind == "b" for g in given):
            trace.refuse(MASKED)
        shape = np.broadcast_shapes(*(g.shape for g in given))
        beside = arrays == list(range(arrays[0], arrays[-1] + 1))
        lead = arrays[0] if beside else 0
        kept = [n for n in range(self.ndim) if n not in arrays]
        rest = self[tuple(slice(None) if n in arrays else keys[n] for n in range(self.ndim))]
        before = [n for n in kept if n < lead]
        after = [n for n in kept if n >= lead]
        result = (*(rest.shape[n] for n in before), *shape, *(rest.shape[n] for n in after))
        axes = identity(result)
        places: dict[int, Index] = {}
        for k, n in enumerate(before):
            places[n] = axes[k]
        for k, n in enumerate(after):
            places[n] = axes[len(before) + len(shape) + k]
        moved = dict(
            zip(axes_of_shape(shape), axes[len(before) : len(before) + len(shape)], strict=True)
        )
        chosen: list[tuple[int, Value]] = []
        for n, g in zip(arrays, given, strict=True):
            value = trace.values.substitute(g.broadcast(shape).value, moved)
            index = index_value(value)
            if index is not None:
                low, high = index.bounds
                if high < 0:
                    index = index + self.shape[n]
                    low, high = index.bounds
                if low < 0 or high >= self.shape[n]:
                    trace.refuse("an array of indices leaves the array that it is used on")
                places[n] = index
            else:
                chosen.append((n, value))
        return rest, result, places, chosen

    def __setitem__(self, key: Any, given: Any) -> None:
        trace = self.trace
        mask = key if isinstance(key, (TracedArray, np.ndarray)) else None
        if mask is not None and mask.dtype.kind == "b":
            mask = trace.traced(mask)
            if getattr(given, "mask", None) is not None:
                given = HANDLERS["chosen"](self, mask).of_whole(given)
            elif trace.traced(given).ndim > self.ndim - mask.ndim:
                trace.refuse("an array that is assigned where a mask holds has no known places")
            while mask.ndim < self.ndim:
                mask = mask[..., None]
            trace.write(self, HANDLERS["where"](trace, mask, given, self))
            return
        keys, advanced = self._keys(key)
        if advanced and self._addressed(keys)[-1]:
            keys = [key.copy() if isinstance(key, TracedArray) else key for key in keys]
            given = trace.traced(given).copy()
            trace.flush(self.storage)
            selected = self._selected(keys, given)
            scatter = self._scatter(keys, given, lambda: self._select(selected))
            if scatter and (self.storage.untouched or not selected):
                self.storage.scatter = scatter
            else:
                self._select(selected)
        else:
            trace.write(self[key], trace.traced(given))


HANDLERS: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
"""Filled by `numpy_functions`: what NumPy's functions and methods are of traced arrays."""


def _places_back(
    shape: Sequence[int], result: Sequence[int], places: Mapping[int, Index]
) -> dict[Axis, Index] | None:
    """Where along the dimensions of an array lie axes of what is assigned to it, `places` having those of each
    dimension; None where they are no plain axes."""
    own = axes_of_shape(shape)
    at = {index: own[n] for n, index in places.items() if shape[n] > 1}
    back = {axis: index_of(at[i]) for axis in axes_of_shape(result) if (i := index_of(axis)) in at
            and at[i].extent == axis.extent}  # fmt: skip
    return back if len(back) == len(at) else None


def index_value(value: Value) -> Index | None:
    """The index that a value of positions and whole numbers is."""
    if isinstance(value, Position):
        return value.index
    if isinstance(value, Constant):
        whole = math.isfinite(value.value) and value.value == int(value.value)
        return Index(int(value.value)) if whole else None
    if isinstance(value, Sum):
        found = index_value(Constant(value.constant))
        for term, coefficient in value.terms:
            part = index_value(term)
            if part is None or found is None or coefficient != int(coefficient):
                return None
            found = found + part * int(coefficient)
        return found
    if isinstance(value, Product) and len(value.factors) == 1 and value.factors[0][1] == 1:
        part = index_value(value.factors[0][0])
        whole = value.coefficient == int(value.coefficient)
        return part * int(value.coefficient) if part is not None and whole else None
    return None
