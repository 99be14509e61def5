"""The offline proposer: plans, kernels and lessons from the rewriting rules, without a model.

A plan is a chain of rewrites, as their sentences joined by THEN. Carrying it out finds the rewrite
of each sentence again, so a plan that travelled as text is carried out exactly.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from math import isfinite
from typing import Any, NamedTuple, TypeVar

from accelopt.agents.prompts import quote
from accelopt.agents.proposer import Draft, Failure, KernelView, Lesson, Pair, PlanDraft
from accelopt.kernel_source import fingerprint
from accelopt.kernels.language import Rewrite
from accelopt.published import NO_OPTIMIZATION_TITLE, Candidate

T = TypeVar("T")

LONGEST_SNIPPET = 24  # lines of a lesson's before and after
LONGEST_CHAIN = 2  # rewrites in one plan
MOST_PREDICTED = 6  # rewrites of one kernel whose time is predicted, or as many as are drawn
MOST_EXTENDED = 6  # of those, the fastest ones, that may begin a longer chain
MOST_FURTHER = 3  # the same for a kernel inside a chain
SPARE = 1  # chains looked at beyond those that were drawn or tried
LEAST_GAIN = 0.002  # predicted share of the goal that a plan must save to be carried out
GAIN = 0.01  # predicted share of the time that a further rewrite of a chain must save
THEN = " Then: "

Rewrites = Callable[[Candidate, str], Sequence[Rewrite]]
Predict = Callable[[KernelView, str], Awaitable[float | None]]


class Option(NamedTuple):
    """A rewrite, and the milliseconds predicted for it where that is known."""

    rewrite: Rewrite
    predicted: float | None


async def _unknown(view: KernelView, source: str) -> float | None:
    return None


class OfflineProposer:
    """Planner, executor and summarizer in one, deterministic.

    `rewrites` lists what can be done to a source, most promising first. `predict` gives the
    milliseconds a source would take where that is known before it runs; it then decides the order
    of the rewrites, and how far a chain goes.
    """

    def __init__(self, rewrites: Rewrites, predict: Predict = _unknown) -> None:
        self.rewrites = rewrites
        self.predict = predict
        self._found: dict[str, asyncio.Task[list[Rewrite]]] = {}
        self._ranked: dict[str, asyncio.Task[list[Option]]] = {}

    async def plan(self, view: KernelView, draw: int, draws: int) -> PlanDraft:
        """The chain that begins with the rewrite of rank `draw`, among those not yet tried and not
        predicted to miss the goal."""
        seen = {item.plan for item in view.tried}
        fresh = 0
        ranked = await self._rank(view, view.kernel, max(MOST_PREDICTED, draws))
        for place, option in enumerate(ranked[: draws + len(seen) + SPARE]):
            longest = LONGEST_CHAIN if place < MOST_EXTENDED else 1
            chain, predicted = await self._chain(view, option, longest)
            if chain in seen or _hopeless(predicted, view.goal):
                continue
            if fresh == draw:
                return PlanDraft(chain, reasoning=" ".join(view.facts))
            seen.add(chain)
            fresh += 1
        return PlanDraft(None, reason=_why_none(len(ranked)))

    async def implement(self, view: KernelView, plan: str, draw: int, sample: int) -> Draft:
        """The planned chain; sample k leaves out its last k rewrites, but not the first."""
        steps = plan.split(THEN)
        source, done = view.kernel, list[str]()
        for step in steps[: max(1, len(steps) - sample)]:
            rewrite = _meant(step, await self._find(view, source))
            if rewrite is None:
                break
            source = rewrite.source
            done.append(rewrite.sentence)
        if not done:
            return Draft(None, "no rewrite applies to this kernel")
        return Draft(source, plan=THEN.join(done))

    async def repair(
        self, view: KernelView, plan: str, draw: int, sample: int, failure: Failure
    ) -> Draft:
        """None: a rewrite that failed is not mended by rule."""
        return Draft(None, "the offline proposer does not repair")

    async def summarize(self, pair: Pair) -> Lesson:
        """The plan as a lesson, with the lines that differ."""
        if not pair.plan or fingerprint(pair.slow_kernel) == fingerprint(pair.fast_kernel):
            return Lesson(NO_OPTIMIZATION_TITLE, None)
        title = f"**{pair.plan.split('. ')[0].rstrip('.')}**"
        before, after = _difference(pair.slow_kernel, pair.fast_kernel)
        summary = "\n\n".join(
            [
                title,
                f"{pair.plan} Measured: {pair.speedup:.2f} times as fast.",
                quote(f"# before\n{before}", "python"),
                quote(f"# after\n{after}", "python"),
            ]
        )
        return Lesson(title, summary, summary)

    async def _chain(
        self, view: KernelView, first: Option, longest: int
    ) -> tuple[str, float | None]:
        """The sentences of `first` and of the rewrites that are predicted to help after it, and
        the milliseconds predicted for all of them together."""
        sentences, now = [first.rewrite.sentence], first
        while len(sentences) < longest and now.predicted is not None and isfinite(now.predicted):
            further = await self._rank(view, now.rewrite.source, MOST_FURTHER)
            if not further or further[0].predicted is None:
                break
            if further[0].predicted > now.predicted * (1 - GAIN):
                break
            now = further[0]
            sentences.append(now.rewrite.sentence)
        return THEN.join(sentences), now.predicted

    async def _rank(self, view: KernelView, source: str, predicted: int) -> list[Option]:
        """The rewrites of `source`: by prediction, those without one behind, in their order."""
        key = f"{predicted}/{fingerprint(source)}"
        return await _once(self._ranked, key, lambda: self._predict(view, source, predicted))

    async def _find(self, view: KernelView, source: str) -> list[Rewrite]:
        """The rewrites of `source`, most promising first, one for each different result."""
        return await _once(self._found, fingerprint(source), lambda: self._rewrite(view, source))

    async def _predict(self, view: KernelView, source: str, predicted: int) -> list[Option]:
        found = await self._find(view, source)
        head = found[:predicted]
        times = await asyncio.gather(*(self.predict(view, rewrite.source) for rewrite in head))
        options = [Option(*pair) for pair in zip(head, times, strict=True)]
        known = [option for option in options if option.predicted is not None]
        known.sort(key=lambda option: option.predicted or 0.0)
        unknown = [option for option in options if option.predicted is None]
        return known + unknown + [Option(rewrite, None) for rewrite in found[predicted:]]

    async def _rewrite(self, view: KernelView, source: str) -> list[Rewrite]:
        found = await asyncio.to_thread(self.rewrites, view.candidate, source)
        distinct: dict[str, Rewrite] = {}
        for rewrite in sorted(found, key=lambda item: -item.promise):
            if fingerprint(rewrite.source) != fingerprint(source):
                distinct.setdefault(fingerprint(rewrite.source), rewrite)
        return list(distinct.values())


def _why_none(rewrites: int) -> str:
    """Why there is no plan, or no further one, for the person who waits for it."""
    if not rewrites:
        return "no rewriting rule applies to this kernel"
    return f"of {rewrites} rewrites that apply, none is left that promises a faster kernel"


def _hopeless(predicted: float | None, goal: float | None) -> bool:
    return predicted is not None and goal is not None and predicted > goal * (1 - LEAST_GAIN)


async def _once(
    tasks: dict[str, asyncio.Task[T]], key: str, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """The result of `work`, begun once for each key."""
    if key not in tasks:
        tasks[key] = asyncio.create_task(work())
    return await asyncio.shield(tasks[key])


def _meant(plan: str, rewrites: Sequence[Rewrite]) -> Rewrite | None:
    """The rewrite that `plan` names, or the one whose sentence is most like it."""
    for rewrite in rewrites:
        if rewrite.sentence == plan:
            return rewrite
    return max(rewrites, key=lambda item: _likeness(plan, item.sentence), default=None)


def _likeness(plan: str, sentence: str) -> float:
    words = sentence.lower().split()
    return difflib.SequenceMatcher(None, plan.lower().split(), words).ratio()


def _difference(slow: str, fast: str) -> tuple[str, str]:
    """The lines that only one of the two kernels has, cut to a readable length."""
    before, after = [], []
    for line in difflib.ndiff(slow.splitlines(), fast.splitlines()):
        if line.startswith("- "):
            before.append(line[2:])
        elif line.startswith("+ "):
            after.append(line[2:])
    return "\n".join(before[:LONGEST_SNIPPET]), "\n".join(after[:LONGEST_SNIPPET])
