"""What can be set in a kernel, and what can be done to it, without looking ahead.

Both come from nests priced in closed form: of a kernel that none wrote, the cheapest; of one that a nest
wrote, what single primitives make of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from accelopt.algorithm.ir import Reduce, own_axes
from accelopt.kernel_source import fingerprint
from accelopt.kernels.language import Configured
from accelopt.kernels.moves import METHODS
from accelopt.kernels.nki.actions.knobs import NestKnobs
from accelopt.kernels.nki.actions.primitive_answers import (
    cheapest_nests,
    lowered_or_none,
    single_primitives,
)
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.nests.diagonals import diagonals
from accelopt.kernels.nki.nests.lowering import Lowered
from accelopt.kernels.nki.nests.nest import PLAIN, Nest, NotNested, product_in, ready
from accelopt.kernels.nki.nests.search import HOPELESS, described
from accelopt.kernels.nki.nests.skipping import masks_of
from accelopt.kernels.nki.rescheduling.any_rows import authored
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted
from accelopt.kernels.nki.rescheduling.schedule_candidates import nest_in
from accelopt.knob_space import Parameter, Space
from accelopt.nodes import Action, Chain, Node, Reschedule, made

MOST_WHOLE = 6
"""Nests that are offered for a kernel that none wrote."""
MOST_NEAR = 16
"""Neighbours that are offered, the cheapest first."""
WHOLE = "schedule"
OF_PRODUCTS = {"append", "accumulate", "orient", "contract"}
"""Kinds of primitives that are for matrix products."""


class Tuning:
    """Write the kernel anew by the cheapest loop nest of what it computes.

    Knobs and neighbours of the kernels of one run: `lifted` says what a kernel computes (raises
    NotLifted, KernelFailure)."""

    def __init__(self, target: str, lifted: Callable[[Node], Lifted]) -> None:
        self.target = target
        self._lift = lifted
        self._priced: dict[str, _Priced | None] = {}
        self._knobs: dict[str, NestKnobs | None] = {}

    def space(self, node: Node) -> Space | None:
        """The knobs of a kernel; None for one that has none."""
        sizes = {k: v for k, v in node.case.values.items() if isinstance(v, int)}
        knobs = self._knobs_of(node)
        return knobs.space(node.case.problem, sizes) if knobs else None

    def useless(self, node: Node) -> frozenset[str]:
        """Kinds of primitives that have nothing to be used on in what a kernel computes, or on its machine."""
        priced = self._algorithm_of(node)
        if priced is None:
            return frozenset()
        lifted, missing = priced.lifted, set[str]()
        try:
            definitions = ready(lifted.algorithm, PLAIN).definitions
        except NotNested:
            return frozenset()
        products = [d for d in definitions if (found := product_in(d)) and found.rows]
        if not products:
            missing |= OF_PRODUCTS
        if len([d for d in definitions if isinstance(d, Reduce)]) < 2:
            missing.add("append")
        if not any(diagonals(lifted.algorithm)):
            missing.add("diagonal")
        if not any(masks_of(definitions, axis) for d in definitions for axis in own_axes(d)):
            missing.add("skip")
        if lifted.dialect != "nki":
            missing |= {"cores", "descriptors"}
        return frozenset(missing)

    def configured(self, node: Node, values: Mapping[str, Parameter]) -> Configured:
        """The kernel with its knobs set."""
        knobs = self._knobs_of(node)
        return knobs.configured(values) if knobs else Configured(None, "the kernel has no knobs")

    def schedules(self, node: Node) -> list[Action]:
        """The cheapest nests of what a kernel computes."""
        priced = self._algorithm_of(node)
        if priced is None:
            return []
        now = node.latency or math.inf
        return [
            priced.action(how, sentence, 1 - lowered.price.ms / now, WHOLE)
            for how, sentence, lowered in priced.whole
        ]

    def neighbours(self, node: Node) -> list[Action] | None:
        """What single primitives make of the nest that wrote a kernel; None for any other
        kernel."""
        here = _written_by(node)
        priced = self._algorithm_of(node) if here else None
        now = priced.lowered(here) if priced and here else None
        if priced is None or here is None or now is None:
            return None
        if fingerprint(priced.authored(here, now)) != node.key:
            return None  # somebody changed it since
        found = single_primitives(
            priced.lifted.algorithm, here, self.target, priced.lowered, Counter()
        )
        close = (one for one in found if one[2].price.ms < HOPELESS * now.price.ms)
        near = sorted(close, key=lambda one: one[2].price.ms)
        return [
            priced.action(
                nest, f"Nest after {primitive}", 1 - low.price.ms / now.price.ms, primitive.kind
            )
            for primitive, nest, low in near[:MOST_NEAR]
        ]

    def _algorithm_of(self, node: Node) -> _Priced | None:
        """A correct kernel computes what it was made of, so the first that lifts speaks for all."""
        return next(filter(None, map(self._priced_of, reversed([*node.lineage()]))), None)

    def _knobs_of(self, node: Node) -> NestKnobs | None:
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


class _Priced:
    """The nests of an algorithm by their price."""

    def __init__(self, lifted: Lifted, target: str) -> None:
        self.lifted = lifted
        self.target = target
        self._lowered: dict[Nest, Lowered | None] = {}

    def lowered(self, how: Nest) -> Lowered | None:
        """The kernel of a nest, made once; None for one that has none."""
        if how not in self._lowered:
            self._lowered[how] = lowered_or_none(self.lifted, self.target, how)
        return self._lowered[how]

    @cached_property
    def nests(self) -> list[tuple[Nest, Lowered]]:
        """Nests to begin with, the cheapest first."""
        return cheapest_nests(self.lifted.algorithm, self.target, self.lowered)

    @property
    def whole(self) -> Iterator[tuple[Nest, str, Lowered]]:
        """Different ones of the cheapest, with a sentence on each."""
        for nest, lowered in self.nests[:MOST_WHOLE]:
            if lowered.price.ms < self.nests[0][1].price.ms * HOPELESS:
                yield nest, described(nest), lowered

    def action(self, how: Nest, sentence: str, promise: float, method: str) -> Action:
        """The kernel by a nest, as something that can be done."""
        lowered = self.lowered(how)
        assert lowered is not None
        return made(
            Reschedule(schedule=how.model_dump(mode="json"), sentence=f"{sentence}."),
            self.authored(how, lowered),
            promise=promise,
            method=method,
            touches=METHODS.get(method, METHODS[WHOLE]).touches,
        )

    def authored(self, how: Nest, lowered: Lowered) -> str:
        """The kernel in its author's module."""
        return authored(self.lifted, how, lowered.source, self.target)

    def knobs(self) -> NestKnobs | None:
        """What can be set; None where no nest has a kernel."""
        return NestKnobs(self.lifted, self.nests, self.target) if self.nests else None


def _written_by(node: Node) -> Nest | None:
    """The nest that made a kernel."""
    return nest_in(node.change.steps[-1] if isinstance(node.change, Chain) else node.change)
