"""Which axis lies where, and in which order values are computed.

Rows are worked through in blocks. Within a block a value lies either with rows on partitions and its
other axis (a feature axis) along them, or transposed, the feature axis on partitions and rows along
them. A phase is one loop over a feature axis; what needs a whole sum over it, or a matrix product
over it, belongs to a later phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from accelopt.algorithm.index import Axis, Index
from accelopt.kernels.nki.lift.emission.graph import Graph, GraphValue, NotLowered
from accelopt.kernels.nki.lift.schedule import Schedule

TileLayout = Literal["rows", "transposed"]


class Placed(NamedTuple):
    """A value in one of its layouts."""

    value: GraphValue
    layout: TileLayout


class ProductTerm(NamedTuple):
    """`moving rows`: one matrix product of a product, its operand with rows and the one without."""

    rows: GraphValue
    weights: GraphValue
    axis: Axis


@dataclass
class Phase:
    """One loop over a feature axis."""

    level: int
    layout: TileLayout
    axis: Axis
    values: list[GraphValue] = field(default_factory=list)


@dataclass
class Roles:
    """What each axis of a graph is for, with one of them as rows."""

    graph: Graph
    rows: Axis
    features: frozenset[Axis]
    batch: tuple[Axis, ...]
    beside: Axis | None = None
    """Rows that lie beside each other on a partition."""
    inner: frozenset[Axis] = frozenset()
    """Axes that a loop inside a phase runs over: sums over them have another feature axis left."""

    def has_rows(self, value: GraphValue) -> bool:
        """True when each row has a value of its own."""
        return self.rows in value.axes

    def feature(self, value: GraphValue) -> Axis | None:
        """The feature axis of a value; None for one number a row."""
        found = [a for a in value.axes if a in self.features and a not in self.inner]
        if len(found) > 1:
            names = ", ".join(sorted(axis.name for axis in found))
            raise NotLowered(f"a value depends on {names} at once")
        return found[0] if found else None

    def terms(self, product: GraphValue) -> tuple[ProductTerm, ...]:
        """The matrix products of a product."""
        return tuple(
            _term(product, left, right, axis, self.rows) for left, right, axis in product.terms
        )


def _term(
    product: GraphValue, left: GraphValue, right: GraphValue, axis: Axis, rows: Axis
) -> ProductTerm:
    for moving, weights in ((left, right), (right, left)):
        if rows in moving.axes and rows not in weights.axes:
            return ProductTerm(moving, weights, axis)
    raise NotLowered(f"{rows.name} are not the rows of a matrix product over {axis.name}")


def row_axes(graph: Graph) -> list[Axis]:
    """The axes that could be rows: those of every output that nothing is combined over."""
    combined = {axis for value in graph.values for axis in value.reduced}
    common = frozenset.intersection(*(output.value.axes for output in graph.outputs))
    found = []
    for axis in sorted(common - combined, key=lambda axis: (-axis.extent, axis.name)):
        try:
            roles_of(graph, axis.name)
        except NotLowered:
            continue
        found.append(axis)
    return found


def why_no_rows(graph: Graph) -> str:
    """Why none of the axes can be rows, axis by axis: results that lack it, or are combined over it."""
    outputs = {output.array: output.value for output in graph.outputs}
    axes = {axis for value in outputs.values() for axis in value.axes}
    if not axes:
        return f"{' and '.join(outputs)} have no axis: everything is combined"
    return "; ".join(
        f"{axis.name} cannot be rows: {_why_not(graph, outputs, axis)}"
        for axis in sorted(axes, key=lambda axis: (-axis.extent, axis.name))
    )


def _why_not(graph: Graph, outputs: Mapping[str, GraphValue], axis: Axis) -> str:
    combining = [name for name, value in outputs.items() if axis in _combined(value)]
    lacking = [name for name, v in outputs.items() if not ({axis} & v.axes or name in combining)]
    parts = [f"it is combined over for {' and '.join(combining)}"] if combining else []
    parts += [f"it is no axis of {' and '.join(lacking)}"] if lacking else []
    if parts:
        return ", ".join(parts)
    try:
        roles_of(graph, axis.name)
    except NotLowered as refusal:
        return str(refusal)
    return "the reason is not known"


def _combined(value: GraphValue) -> set[Axis]:
    """The axes that a value, or what it is made of, is combined over."""
    found, seen, waiting = set[Axis](), set[GraphValue](), [value]
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            found.update(value.reduced)
            waiting += value.arguments
    return found


def roles_of(graph: Graph, rows: str, beside: Axis | None = None) -> Roles:
    """The roles of all axes. Raises NotLowered where `rows` cannot be rows."""
    axes = {axis for value in graph.values for axis in value.axes}
    row = next((axis for axis in axes if axis.name == rows), None)
    if row is None:
        raise NotLowered(f"the kernel has no axis {rows}")
    features: set[Axis] = set()
    for value in graph.values:
        features.update(value.reduced)
        if value.kind == "product":
            for left, right, axis in value.terms:
                term = _term(value, left, right, axis, row)
                features.update(term.weights.axes - term.rows.axes - {axis})
    if row in features:
        raise NotLowered(f"something is combined over {rows}")
    for output in graph.outputs:
        if not output.value.axes & features:
            last = [a for i in output.indices for a in sorted(i.axes) if a not in (row, beside)]
            features.update(last[-1:])
    batch = sorted(axes - features - {row, beside}, key=lambda axis: _order(graph, axis))
    inner = {
        value.reduced[0]
        for value in graph.values
        if value.kind == "reduce"
        and len(value.reduced) == 1
        and len(value.arguments[0].axes & features) > 1
    }
    return Roles(graph, row, frozenset(features), tuple(batch), beside, frozenset(inner))


def _order(graph: Graph, axis: Axis) -> tuple[int, int, str]:
    """Batch axes on which most operands of products depend come first, then those that come first
    in an output."""
    users = sum(
        axis in argument.axes
        for value in graph.values
        if value.kind == "product"
        for argument in value.arguments
    )
    places = [
        n for out in graph.outputs for n, index in enumerate(out.indices) if axis in index.axes
    ]
    return -users, min(places, default=99), axis.name


class Phases:
    """The phases of one block of rows, in order."""

    def __init__(self, roles: Roles, schedule: Schedule) -> None:
        self.roles = roles
        self.schedule = schedule
        self.products = [value for value in roles.graph.values if value.kind == "product"]
        terms = [term for product in self.products for term in roles.terms(product)]
        self.operands = list(dict.fromkeys(term.rows for term in terms))
        self.reductions = [value for value in roles.graph.values if self._may_cross(value)]
        self.level: dict[Placed, int] = {}
        self.needed: dict[Placed, None] = {}
        self._transposed: dict[GraphValue, None] = {}
        for output in roles.graph.outputs:
            self.need(output.value, self.stored_as(output.indices))
        self.phases = self._grouped()

    def stored_as(self, indices: tuple[Index, ...]) -> TileLayout:
        """The layout in which an array at these indices is moved: its earlier axis on partitions."""
        return "rows" if self._rows_first(indices) else "transposed"

    def _rows_first(self, indices: tuple[Index, ...]) -> bool:
        rows = [n for n, index in enumerate(indices) if self.roles.rows in index.axes]
        others = [n for n, index in enumerate(indices) if index.axes & self.roles.features]
        return not rows or not others or min(rows) < min(others)

    def mode(self, operand: GraphValue) -> str:
        """How an operand of products gets its contracted axis on partitions."""
        if operand.kind == "input" and not self._rows_first(operand.indices):
            return "direct"
        number = self.operands.index(operand)
        chosen = self.schedule.operands
        return chosen[number] if number < len(chosen) else "transposed"

    def _may_cross(self, value: GraphValue) -> bool:
        """True for a maximum or minimum that can be taken over partitions."""
        return (
            value.kind == "reduce"
            and value.function in ("maximum", "minimum")
            and len(value.reduced) == 1
            and value.reduced[0] not in self.roles.inner
            and value.arguments[0].kind != "input"
            and self.roles.has_rows(value)
        )

    def over_partitions(self, value: GraphValue) -> bool:
        """True for what is combined over the partitions: a maximum where the schedule says so, and
        the sum of an operand that is computed with the axis that is summed over on partitions.
        Computed once more for its sum, the other way round, it would be rounded
        otherwise: of large scores, the weights of a softmax then no longer add up to one."""
        if value in self.reductions:
            number, chosen = self.reductions.index(value), self.schedule.reductions
            return number < len(chosen) and chosen[number] == "across"
        if value.kind != "reduce" or value.function != "add":
            return False
        terms = value.arguments[0]
        return (
            terms in self.operands
            and terms.kind != "input"
            and value.reduced[0] not in self.roles.inner
            and self.mode(terms) == "direct"
        )

    def turned(self, product: GraphValue) -> bool:
        """True for a product that is summed with rows along the free axis and then transposed."""
        number, chosen = self.products.index(product), self.schedule.results
        return number < len(chosen) and chosen[number] == "turned"

    @property
    def transposed(self) -> tuple[GraphValue, ...]:
        """Operands that are computed with rows on partitions and then transposed."""
        return tuple(self._transposed)

    def need(self, value: GraphValue, layout: TileLayout) -> int:
        """Plans a value, after what it is made of; returns the level of its phase."""
        placed = Placed(value, layout)
        if placed not in self.level:
            self.level[placed] = self._planned(value, layout)
            self.needed[placed] = None
        return self.level[placed]

    def _planned(self, value: GraphValue, layout: TileLayout) -> int:
        if value.kind == "constant":
            return 0
        if not self.roles.has_rows(value):
            if value.kind != "input":
                raise NotLowered("something that has no rows is computed on the way")
            return 0
        if value.kind == "input":
            if layout == "transposed" and value.padding is not None:
                raise NotLowered(f"a padded {value.array} along partitions")
            if self.roles.feature(value) and self.stored_as(value.indices) != layout:
                raise NotLowered(f"{value.array} would have to be read element by element")
            return 0
        if value.kind == "product":
            if layout == "rows" and self.turned(value):
                return 1 + self.need(value, "transposed")
            return 1 + max(self._operand(term.rows) for term in self.roles.terms(value))
        if value.kind == "reduce":
            if len(value.reduced) != 1:
                raise NotLowered("something is combined over several axes at once")
            if self.over_partitions(value):  # after products of the same, which wait for less
                later = 2 if value.function == "add" else 1
                return later + self.need(value.arguments[0], "transposed")
            inside = value.reduced[0] in self.roles.inner
            return self.need(value.arguments[0], "rows") + (not inside)
        if value.kind == "scan" and layout != "rows":
            raise NotLowered("a recurrence over partitions")
        return max(
            (
                self.need(argument, layout if self.roles.feature(argument) else "rows")
                for argument in value.arguments
            ),
            default=0,
        )

    def _operand(self, value: GraphValue) -> int:
        if self.mode(value) == "direct":
            return self.need(value, "transposed")
        self._transposed[value] = None
        return self.need(value, "rows")

    def _postponed(self, order: dict[GraphValue, int]) -> None:
        """Moves what only one later phase reads into that phase: it is not kept until then."""
        outputs = {output.value for output in self.roles.graph.outputs}
        users = self.roles.graph.users()
        for placed in sorted(self.needed, key=lambda p: -order[p.value]):
            value, layout = placed
            fixed = value in outputs or value in self.operands or bool(self.combined(value))
            if (
                fixed
                or value.kind not in ("apply", "where", "product")
                or not self.roles.feature(value)
            ):
                continue
            if layout == "transposed" and value.kind == "product" and self.turned(value):
                continue
            readers = {
                (self.level[reader] - (user.kind == "reduce"), self.roles.feature(value))
                for user in users[value]
                if (reader := Placed(user, layout)) in self.level
            }
            if len(readers) == 1:
                level, _ = readers.pop()
                self.level[placed] = max(level, self.level[placed])

    def _grouped(self) -> list[Phase]:
        phases: dict[tuple[int, TileLayout, Axis], Phase] = {}
        order = {value: n for n, value in enumerate(self.roles.graph.values)}
        self._postponed(order)
        for placed in sorted(self.needed, key=lambda p: (self.level[p], order[p.value])):
            value = placed.value
            if not self.roles.has_rows(value) or self.over_partitions(value):
                continue
            axis = self.roles.feature(value)
            if value.kind == "reduce" and value.reduced[0] not in self.roles.inner:
                axis = self.roles.feature(value.arguments[0])
                level = self.level[placed] - 1
            elif axis is None:
                continue
            else:
                level = self.level[placed]
            assert axis is not None
            key = (level, placed.layout, axis)
            phases.setdefault(key, Phase(*key)).values.append(value)
        # Of one level, what later products wait for comes first.
        found = sorted(phases.values(), key=lambda p: (p.level, p.layout == "rows", p.axis.name))
        for phase in found:
            phase.values.sort(key=lambda value: order[value])
        return found

    def numbers_over_partitions(self, level: int) -> list[GraphValue]:
        """What is combined over partitions before the phases of a level."""
        return [
            placed.value
            for placed in self.needed
            if self.over_partitions(placed.value) and self.level[placed] == level
        ]

    def combined(self, value: GraphValue) -> list[GraphValue]:
        """What is combined of a value over partitions."""
        return [user for user in self.roles.graph.users()[value] if self.over_partitions(user)]

    def row_numbers(self, level: int) -> list[GraphValue]:
        """Values of one number a row that are worked out before the phases of a level."""
        return [
            placed.value
            for placed in self.needed
            if self.roles.has_rows(placed.value)
            and self.roles.feature(placed.value) is None
            and placed.value.kind == "apply"
            and self.level[placed] == level
        ]


def uses_of(phases: Iterable[Phase], roles: Roles) -> dict[Placed, list[int]]:
    """In which phases, by number, each value of a phase is read."""
    found: dict[Placed, list[int]] = {}
    for number, phase in enumerate(phases):
        for value in phase.values:
            if value.kind != "product":
                for argument in value.arguments:
                    found.setdefault(Placed(argument, phase.layout), []).append(number)
    return found
