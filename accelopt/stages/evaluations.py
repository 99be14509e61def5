"""Evaluations of one run: each source once, kept in the journal as soon as it is finished; how many there
may be, and until when."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

from pydantic import ValidationError

from accelopt.evaluation import NO_VERDICTS, Case, Evaluation
from accelopt.nodes import Job, Result
from accelopt.store import Journal

if TYPE_CHECKING:
    from accelopt.kernels.language import Language

KIND = "evaluation"
FINAL = 2.5
"""What the final checks of a search take, in evaluations of a build, beside one of the start: the best kernel
with everything asked takes 1.3 to 1.5 (measured with Triton's interpreter), and one more confirms it."""


class TimeIsOver(Exception):
    """There is no time for another evaluation; the text says so."""


class Deadline:
    """When a search must have ended, its final checks included: `seconds` from now. A build is begun where
    it and the checks will be done by then, if they take what evaluations took so far."""

    def __init__(self, seconds: float = inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._seconds = seconds
        self._end = clock() + seconds
        self._over = False
        self._took: dict[str, float] = {}  # by key; the start's is the first

    def admit(self) -> None:
        """Raises TimeIsOver where an evaluation must not be begun. The start's may, whatever is left."""
        if not self._took:
            return
        start, *builds = self._took.values()
        needed = start + (1 + FINAL) * fmean(builds or [start])
        self._over |= self.clock() + needed > self._end
        if self._over:
            raise TimeIsOver(f"{self._seconds:.0f} seconds are over but for the final checks")

    def learn(self, key: str, seconds: float) -> None:
        """What an evaluation took, now or when it was made."""
        self._took.setdefault(key, seconds)


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
