"""What can be set in a kernel and what lies beside it, by closed forms alone: nothing is simulated.

Where a kernel lifts, its knobs are the fields of a schedule, and so are the actions on a kernel that
a schedule wrote: one field another way. Elsewhere the knobs are the factors of moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from accelopt.kernels.language import Configured
from accelopt.kernels.moves import METHODS
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.knobs import FactorKnobs, Knobs, ScheduleKnobs, fields
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.lowering import Lowered
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule
from accelopt.kernels.nki.lift.schedule_text import describe
from accelopt.kernels.nki.lift.scheduled_kernels import schedule_in
from accelopt.kernels.nki.lift.search import Found, Pricing, neighbours, schedules, varied
from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.moves.propose import rewrites
from accelopt.kernels.nki.moves.reading.source import NotAKernel
from accelopt.kernels.nki.moves.surgery.review import reviewed, told
from accelopt.knob_space import Parameter, Space
from accelopt.nodes import Action, KnobSetting, Node, Reschedule, Rewrite, made

MOST_WHOLE = 6  # schedules that are offered for a kernel that none wrote
WHOLE, FIELD = "schedule", "set_{}"


class Tuning:
    """Knobs and neighbours of the kernels of one run. `lifted` says what a kernel computes (raises
    NotLifted, KernelFailure), `facts` what moves must know of it."""

    def __init__(
        self, target: str, lifted: Callable[[Node], Lifted], facts: Callable[[Node], Facts]
    ) -> None:
        self.target = target
        self._lift = lifted
        self._facts = facts
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

    def actions(self, node: Node) -> list[Action]:
        """Schedules for a kernel: of one that none wrote, the cheapest; of another, its neighbours."""
        # A correct kernel computes what it was made of, so the first that lifts speaks for all.
        lineage = reversed([*node.lineage()])
        priced = next(filter(None, map(self._priced_of, lineage)), None)
        if priced is None:
            return []
        if isinstance(node.change, Reschedule):
            return list(_beside(priced, schedule_in(node.change)))
        if isinstance(node.change, KnobSetting) and isinstance(
            knobs := self._knobs_of(node), ScheduleKnobs
        ):
            return list(_beside(priced, knobs.schedule(node.change.values)))
        return list(_whole(priced, node.latency or 0.0))

    def _knobs_of(self, node: Node) -> Knobs | None:
        if node.key not in self._knobs:
            self._knobs[node.key] = self._found(node)
        return self._knobs[node.key]

    def _found(self, node: Node) -> Knobs | None:
        priced = self._priced_of(node)
        if priced is not None:
            return ScheduleKnobs(priced.lifted, priced.cheapest, self.target)
        try:
            factors = FactorKnobs(node.source, self._facts(node))
        except NotAKernel:
            return None
        return factors if factors.space("", {}).knobs else None

    def _priced_of(self, node: Node) -> _Priced | None:
        if node.key not in self._priced:
            try:
                self._priced[node.key] = _Priced(self._lift(node), self.target)
            except (NotLifted, NotLowered, KernelFailure):
                self._priced[node.key] = None
        return self._priced[node.key]


class _Priced:
    """The schedules of an algorithm by their price, the cheapest first. Raises NotLowered where there
    is none."""

    def __init__(self, lifted: Lifted, target: str) -> None:
        self.lifted = lifted
        self.target = target
        self.graph = graph_of(lifted.algorithm)
        self._lowered: dict[Schedule, Lowered | None] = {}
        pricing = Pricing(self.graph, lifted.interface, target, Found())
        for schedule in schedules(self.graph):
            pricing.add(schedule)
        pricing.descend()
        self.cheapest = pricing.cheapest()
        if not self.cheapest:
            raise NotLowered("no schedule has a kernel")
        lifted.lowered(self.cheapest[0][0], target)

    def lowered(self, schedule: Schedule) -> Lowered | None:
        """The kernel of a schedule, made once; None for one that has none."""
        if schedule not in self._lowered:
            try:
                self._lowered[schedule] = self.lifted.lowered(schedule, self.target)
            except (NotLowered, ResourceShort):
                self._lowered[schedule] = None
        return self._lowered[schedule]


def _whole(priced: _Priced, now: float) -> Iterator[Action]:
    for schedule, lowered in varied(priced.cheapest, MOST_WHOLE):
        change = Reschedule(
            schedule=schedule.model_dump(mode="json"),
            sentence=f"{describe(priced.graph, schedule)}.",
        )
        promise = 1 - lowered.price.ms / now if now else 0.0
        touches = METHODS[WHOLE].touches
        kernel = priced.lowered(schedule)
        if kernel is not None:
            yield made(change, kernel.source, promise=promise, method=WHOLE, touches=touches)


def _beside(priced: _Priced, here: Schedule | None) -> Iterator[Action]:
    """One field another way; the price says what that promises."""
    now = priced.lowered(here) if here else None
    if here is None or now is None:
        return
    seen = {now.body}
    for schedule in neighbours(priced.graph, here):
        lowered = priced.lowered(schedule)
        if lowered is None or lowered.body in seen:
            continue
        seen.add(lowered.body)
        before, after = fields(here), fields(schedule)
        changed = [name for name in after if after[name] != before.get(name)]
        words = ", ".join(f"{name} = {after[name]} (was {before.get(name)})" for name in changed)
        method = FIELD.format(changed[0].rstrip("0123456789").rstrip("_"))
        known = METHODS.get(method, METHODS[WHOLE])
        yield made(
            Reschedule(
                schedule=schedule.model_dump(mode="json"), sentence=f"Schedule with {words}."
            ),
            lowered.source,
            promise=1 - lowered.price.ms / now.price.ms,
            method=method,
            touches=known.touches,
        )


def rewrites_of(source: str, facts: Facts) -> list[Action]:
    """What moves can do to a kernel's text, the most promising first; nothing for other texts."""
    try:
        changes = rewrites(source, facts)
    except NotAKernel:
        return []
    return [
        made(
            Rewrite(
                move=site.move, parameters=dict(site.parameters), sentence=told(site.text, source)
            ),
            reviewed(changed, source, facts.arguments),
            promise=site.benefit,
            method=site.move,
            touches=METHODS[site.move].touches,
        )
        for site, changed in changes
    ]
