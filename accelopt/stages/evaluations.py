"""Evaluations of one run: each source once, kept in the journal as soon as it is finished; and how many
there may be."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from pydantic import ValidationError

from accelopt.evaluation import NO_VERDICTS, Case, Evaluation
from accelopt.nodes import Job, Result
from accelopt.stages.deadline import Deadline
from accelopt.store import Journal

if TYPE_CHECKING:
    from accelopt.kernels.language import Language

KIND = "evaluation"


class Evaluations:
    """`language.evaluate`, where equal work is done once in a run, also across an interruption."""

    def __init__(
        self, language: Language, journal: Journal, deadline: Deadline | None = None
    ) -> None:
        self.language = language
        self.journal = journal
        self.deadline = deadline or Deadline()
        self.made = 0
        self._running: dict[str, asyncio.Task[Evaluation]] = {}
        self._waiting: Counter[str] = Counter()

    async def evaluate(self, case: Case, source: str) -> Evaluation:
        """The verdict on `source`: from the journal, from a run under way, or from a new run, which ends
        when nobody waits for it any more.

        Raises TimeIsOver where there is no time for a new one.
        """
        key = self.language.evaluation_key(case, source)
        kept = self._kept(key)
        if kept is not None:
            self.deadline.learn(key, kept.seconds)
            return kept
        if key not in self._running:
            self.deadline.admit()
            self._running[key] = asyncio.create_task(self._evaluate(key, case, source))
        task = self._running[key]
        self._waiting[key] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[key] -= 1
            if not (task.done() or self._waiting[key]) and self._running.pop(key, None) is task:
                task.cancel()
                await asyncio.wait([task])

    def _kept(self, key: str) -> Evaluation | None:
        """What the journal holds; an entry of another form is none."""
        try:
            return Evaluation.model_validate(self.journal.find(KIND, key))
        except ValidationError:
            return None

    async def _evaluate(self, key: str, case: Case, source: str) -> Evaluation:
        begin = self.deadline.clock()
        try:
            evaluation = await self.language.evaluate(case, source)
            self.deadline.learn(key, self.deadline.clock() - begin)
            self.made += 1
            if evaluation.status not in NO_VERDICTS:
                self.journal.append(KIND, key, evaluation.model_dump(mode="json"))
            return evaluation
        finally:
            if self._running.get(key) is asyncio.current_task():
                del self._running[key]

    async def stop(self) -> None:
        """End what is under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Allowance:
    """How many evaluations one search may spend: distinct kernels judged, failures and repairs
    included, repeats and the baseline not. What a cache knows is spent like anything else."""

    def __init__(self, limit: int | None, known: Iterable[str] = ()) -> None:
        self.limit = limit
        self.judged = set(known)
        self.spent = 0
        self._reserved: dict[int, int] = {}

    @property
    def left(self) -> float:
        """What is neither spent nor reserved."""
        if self.limit is None:
            return inf
        return self.limit - self.spent - sum(self._reserved.values())

    def reserve(self, job: Job, most: int, oldest: bool) -> Job | None:
        """The job with its limit; None when it must wait until older ones are done, or, as the
        oldest, for ever. Only the oldest one may get less than all that it could use."""
        if self.limit is None:
            return job
        granted = int(min(most, self.left))
        if granted < most and not (oldest and granted):
            return None
        self._reserved[job.number] = granted
        return job._replace(limit=granted)

    def charge(self, result: Result) -> int:
        """What the job spent in the end; the rest of its reserve is free again."""
        self._reserved.pop(result.job.number, None)
        new = set(result.judged) - self.judged
        self.judged |= new
        self.spent += len(new)
        return len(new)
