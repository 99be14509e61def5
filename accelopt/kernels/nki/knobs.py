"""The knobs of an NKI kernel: the fields of a schedule where the kernel lifts, elsewhere the factors of
the moves that change how much is done at once.

A knob's values go from the least demanding to the most; its default is what closed forms prefer, or
what leaves the kernel as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from accelopt.kernels.language import Configured
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.lowering import Lowered
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule
from accelopt.kernels.nki.lift.search import neighbours, schedules
from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Site
from accelopt.kernels.nki.moves.propose import apply, rewrites
from accelopt.kernels.nki.moves.registry import MOVES
from accelopt.kernels.nki.moves.surgery.review import reviewed
from accelopt.knob_space import Configuration, KnobSpec, Parameter, Space

MOST_KNOBS = 6
MOST_FORETOLD = 256  # schedules whose price is told
FAR = 10.0  # times the price of the cheapest schedule, beyond which none is worth a kernel
FACTOR, KEEP = "factor", "keep"
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
            lowered = self.lifted.lowered(self.schedule(values), self.target)
            price, least = lowered.price.ms, self._cheapest[0][1].price.ms
            if price > FAR * least:
                said = f"it is priced at {price:.4g} ms, {price / least:.0f} times the cheapest"
                return Configured(None, said)
            return Configured(self.lifted.authored(lowered.source))
        except (NotLowered, ResourceShort) as refusal:
            return Configured(None, str(refusal))

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


class FactorKnobs:
    """How many iterations are done at once at each place where a move can do several: 1 leaves it. A
    blocked loop may also keep what it fetched."""

    def __init__(self, source: str, facts: Facts) -> None:
        self.source = source
        self.facts = facts
        self._places: dict[str, tuple[Site, list[Parameter], bool]] = {}
        for change in sorted(rewrites(source, facts), key=lambda change: -change.site.benefit):
            site = change.site
            if FACTOR not in site.parameters:
                continue
            name = _place_name(site)
            if name not in self._places and len(self._places) == MOST_KNOBS:
                continue
            first, factors, keeps = self._places.get(name, (site, [1], False))
            factor, keeps = site.parameters[FACTOR], keeps or bool(site.parameters.get(KEEP))
            known = factors if factor in factors else [*factors, factor]
            self._places[name] = first, known, keeps

    def space(self, kernel: str, shape: Mapping[str, int]) -> Space:
        """At most six places, those that promise most."""
        knobs: list[KnobSpec] = []
        for name, (_, factors, keeps) in self._places.items():
            knobs.append(_knob(name, _rising(factors), 1))
            if keeps:
                knobs.append(_knob(f"{name}_{KEEP}", [False, True], False))
        return Space(kernel=kernel, shape=dict(shape), knobs=tuple(knobs))

    def configured(self, values: Mapping[str, Parameter]) -> Configured:
        """The kernel after all moves, in the registry's order; the reason where one does not apply."""
        order = {move: place for place, move in enumerate(MOVES)}
        sites = sorted(self._sites(values), key=lambda site: order[site.move])
        if not sites:
            return Configured(self.source)
        try:
            made = apply(self.source, sites, self.facts)
        except IllegalMove as refusal:
            return Configured(None, str(refusal))
        return Configured(reviewed(made, self.source, self.facts.arguments))

    def _sites(self, values: Mapping[str, Parameter]) -> Iterable[Site]:
        for name, (site, _, _) in self._places.items():
            if values.get(name, 1) == 1:
                continue
            parameters = {**site.parameters, FACTOR: values[name]}
            if KEEP in parameters:
                parameters[KEEP] = values.get(f"{name}_{KEEP}", False)
            yield Site(site.move, parameters, site.text)


def fields(schedule: Schedule) -> dict[str, Parameter]:
    """The fields of a schedule by name, the members of a list as `name_0`, `name_1`."""
    found: dict[str, Parameter] = {}
    for name, value in schedule.model_dump().items():
        if isinstance(value, tuple):
            found |= {f"{name}_{number}": item for number, item in enumerate(value)}
        else:
            found[name] = value
    return found


def _place_name(site: Site) -> str:
    """The move with the loops and values that tell its place."""
    places = [str(v) for name, v in site.parameters.items() if name not in (FACTOR, KEEP)]
    return "_".join([site.move, *(place.replace(" ", "_") for place in places)])


def _rising(values: Iterable[Parameter]) -> list[Parameter]:
    listed = list(values)
    if all(isinstance(value, (int, float)) for value in listed):
        return sorted(listed)
    return sorted(listed, key=lambda value: RISING.get(str(value), 0))


def _knob(name: str, values: Sequence[Parameter], default: Parameter) -> KnobSpec:
    kind = type(values[0]).__name__
    return KnobSpec(name=name, type=kind, allowed=tuple(values), default=default)  # type: ignore[arg-type]
