"""The knobs of an NKI kernel: the fields of a schedule, or the primitives of a nest where the kernel has no
schedule. A kernel that does not lift has none.

A knob's values go from the least demanding to the most; its default is what closed forms prefer, or
what leaves the kernel as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from accelopt.kernels.language import Configured
from accelopt.kernels.nki.lift.any_rows import authored
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.lowering import Lowered
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule
from accelopt.kernels.nki.lift.search import neighbours, schedules
from accelopt.kernels.nki.nests.nest import Nest, NotNested
from accelopt.kernels.nki.nests.primitives import Columns, Keep, Orient, Primitive, Tile, changed
from accelopt.kernels.nki.nests.primitives import neighbours as primitives_near
from accelopt.kernels.nki.nests.search import with_columns
from accelopt.knob_space import Configuration, KnobSpec, Parameter, Space

MOST_STARTS = 4  # nests that knobs begin with, of those that differ in more than columns
MOST_FORETOLD = 256  # schedules whose price is told
FAR = 10.0  # times the price of the cheapest schedule, beyond which none is worth a kernel
START, OPEN = "start", "open"
FAULTS = (LookupError, ArithmeticError, AssertionError, ValueError, RecursionError)
"""By which lowering may fail on a nest that nobody checked; it says nothing of the kernel."""
RISING = {
    value: place
    for place, value in enumerate(("accumulate", "columns", "resident", "direct", "transposed"))
}
"""Ways to hold operands, by the SBUF that they take; of others the order is kept."""


class Knobs(Protocol):
    """What can be set in one kernel."""

    def space(self, kernel: str, shape: Mapping[str, int]) -> Space:
        """The knobs, for the kernel of that name at that shape."""

    def configured(self, values: Mapping[str, Parameter]) -> Configured:
        """The kernel with its knobs set."""


class ScheduleKnobs:
    """The fields of a schedule of what `lifted` computes; a list of fields is a knob each. `cheapest` are
    schedules by their price in closed form, the default first."""

    def __init__(
        self, lifted: Lifted, cheapest: Sequence[tuple[Schedule, Lowered]], target: str
    ) -> None:
        self.lifted = lifted
        self.target = target
        self._cheapest = cheapest
        self._start = start = cheapest[0][0]
        graph = graph_of(lifted.algorithm)
        self._by_rows: dict[str, Schedule] = {}
        values: dict[str, dict[Parameter, None]] = {}
        for schedule in schedules(graph):
            new = schedule.rows not in self._by_rows
            self._by_rows.setdefault(schedule.rows, schedule)
            near = neighbours(graph, schedule) if new else ()
            for seen in (schedule, *near):
                for name, value in fields(seen).items():
                    values.setdefault(name, {})[value] = None
        for name, value in fields(start).items():
            values.setdefault(name, {})[value] = None
        self._values = {name: _rising(seen) for name, seen in values.items() if len(seen) > 1}

    def space(self, kernel: str, shape: Mapping[str, int]) -> Space:
        """A knob for every field that has a choice; the default is the start's."""
        start = fields(self._start)
        knobs = tuple(
            _knob(name, values, start.get(name, values[0])) for name, values in self._values.items()
        )
        space = Space(kernel=kernel, shape=dict(shape), knobs=knobs)
        return space.model_copy(update={"foretold": tuple(self._foretold(space))})

    def _foretold(self, space: Space) -> Iterable[tuple[Configuration, float]]:
        """What the cheapest schedules are priced, those that are points of the space."""
        for schedule, lowered in self._cheapest[:MOST_FORETOLD]:
            values = {**space.default, **fields(schedule)}
            point = {knob.name: values[knob.name] for knob in space.knobs}
            if not space.faults(point) and self.schedule(point) == schedule:
                yield point, lowered.price.ms

    def configured(self, values: Mapping[str, Parameter]) -> Configured:
        """The kernel by the schedule that `values` make of the start, if its price is within reach."""
        try:
            how = self.schedule(values)
            lowered = self.lifted.lowered(how, self.target)
        except (NotLowered, ResourceShort) as refusal:
            return Configured(None, str(refusal))
        return _within_reach(self.lifted, how, lowered, self._cheapest[0][1].price.ms, self.target)

    def schedule(self, values: Mapping[str, Parameter]) -> Schedule:
        """The schedule with these fields; the others are the start's, or, where its rows are another
        axis, those of the first schedule along that axis."""
        rows = str(values.get("rows", self._start.rows))
        whole = self._start if rows == self._start.rows else self._by_rows[rows]
        data: dict[str, Any] = whole.model_dump()
        for name, value in values.items():
            field, _, number = name.rpartition("_")
            if name in data:
                data[name] = value
            elif int(number) < len(data[field]):
                listed = data[field]
                data[field] = (*listed[: int(number)], value, *listed[int(number) + 1 :])
        return Schedule.model_validate(data)


