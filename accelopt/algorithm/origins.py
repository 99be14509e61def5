"""Where in a source the reductions and recurrences of a trace were made.

Rules change a value on its way to a definition, so a definition is known again by what does not change:
how it combines, which arrays and functions stand in it. What stands for several places stands for none.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from accelopt.algorithm.value_nodes import (
    Application,
    Element,
    Fold,
    Product,
    ScanElement,
    Value,
    children,
)


class Origins:
    """Places (of any kind) by the values that were first seen there."""

    def __init__(self) -> None:
        self._places: dict[Value, Hashable] = {}
        self._signatures: dict[Value, frozenset[str]] = {}
        self._seen: set[Value] = set()

    def note(self, value: Value, place: Hashable) -> None:
        """The reductions and recurrences in a value are made at a place, those that are new."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            if part in self._seen:
                continue
            self._seen.add(part)
            if isinstance(part, (Fold, ScanElement)):
                self._places[part] = place
            else:
                waiting.extend(children(part))

    def place(self, value: Value) -> Hashable | None:
        """The only place where a value like this one was made; None where there are several. Of those alike,
        one over as many elements comes first: a sum over tiles is made of sums over a tile."""
        wanted = self._signature(value), _elements(value)
        alike = [part for part in self._places if self._signature(part) == wanted[0]]
        whole = [part for part in alike if _elements(part) == wanted[1]]
        found = {self._places[part] for part in whole or alike}
        return found.pop() if len(found) == 1 else None

    def _signature(self, value: Value) -> frozenset[str]:
        if value not in self._signatures:
            own: set[str] = set()
            if isinstance(value, Element):
                own.add(value.array)
            elif isinstance(value, Application):
                own.add(f"{value.function}()")
            elif isinstance(value, Fold):
                own.add(f"{value.combiner} over")
            elif isinstance(value, ScanElement):
                own.add(f"{value.scale} {value.combine} along")
            elif isinstance(value, Product):
                own |= {f"** {power}" for _, power in value.factors if power != 1}
            found = frozenset(own).union(*map(self._signature, children(value)))
            self._signatures[value] = found
        return self._signatures[value]


def _elements(value: Value) -> int:
    """How many elements a reduction or a recurrence combines."""
    if isinstance(value, Fold):
        return math.prod(axis.extent for axis in value.axes)
    return value.along.extent if isinstance(value, ScanElement) else 1
