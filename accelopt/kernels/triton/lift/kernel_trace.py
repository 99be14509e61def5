"""The trace of a file with kernels, and the tiles that it is made of."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import numpy as np

from accelopt.algorithm.elementwise_functions import elementwise
from accelopt.algorithm.index import Index
from accelopt.algorithm.ir import Constant, Position
from accelopt.algorithm.numpy_functions import where_
from accelopt.algorithm.origins import Origins
from accelopt.algorithm.traced_array import (
    NotTraced,
    Storage,
    Trace,
    TracedArray,
    index_value,
    is_float,
)  # fmt: skip
from accelopt.algorithm.value_nodes import Choice, Sum, Value
from accelopt.sim.errors import SourceLine


def flat(value: Value) -> tuple[Index, list[tuple[Value, float]]]:
    """A sum as an index and what else is in it."""
    index, rest = Index(), list[tuple[Value, float]]()
    waiting: list[tuple[Value, float]] = [(value, 1.0)]
    while waiting:
        part, factor = waiting.pop()
        own = index_value(part)
        if own is not None and factor == int(factor):
            index = index + own * int(factor)
        elif isinstance(part, Sum) and part.constant * factor == int(part.constant * factor):
            index = index + int(part.constant * factor)
            waiting += [(term, factor * times) for term, times in part.terms]
        else:
            rest.append((part, factor))
    return index, rest


class KernelTrace(Trace):
    """The trace of a file with kernels and of what it imports."""

    looks_up = True

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.files = {path}
        self.statement = (path, 0)
        self.origins = Origins()

    def array(self, shape: Sequence[int], dtype: Any, value: Value) -> Tile:
        """A new tile, whose value is over d0, d1, ..."""
        if isinstance(value, Sum) and np.dtype(dtype).kind in "iu":
            value = self.whole_number(value)
        return Tile(self, Storage(tuple(shape), np.dtype(dtype), value))

    def whole_number(self, value: Value) -> Value:
        """A sum of whole numbers: an index, by cases where terms are chosen, or the sum as it is."""
        values, (index, rest) = self.values, flat(value)
        choice = next((term for term, _ in rest if isinstance(term, Choice)), None)
        if not rest:
            return values.position(index)
        if choice is None:
            return value
        pair: list[Value] = []
        for yes in (True, False):
            parts: list[tuple[Value, float]] = [(values.position(index), 1.0)]
            for term, factor in rest:
                same = isinstance(term, Choice) and term.conditions == choice.conditions
                held = (
                    (term.on_true if yes else term.on_false) if isinstance(term, Choice) else term
                )
                parts.append((held if same else term, factor))
            made = self.whole_number(values.sum(parts))
            if not isinstance(made, (Position, Constant, Choice)):
                return value
            pair.append(made)
        return values.where(choice.conditions, *pair)

    def line(self) -> tuple[str, int]:
        """The file and the line of a kernel or of its host function that is being executed."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in self.files:
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return self.statement

    def note(self, held: Any, line: tuple[str, int]) -> None:
        """What a statement at a line leaves: its reductions and recurrences come from there."""
        for tile in held if isinstance(held, tuple) else (held,):
            if isinstance(tile, Tile):
                self.origins.note(tile.value, SourceLine(*line))

    def refuse(self, reason: str) -> NoReturn:
        """Raises NotTraced at the line that is being executed."""
        self.refuse_at(self.line(), reason)

    def refuse_at(self, line: tuple[str, int], reason: str) -> NoReturn:
        """Raises NotTraced at a line."""
        raise NotTraced(reason, *line)


class Tile(TracedArray):
    """A tensor or a scalar of a kernel."""

    type = property(lambda self: self)
    scalar = property(lambda self: self)
    element_ty = property(lambda self: self.dtype)

    def _divided(self, name: str, other: Any) -> Any:
        """Integers are divided towards 0, and have remainders of the dividend's sign."""
        index = index_value(self.value)
        found = elementwise(self.trace, name, [self, other])
        if is_float(found.dtype) or index is None or index.bounds[0] >= 0:
            return found
        away = elementwise(self.trace, name, [-self, other]) * -1
        return where_(self.trace, self >= 0, found, away)

    def __floordiv__(self, other: Any) -> Any:
        return self._divided("floor_divide", other)

    def __mod__(self, other: Any) -> Any:
        return self._divided("remainder", other)

    def to(self, dtype: Any, *_: Any, bitcast: bool = False, **__: Any) -> Tile:
        """tl.cast."""
        if bitcast:
            self.trace.refuse("a tile's bits as another format have no definition as an Algorithm")
        return cast(Tile, self.astype(dtype))

    cast = to

    def trans(self, *order: Any) -> TracedArray:
        """tl.trans: the last two dimensions exchanged, or all in an order."""
        if order:
            return self.transpose(*order)
        return self.swapaxes(-1, -2) if self.ndim > 1 else self

    permute = TracedArray.transpose
    view = TracedArray.reshape

    def broadcast_to(self, *shape: Any) -> TracedArray:
        """tl.broadcast_to."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self.broadcast(tuple(int(n) for n in given))

    def expand_dims(self, axis: Any) -> TracedArray:
        """tl.expand_dims."""
        return cast(TracedArray, np.expand_dims(cast(Any, self), axis))
