"""Names for the axes that reductions and scans bind: those that are alike have the same."""

from __future__ import annotations

from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.value_nodes import PLACES, Fold, ScanElement, Value, children
from accelopt.algorithm.values import Values


class BoundNames:
    """Names bound axes by how many reductions and scans lie below and by the order in which one meets them:
    those that are alike have the same, whatever they were read for."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.done: dict[Value, tuple[Value, int]] = {}

    def of(self, value: Value) -> tuple[Value, int]:
        """The value with these names, and the most reductions and scans that lie in each other in it."""
        if value not in self.done:
            found = [self.of(part) for part in children(value)]
            parts, height = [part for part, _ in found], max((n for _, n in found), default=0)
            if isinstance(value, (Fold, ScanElement)):
                order = self._order(value, parts[0])
                names = {a: Axis(f"b{height}_{n}", a.extent) for n, a in enumerate(order)}
                to = {a: index_of(b) for a, b in names.items()}
                inside = 1 if isinstance(value, Fold) else 2  # what stands before element 0 is not
                parts[:inside] = [self.values.substitute(part, to) for part in parts[:inside]]
                bound = tuple(names[a] for a in order)
                self.done[value] = self.values.with_parts(value, parts, bound=bound), height + 1
            else:
                same = all(a is b for a, b in zip(parts, children(value), strict=True))
                made = value if same else self.values.with_parts(value, parts)
                self.done[value] = made, height
        return self.done[value]

    def _order(self, value: Fold | ScanElement, body: Value) -> tuple[Axis, ...]:
        if isinstance(value, ScanElement):
            return (value.along,)
        if value.combiner in PLACES:
            return value.axes
        # Last come those on which no element depends.
        met = [*self.values.order_of_axes(body), *value.axes]
        return tuple(sorted(value.axes, key=met.index))
