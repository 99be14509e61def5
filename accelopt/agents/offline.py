"""The offline proposer: plans, kernels and lessons from the rewriting rules, without a model.

A plan is the sentence of one rewrite; carrying it out finds the rewrite with that sentence again.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Sequence

from accelopt.agents.prompts import quote
from accelopt.agents.proposer import Draft, Failure, KernelView, Lesson, Pair, PlanDraft
from accelopt.backends import Rewrite
from accelopt.kernel_source import fingerprint
from accelopt.records import NO_OPTIMIZATION_TITLE, Candidate

LONGEST_SNIPPET = 24  # lines of a lesson's before and after


Rewrites = Callable[[Candidate, str], Sequence[Rewrite]]
Predict = Callable[[KernelView, str], Awaitable[float | None]]


async def _unknown(view: KernelView, source: str) -> float | None:
    return None


class OfflineProposer:
    """Planner, executor and summarizer in one, deterministic.

    `rewrites` lists what can be done to a source. `predict` gives the milliseconds a source would
    take where that is known before it runs; rewrites are then tried in the order of prediction,
    else in the order of promise.
    """

    def __init__(self, rewrites: Rewrites, predict: Predict = _unknown) -> None:
        self.rewrites = rewrites
        self.predict = predict
        self._ranked: dict[str, asyncio.Task[list[Rewrite]]] = {}

    async def plan(self, view: KernelView, draw: int, draws: int) -> PlanDraft:
        """The rewrite of rank `draw` among those not yet tried on this kernel."""
        tried = {item.plan for item in view.tried}
        ranked = await self._rewrites_of(view, view.kernel)
        open_ones = [rewrite for rewrite in ranked if rewrite.sentence not in tried]
        if draw >= len(open_ones):
            return PlanDraft(None, reason="no further rewrite applies to this kernel")
        return PlanDraft(open_ones[draw].sentence, reasoning=" ".join(view.facts))

    async def implement(self, view: KernelView, plan: str, draw: int, sample: int) -> Draft:
        """The planned rewrite; sample k adds the k most promising ones that then still apply."""
        rewrite = _meant(plan, await self._rewrites_of(view, view.kernel))
        if rewrite is None:
            return Draft(None, "no rewrite applies to this kernel")
        done = [rewrite.sentence]
        for _ in range(sample):
            further = await self._rewrites_of(view, rewrite.source)
            if not further:
                break
            rewrite = further[0]
            done.append(rewrite.sentence)
        return Draft(rewrite.source, plan=" Then: ".join(done))

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

    async def _rewrites_of(self, view: KernelView, source: str) -> list[Rewrite]:
        """The rewrites of `source`, best first, found once."""
        key = fingerprint(source)
        if key not in self._ranked:
            self._ranked[key] = asyncio.create_task(self._rank(view, source))
        return await asyncio.shield(self._ranked[key])

    async def _rank(self, view: KernelView, source: str) -> list[Rewrite]:
        found = await asyncio.to_thread(self.rewrites, view.candidate, source)
        distinct: dict[str, Rewrite] = {}
        for rewrite in sorted(found, key=lambda item: -item.promise):
            if fingerprint(rewrite.source) != fingerprint(source):
                distinct.setdefault(fingerprint(rewrite.source), rewrite)
        ranked = list(distinct.values())
        predicted = await asyncio.gather(*(self.predict(view, item.source) for item in ranked))
        order = sorted(
            zip(predicted, range(len(ranked)), strict=True),
            key=lambda item: (float("inf") if item[0] is None else item[0], item[1]),
        )
        return [ranked[at] for _, at in order]


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