class NestKnobs:
    """Which of the `cheapest` nests a kernel begins with, and the values of the primitives that change the
    first of them; a primitive that has its usual value is left out."""

    def __init__(
        self, lifted: Lifted, cheapest: Sequence[tuple[Nest, Lowered]], target: str
    ) -> None:
        self.lifted = lifted
        self.target = target
        self._least = cheapest[0][1].price.ms
        families: dict[Nest, Nest] = {}
        for nest, _ in cheapest:
            families.setdefault(with_columns(nest, 0), nest)
        self._starts = [*families.values()][:MOST_STARTS]
        self._values: dict[str, dict[Parameter, Primitive]] = {}
        self._usual: dict[str, Parameter] = {}
        for primitive in primitives_near(lifted.algorithm, self._starts[0], target):
            found = _setting(primitive, self._starts[0])
            if found is not None:
                name, value, usual = found
                self._values.setdefault(name, {})[value] = primitive
                self._usual[name] = usual

    def space(self, kernel: str, shape: Mapping[str, int]) -> Space:
        """A knob for the nest to begin with, and one for each primitive that has a value."""
        starts = list(range(len(self._starts)))
        knobs = [_knob(START, starts, 0)] if len(starts) > 1 else []
        for name, values in self._values.items():
            usual = self._usual[name]
            knobs.append(_knob(name, _rising([*dict.fromkeys([usual, *values])]), usual))
        return Space(kernel=kernel, shape=dict(shape), knobs=tuple(knobs))

    def configured(self, values: Mapping[str, Parameter]) -> Configured:
        """The kernel by the nest that the primitives make, if its price is within reach."""
        nest, algorithm = self._starts[int(values.get(START, 0))], self.lifted.algorithm
        try:
            for name, usual in self._usual.items():
                if values.get(name, usual) != usual:
                    nest = changed(self._values[name][values[name]], algorithm, nest, self.target)
            lowered = self.lifted.lowered(nest, self.target)
        except (NotNested, NotLowered, ResourceShort) as refusal:
            return Configured(None, str(refusal))
        except FAULTS as error:
            return Configured(None, f"lowering itself failed with {type(error).__name__}")
        return _within_reach(self.lifted, nest, lowered, self._least, self.target)


def _setting(primitive: Primitive, nest: Nest) -> tuple[str, Parameter, Parameter] | None:
    """The knob that a primitive sets, the value that it sets, and the one that it has in `nest`; None for
    one without a value."""
    of = primitive.definition
    stage = next((stage for stage in nest.stages if of in stage.members), None)
    match primitive:
        case Columns(size=size) if stage:
            return f"columns_{of}", size, stage.columns
        case Tile(axis=axis, size=size) if stage:
            loops = {part.axis: part.size for part in stage.loops}
            return f"tile_{of}_{axis}", size, loops.get(axis, 0)
        case Keep(side=side, memory=memory):
            return f"keep_{of}_{side}", memory, "SBUF" if memory == "HBM" else "HBM"
        case Orient(side=side, way=way):
            return f"orient_{of}_{side}", way, nest.way(of, side) or OPEN
    return None


def _within_reach(
    lifted: Lifted, how: Schedule | Nest, lowered: Lowered, least: float, target: str
) -> Configured:
    """A kernel, if its price is not far beyond the `least`."""
    price = lowered.price.ms
    if price > FAR * least:
        said = f"it is priced at {price:.4g} ms, {price / least:.0f} times the cheapest"
        return Configured(None, said)
    return Configured(authored(lifted, how, lowered.source, target))


def fields(schedule: Schedule) -> dict[str, Parameter]:
    """The fields of a schedule by name, the members of a list as `name_0`, `name_1`."""
    found: dict[str, Parameter] = {}
    for name, value in schedule.model_dump().items():
        if isinstance(value, tuple):
            found |= {f"{name}_{number}": item for number, item in enumerate(value)}
        else:
            found[name] = value
    return found


def _rising(values: Iterable[Parameter]) -> list[Parameter]:
    listed = list(values)
    if all(isinstance(value, (int, float)) for value in listed):
        return sorted(listed)
    return sorted(listed, key=lambda value: RISING.get(str(value), 0))


def _knob(name: str, values: Sequence[Parameter], default: Parameter) -> KnobSpec:
    kind = type(values[0]).__name__
    return KnobSpec(name=name, type=kind, allowed=tuple(values), default=default)  # type: ignore[arg-type]
