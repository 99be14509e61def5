"""Loops of the `nki` dialect: Python's own. Where a loop's body uses its index in addresses alone, it
is traced once, with a symbolic index, and stays a loop of the Program; where its Python needs the
number, or carries something from one iteration to the next, it runs as it is written.

Source: SDK 2.32 language guide, "Compilation Model": every loop but dynamic ones is unrolled; nl.*_range
are Python's range. A loop kept as one is what that unrolls to, said shorter.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from accelopt.sim.affine import Affine, LoopVariable, variable
from accelopt.sim.call_sites import LoopKey, call_chain
from accelopt.sim.dialects.neuronxcc.index import TileIndex, number_of
from accelopt.sim.errors import SourceLine
from accelopt.sim.loops import Before, KernelRange, for_statement
from accelopt.sim.program import LoopKind
from accelopt.sim.tracer import current


class AllLoops(frozenset[LoopKey]):
    """The set of every loop: nothing is kept symbolic."""

    def __contains__(self, key: object) -> bool:
        return True


class Condition:
    """A comparison of loop indices that is not the same in all iterations: when Python asks, the
    loops are unrolled. `difference` is `left - right`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, relation: str, difference: Affine) -> None:
        self.relation = relation
        self.difference = difference

    def __bool__(self) -> bool:
        current().demand(self.difference.loop_variables)

    def holds_after_first(self) -> LoopVariable | None:
        """The loop in every iteration but the first of which this holds (`k > 0`), or None."""
        terms = self.difference.terms
        if len(terms) != 1 or not isinstance(terms[0][0], LoopVariable):
            return None
        index, factor = terms[0]
        assert isinstance(index, LoopVariable)
        constant = self.difference.constant
        values = [factor * value + constant for value in index.values]
        held = [bool(_RELATIONS[self.relation](value, 0)) for value in values]
        return index if held and not held[0] and all(held[1:]) else None


_RELATIONS: dict[str, Any] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def _decided(relation: str, difference: Affine) -> bool | None:
    """The comparison of a difference with 0, when it is the same for all values of its loops."""
    low, high = difference.bounds
    compare = _RELATIONS[relation]
    if relation in ("==", "!="):
        if low == high:
            return bool(compare(low, 0))
        return relation == "!=" if low > 0 or high < 0 else None
    first, last = bool(compare(low, 0)), bool(compare(high, 0))
    return first if first == last else None


def _comparison(relation: str) -> Callable[[Counter, Any], Any]:
    return lambda self, other: self._relation(relation, other)


def _of_number(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that works on an index's number."""
    return lambda self, *others: function(number_of(self), *others)


def _into_number(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same with the number as the second operand."""
    return lambda self, other: function(other, number_of(self))


class Counter(TileIndex):
    """A loop index that is still open: affine arithmetic keeps it so, anything else asks for the
    number, and the loop is unrolled."""

    __slots__ = ()

    def _relation(self, relation: str, other: Any) -> Any:
        if isinstance(other, (float, np.floating)):
            return bool(_RELATIONS[relation](number_of(self), other))
        if not isinstance(other, (int, np.integer, TileIndex)):
            return NotImplemented
        difference = (self - other).affine
        known = _decided(relation, difference)
        return Condition(relation, difference) if known is None else known

    __lt__, __le__, __gt__, __ge__, __eq__, __ne__ = map(_comparison, _RELATIONS)  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self != 0)

    def _number(self, *_: Any) -> int:
        return number_of(self)

    __index__ = __int__ = _number  # type: ignore[assignment]
    __float__ = _of_number(float)
    __hash__ = _of_number(hash)  # type: ignore[assignment]
    __truediv__, __pow__ = _of_number(operator.truediv), _of_number(operator.pow)
    __rtruediv__, __rpow__, __rfloordiv__, __rmod__ = map(
        _into_number, (operator.truediv, operator.pow, operator.floordiv, operator.mod)
    )

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (float, np.floating)):
            return number_of(self) * other
        return super().__mul__(other)

    __rmul__ = __mul__

    def __getitem__(self, key: Any) -> TileIndex:
        raise TypeError("'int' object is not subscriptable")

    def __repr__(self) -> str:
        terms = [f"{c}*i{t.id}" for t, c in self.affine.terms if isinstance(t, LoopVariable)]
        return "+".join([*terms, str(self.affine.constant)])

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return repr(self)


class Range(KernelRange):
    """What range and the nl.*_range functions return inside of a kernel."""

    def __init__(self, *bounds: Any) -> None:
        numbers = [_whole(bound) for bound in bounds if bound is not None]
        self.values = range(*numbers)
        self.kind = LoopKind.SEQUENTIAL

    def __getitem__(self, item: Any) -> Any:
        return self.values[item]

    def __iter__(self) -> Iterator[Any]:
        tracer = current()
        frame = sys._getframe(1)
        key = call_chain(frame)
        statement = for_statement(frame)
        if statement is None or len(self.values) < 2 or key in tracer.unrolled:
            yield from self.values
            return
        index = LoopVariable(
            tracer.fresh_id(), self.values.start, self.values.step, len(self.values)
        )
        source = SourceLine(frame.f_code.co_filename, frame.f_lineno)
        before = Before(frame, statement)
        with tracer.loop(index, self.kind, source, key):
            try:
                yield Counter(variable(index))
            except GeneratorExit:  # break, return, or an exception on its way out
                if not tracer.demanded:  # else another loop is why
                    tracer.demanded.add(key)
                raise
            if next(before.changes(lambda old, new: False), None) is not None:
                tracer.demand(frozenset({index}))


def _whole(bound: Any) -> int:
    """A bound as Python's own range takes it: no floats."""
    return number_of(bound) if isinstance(bound, TileIndex) else operator.index(bound)


def _extremum(least: bool) -> Callable[..., Any]:
    choose = min if least else max

    def function(*values: Any, **options: Any) -> Any:
        if options or len(values) < 2 or not any(isinstance(value, TileIndex) for value in values):
            return choose(*values, **options)
        best = values[0]
        for value in values[1:]:
            best = value if (value <= best if least else value >= best) else best
        return best

    return function


BUILTINS = {"range": Range, "min": _extremum(True), "max": _extremum(False)}
"""What Python's builtins are inside of a kernel: a bound that is met exactly is no reason to unroll."""


def counted(start: Any, stop: Any = None, step: Any = 1) -> Range:
    """nl.affine_range, nl.sequential_range and nl.static_range: Python's range."""
    return Range(start) if stop is None else Range(start, stop, step)
