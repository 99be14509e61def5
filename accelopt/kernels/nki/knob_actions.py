"""What can be set in a kernel, and what can be done to it, without looking ahead.

Both come from schedules and nests priced in closed form: of a kernel that none wrote, the cheapest; of
one that a schedule or nest wrote, what single primitives make of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from pydantic import ValidationError

from accelopt.kernel_source import fingerprint
from accelopt.kernels.language import Configured
from accelopt.kernels.moves import METHODS
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.knobs import FAULTS, Knobs, NestKnobs, ScheduleKnobs, fields
from accelopt.kernels.nki.lift.any_rows import authored
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.lowering import Lowered
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule
from accelopt.kernels.nki.lift.schedule_text import describe
from accelopt.kernels.nki.lift.search import Found, Pricing, neighbours, schedules, varied
from accelopt.kernels.nki.nests import primitives
from accelopt.kernels.nki.nests.nest import Nest, NotNested
from accelopt.kernels.nki.nests.search import HOPELESS, described, with_columns
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.knob_space import Parameter, Space
from accelopt.nodes import Action, Chain, Node, Reschedule, made

MOST_WHOLE = 6
"""Schedules that are offered for a kernel that none wrote, and as many nests."""
MOST_NEAR = 16
"""Neighbours that are offered, the cheapest first."""
WHOLE, FIELD = "schedule", "set_{}"


class Tuning:
    """Knobs and neighbours of the kernels of one run. `lifted` says what a kernel computes (raises
    NotLifted, KernelFailure)."""

    def __init__(self, target: str, lifted: Callable[[Node], Lifted]) -> None:
        self.target = target
        self._lift = lifted
        self._priced: dict[str, _Priced | None] = {}
        self._knobs: dict[str, Knobs | None] = {}

    def space(self, node: Node) -> Space | None:
        """The knobs of a kernel; None for one that has none."""
        sizes = {k: v for k, v in node.case.values.items() if isinstance(v, int)}
        knobs = self._knobs_of(node)
        return knobs.space(node.case.problem, sizes) if knobs else None

    def configured(self, node: Node, values: Mapping[str, Parameter]) -> Configured:
        """The kernel with its knobs set."""
        knobs = self._knobs_of(node)
        return knobs.configured(values) if knobs else Configured(None, "the kernel has no knobs")

    def schedules(self, node: Node) -> list[Action]:
        """The cheapest schedules and nests of what a kernel computes."""
        priced = self._algorithm_of(node)
        if priced is None:
            return []
        now = node.latency or math.inf
        return [
            priced.action(how, sentence, 1 - lowered.price.ms / now, WHOLE)
            for how, sentence, lowered in priced.whole
        ]

    def neighbours(self, node: Node) -> list[Action] | None:
        """What single primitives make of the schedule or nest that wrote a kernel; None for any other
        kernel."""
        here = _written_by(node)
        priced = self._algorithm_of(node) if here else None
        now = priced.lowered(here) if priced and here else None
        if priced is None or here is None or now is None:
            return None
        if fingerprint(priced.authored(here, now)) != node.key:
            return None  # somebody changed it since
        close = (o for o in priced.near(here, now) if o.lowered.price.ms < HOPELESS * now.price.ms)
        near = sorted(close, key=lambda one: one.lowered.price.ms)
        return [
            priced.action(
                one.how, one.sentence, 1 - one.lowered.price.ms / now.price.ms, one.method
            )
            for one in near[:MOST_NEAR]
        ]

    def _algorithm_of(self, node: Node) -> _Priced | None:
        """A correct kernel computes what it was made of, so the first that lifts speaks for all."""
        return next(filter(None, map(self._priced_of, reversed([*node.lineage()]))), None)

    def _knobs_of(self, node: Node) -> Knobs | None:
        if node.key not in self._knobs:
            priced = self._priced_of(node)
            self._knobs[node.key] = priced.knobs() if priced else None
        return self._knobs[node.key]

    def _priced_of(self, node: Node) -> _Priced | None:
        if node.key not in self._priced:
            try:
                self._priced[node.key] = _Priced(self._lift(node), self.target)
            except (NotLifted, KernelFailure):
                self._priced[node.key] = None
        return self._priced[node.key]


class _Near(NamedTuple):
    """What one primitive makes of a schedule or nest."""

    method: str
    sentence: str
    how: Schedule | Nest
    lowered: Lowered


class _Priced:
    """The schedules and nests of an algorithm by their price."""

    def __init__(self, lifted: Lifted, target: str) -> None:
        self.lifted = lifted
        self.target = target
        self._lowered: dict[Schedule | Nest, Lowered | None] = {}

    def lowered(self, how: Schedule | Nest) -> Lowered | None:
        """The kernel of a schedule or nest, made once; None for one that has none."""
        if how not in self._lowered:
            try:
                self._lowered[how] = self.lifted.lowered(how, self.target)
            except (NotLowered, NotNested, ResourceShort, *FAULTS):
                self._lowered[how] = None
        return self._lowered[how]

    @cached_property
    def cheapest(self) -> list[tuple[Schedule, Lowered]]:
        """Schedules, the cheapest first; none where the algorithm has none."""
        try:
            pricing = Pricing(
                graph_of(self.lifted.algorithm), self.lifted.interface, self.target, Found()
            )
            for schedule in schedules(pricing.graph):
                pricing.add(schedule)
            pricing.descend()
        except NotLowered:
            return []
        found = pricing.cheapest()
        return found if found and self.lowered(found[0][0]) else []

    @cached_property
    def nests(self) -> list[tuple[Nest, Lowered]]:
        """Nests to begin with, the cheapest first."""
        try:
            starts = [*starting_nests(self.lifted.algorithm, self.target)]
        except (NotNested, *FAULTS):
            return []
        wide = [with_columns(nest, columns) for nest in starts for columns in (2048, 8192)]
        found: dict[str, tuple[Nest, Lowered]] = {}
        for nest in (*starts, *wide):
            lowered = self.lowered(nest)
            if lowered is not None:
                found.setdefault(lowered.body, (nest, lowered))
        return sorted(found.values(), key=lambda pair: pair[1].price.ms)

    @property
    def whole(self) -> Iterator[tuple[Schedule | Nest, str, Lowered]]:
        """Different ones of the cheapest, with a sentence on each."""
        for schedule, lowered in varied(self.cheapest, MOST_WHOLE):
            if self.lowered(schedule) is not None:
                yield schedule, describe(graph_of(self.lifted.algorithm), schedule), lowered
        least = self.cheapest[0][1].price.ms * HOPELESS if self.cheapest else float("inf")
        for nest, lowered in self.nests[:MOST_WHOLE]:
            if lowered.price.ms < least:
                yield nest, described(nest), lowered

    def near(self, here: Schedule | Nest, now: Lowered) -> Iterator[_Near]:
        """What single primitives make of a schedule or nest, each kernel once."""
        seen = {now.body}
        changes = self._nests(here) if isinstance(here, Nest) else self._fields(here)
        for method, words, how in changes:
            lowered = self.lowered(how)
            if lowered is not None and lowered.body not in seen:
                seen.add(lowered.body)
                yield _Near(method, words, how, lowered)

    def _fields(self, here: Schedule) -> Iterator[tuple[str, str, Schedule]]:
        before = fields(here)
        for schedule in neighbours(graph_of(self.lifted.algorithm), here):
            after = fields(schedule)
            changed = [name for name in after if after[name] != before.get(name)]
            if changed:
                words = (f"{name} = {after[name]} (was {before.get(name)})" for name in changed)
                method = FIELD.format(changed[0].rstrip("0123456789").rstrip("_"))
                yield method, f"Schedule with {', '.join(words)}", schedule

    def _nests(self, here: Nest) -> Iterator[tuple[str, str, Nest]]:
        for primitive in primitives.neighbours(self.lifted.algorithm, here, self.target):
            try:
                nest = primitives.changed(primitive, self.lifted.algorithm, here, self.target)
            except NotNested:
                continue
            said = primitive.model_dump_json(exclude={"kind"})
            yield primitive.kind, f"Nest after {primitive.kind} {said}", nest

    def action(self, how: Schedule | Nest, sentence: str, promise: float, method: str) -> Action:
        """The kernel by a schedule or nest, as something that can be done."""
        lowered = self.lowered(how)
        assert lowered is not None
        return made(
            Reschedule(schedule=how.model_dump(mode="json"), sentence=f"{sentence}."),
            self.authored(how, lowered),
            promise=promise,
            method=method,
            touches=METHODS.get(method, METHODS[WHOLE]).touches,
        )

    def authored(self, how: Schedule | Nest, lowered: Lowered) -> str:
        """The kernel in its author's module."""
        return authored(self.lifted, how, lowered.source, self.target)

    def knobs(self) -> Knobs | None:
        """The fields of a schedule; the primitives of a nest where that is far cheaper."""
        blocks, nests = self.cheapest, self.nests
        if blocks and (not nests or blocks[0][1].price.ms < HOPELESS * nests[0][1].price.ms):
            return ScheduleKnobs(self.lifted, blocks, self.target)
        return NestKnobs(self.lifted, nests, self.target) if nests else None


def _written_by(node: Node) -> Schedule | Nest | None:
    """The schedule or nest that made a kernel."""
    change = node.change.steps[-1] if isinstance(node.change, Chain) else node.change
    if not isinstance(change, Reschedule):
        return None
    try:
        return (Nest if "stages" in change.schedule else Schedule).model_validate(change.schedule)
    except ValidationError:  # of another version
        return None
