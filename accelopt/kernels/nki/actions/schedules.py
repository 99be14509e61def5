"""Kernels by schedule for the kernels of one run: what a search finds, and what a model answers."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from accelopt.concurrency import in_thread
from accelopt.errors import AcceloptError, internal_error
from accelopt.evaluation import Case, Profile
from accelopt.kernels.language import NestAnswer
from accelopt.kernels.nki.actions import primitive_answers
from accelopt.kernels.nki.actions.primitive_answers import NestKernel
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.inspector import Inspector
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.nests.nest import NotNested
from accelopt.kernels.nki.nests.search import described
from accelopt.kernels.nki.predicted_times import Refused
from accelopt.kernels.nki.rescheduling.any_rows import authored
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted, lifted_kernel
from accelopt.kernels.nki.rescheduling.schedule_candidates import (
    ScheduledKernel,
    ScheduledKernels,
    actions_of,
    offered,
)
from accelopt.kernels.nki.text_without_paths import placeless
from accelopt.nodes import Action, Node, Reschedule
from accelopt.sim.errors import NOWHERE
from accelopt.store import content_key, read_text, write_atomically
from accelopt.time_limits import THREAD_SECONDS

NESTS = "nests"
"""The place on the shelf for the nests of kernels, by their text."""
NONE_FASTER = "No schedule of it that a search found is faster than this kernel."


class Scheduling:
    """`inspector` times the schedules, and its shelf keeps them."""

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        self.target = inspector.options.target
        self._failed: dict[str, ScheduledKernels] = {}

    async def brief(self, node: Node) -> Mapping[str, str]:
        """`primitive_answers.brief`; of what no nest makes faster, only what it computes. Empty for a kernel
        that cannot be lifted."""
        offers = self._offers(node)

        def worded() -> Mapping[str, str]:
            lifted = self.lifted(node)
            better = [one for one in offers if one.predicted_ms < (node.latency or math.inf)]
            if offers and not better:
                return {"schedules": f"{primitive_answers.computed(lifted)}\n{NONE_FASTER}"}
            faster = [(one.nest, one.predicted_ms) for one in better]
            return primitive_answers.brief(lifted, self._own(node, lifted, offers), faster)

        try:
            return await in_thread(worded)
        except (NotLifted, NotNested, KernelFailure):
            return {}

    async def answered(self, node: Node, reply: str) -> Action | str | None:
        """The kernel by the nest that a model's `reply` says; one sentence where it says one that the
        kernel does not have; None for a reply that says none."""
        if not primitive_answers.means_nest(reply):
            return None

        def written() -> ScheduledKernel:
            lifted = self.lifted(node)
            own = self._own(node, lifted, self._offers(node))
            nest, lowered = primitive_answers.answered(reply, lifted, own, self.target)
            source = authored(lifted, nest, lowered.source, self.target)
            price = lowered.price  # until it is timed
            return ScheduledKernel(nest, described(nest), source, price.ms, price.moved)

        try:
            offer = await in_thread(written)
        except (NotLifted, NotNested, KernelFailure, primitive_answers.AnswerRefused) as refusal:
            return _said(refusal)
        (action,) = actions_of([offer], counters_of(node.profile))
        return action.with_source(offer.source)

    async def nests(self, node: Node, primitives: str = "") -> NestAnswer:
        """The nest of a kernel after `primitives`, and those that apply to it, timed."""
        try:
            lifted = await in_thread(self.lifted, node)
            asked = primitive_answers.read_primitives(primitives)
            # The same whatever was searched for before: what is applied next stands on it.
            own = await in_thread(self._own, node, lifted, ())
            after = await in_thread(primitive_answers.after, lifted, own.nest, asked, self.target)
            near = await in_thread(primitive_answers.near, lifted, after.nest, self.target)
        except (NotLifted, KernelFailure, NotNested) as refusal:
            said = placeless(_said(refusal), self.inspector.write(node.case, node.source))
            return NestAnswer(f"There is no nest: {said}.")
        self._keep_nests((after,))
        sources = [after.source, *(one.source for one in near.made)]
        times = await asyncio.gather(*(self._predicted(node.case, source) for source in sources))
        text = primitive_answers.listing(lifted, own, asked, after, near, times)
        return NestAnswer(text, after.source if asked else None)

    def _keep_nests(self, made: Iterable[NestKernel | ScheduledKernel]) -> None:
        """A kernel does not say what wrote it: whoever asks for it again is told."""
        for one in made:
            known = one.nest.model_dump(mode="json")
            self.inspector.shelf.put(NESTS, content_key(one.source), known)

    def _own(
        self, node: Node, lifted: Lifted, offers: Sequence[ScheduledKernel]
    ) -> primitive_answers.OwnNest:
        """The nest that primitives of a kernel start from."""
        known = self.inspector.shelf.find(NESTS, content_key(node.source))
        if isinstance(node.change, Reschedule):
            known = node.change.schedule
        found = offers[0].nest if offers else None
        return primitive_answers.nest_of(known, lifted, self.target, found)

    def _offers(self, node: Node) -> Sequence[ScheduledKernel]:
        """The kernels that an earlier search found by nests of one, the fastest first."""
        kept = self._kept(self._key(node, self.inspector.arguments(node.case, node.source)))
        return [o for o in kept.offers if not o.from_reference] if kept else ()

    async def _predicted(self, case: Case, source: str) -> float | str:
        """The milliseconds that a kernel is predicted to take, or why the core refuses it."""
        found = await self.inspector.inspect(case, source)
        return found.profile.latency if found.profile else found.message

    def lifted(self, node: Node) -> Lifted:
        """What a kernel computes. Raises NotLifted and KernelFailure."""
        arguments = self.inspector.arguments(node.case, node.source)
        path = self.inspector.write(node.case, node.source)
        found = lifted_kernel(node.source, path, arguments, self.target, _author(node))
        return found.on_cores(self.lnc)

    @property
    def lnc(self) -> int:
        """The cores of a logical one that a schedule may use."""
        return self.inspector.options.lnc

    def actions(self, node: Node, loop: asyncio.AbstractEventLoop) -> list[Action]:
        """Kernels by schedule for one that lifts, fastest first, timed by workers of `loop`."""
        arguments = self.inspector.arguments(node.case, node.source)
        key = self._key(node, arguments)
        found = self._kept(key)
        if found is None:
            path = self.inspector.write(node.case, node.source)
            times = partial(self._times, node.case, arguments, loop)
            shelf, author = self.inspector.shelf, _author(node)
            try:
                found = offered(
                    node.source, path, arguments, self.target, shelf, times, author, self.lnc,
                    Path(node.case.task),
                )  # fmt: skip
                found = found._replace(refusal=placeless(found.refusal, path))
                self.inspector.shelf.put_row("schedules", key, ScheduledKernels, found)
            except (AcceloptError, OSError):
                raise
            except Exception as error:  # ends this proposer, not the run; another run tries again
                said = str(internal_error(error, "searching for a kernel by schedule"))
                found = self._failed[key] = ScheduledKernels(refusal=said)
        self._keep_nests(found.offers)
        account = {"kernel": node.name, **found.account()}
        place = self.inspector.options.folder / f"{content_key(node.source)}.schedules.json"
        write_atomically(place, json.dumps(account, indent=2) + "\n")
        return actions_of(found.offers, counters_of(node.profile))

    def refusal(self, node: Node) -> str:
        """Why the search for a kernel by schedule, if there was one, found none, or none that is
        predicted to be faster."""
        kept = self._kept(self._key(node, self.inspector.arguments(node.case, node.source)))
        if kept is None or not kept.offers:
            return kept.refusal if kept else ""
        fastest = kept.offers[0].predicted_ms
        if node.latency is None or fastest < node.latency:
            return ""
        timed = kept.counts.get("timed", len(kept.offers))
        said = (
            f"the fastest of {timed} that were timed is predicted to take {fastest:.4g} ms, where this kernel "
            f"takes {node.latency:.4g} ms"
        )
        return f"{said}; not all of it is scheduled: {kept.refusal}" if kept.refusal else said

    def _kept(self, key: str) -> ScheduledKernels | None:
        """What an earlier search came to."""
        if key in self._failed:
            return self._failed[key]
        return self.inspector.shelf.find_row("schedules", key, ScheduledKernels)

    def _key(self, node: Node, arguments: Mapping[str, ParameterFacts]) -> str:
        return self.inspector.key(
            node.case, node.source, _author(node), repr(arguments), self.target, str(self.lnc),
            read_text(node.case.task),
        )  # fmt: skip

    def _times(
        self,
        case: Case,
        arguments: Mapping[str, ParameterFacts],
        loop: asyncio.AbstractEventLoop,
        sources: Sequence[str],
        most_ms: float = math.inf,
    ) -> list[float]:
        """Predictions for kernels with these arguments, by the workers, which go on beyond `most_ms`; for a
        thread of its own."""
        asked = [
            asyncio.run_coroutine_threadsafe(
                self.inspector.inspect_given(case, arguments, source), loop
            )
            for source in sources
        ]
        found = [inspected.result(THREAD_SECONDS) for inspected in asked]
        return [f.profile.latency if f.profile else Refused(f.message) for f in found]


def _author(node: Node) -> str:
    """The text that a search began with: whatever was tried since, schedules are written into that."""
    *_, first = node.lineage()
    return first.source


def counters_of(profile: Profile | None) -> dict[str, float]:
    """The counters of a profile, with its latency in milliseconds."""
    return {**profile.metrics, "latency": profile.latency} if profile else {}


def _said(refusal: Exception) -> str:
    """A refusal with the kernel's line, whatever file holds the kernel."""
    if isinstance(refusal, NotLifted) and refusal.source != NOWHERE:
        return f"line {refusal.source.line}: {refusal.reason}"
    return str(refusal)
