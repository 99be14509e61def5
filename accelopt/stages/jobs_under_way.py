"""The jobs of one search that are under way: begun in the order of asking, told in that order too."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelopt.nodes import Job, Node, Result
from accelopt.stages.deadline import TimeIsOver
from accelopt.stages.evaluations import Allowance
from accelopt.stages.jobs import Knowledge, most_of, perform

if TYPE_CHECKING:
    from accelopt.stages.run import Run

FRUITLESS = 200  # jobs in a row that spend nothing and so end a search


@dataclass
class _Asked:
    job: Job
    known: Knowledge
    task: asyncio.Task[Result] | None = None


class JobWindow:
    """At most `settings.window` jobs, of which each is begun when its evaluations are allowed.

    A job that might want more than is left waits until older ones are done, so what is asked and
    told never depends on the budget: a smaller one only ends earlier.
    """

    def __init__(self, start: Node, run: Run) -> None:
        self.run = run
        baseline = run.workshop.language.evaluation_key(start.case, start.source)
        self.allowance = Allowance(run.settings.evaluations, [baseline])
        self._asked: deque[_Asked] = deque()
        self._late = ""
        self._fruitless = 0
        self._idle = False

    @property
    def open(self) -> bool:
        """Whether another job may be asked for."""
        return len(self._asked) < self.run.settings.window

    @property
    def why_not(self) -> str:
        """Why there is nothing to wait for or to spend; empty otherwise."""
        if self.allowance.limit is not None and self.allowance.spent >= self.allowance.limit:
            return f"{self.allowance.limit} evaluations are spent"
        if self._late:
            return self._late
        if self._fruitless >= FRUITLESS:
            return f"{FRUITLESS} jobs in a row brought no new kernel"
        return "nothing is left to try" if self._idle else ""

    def begin(self, job: Job, known: Knowledge) -> None:
        """Do the job as soon as it is allowed, with what is known now."""
        waiting = any(asked.task is None for asked in self._asked)
        self._asked.append(_Asked(job, known))
        if not waiting:
            self._start(self._asked[-1])

    async def oldest(self) -> Result | None:
        """What came of the job asked for first; None when there is none, or it is not allowed, or there is
        no time for it, and `why_not` says so."""
        if not self._asked:
            self._idle = True
            return None
        asked = self._asked[0]
        if asked.task is None:
            self._start(asked)
        if asked.task is None:
            return None
        try:
            result = await asked.task
        except TimeIsOver as over:
            self._late = str(over)
            return None
        self._asked.popleft()
        self._fruitless = 0 if self.allowance.charge(result) else self._fruitless + 1
        return result

    def _start(self, asked: _Asked) -> None:
        job = self.allowance.reserve(
            asked.job, most_of(asked.job, self.run), oldest=asked is self._asked[0]
        )
        if job is not None:
            judged = frozenset(self.allowance.judged)
            asked.task = asyncio.create_task(self._perform(job, asked.known, judged))

    async def _perform(self, job: Job, known: Knowledge, judged: frozenset[str]) -> Result:
        """What comes of a job, when its files are written. Raises TimeIsOver where there is none for it;
        what was done before an interruption is told again, whatever the time."""
        evaluations, language = self.run.workshop.evaluations, self.run.workshop.language
        if evaluations.made:
            evaluations.deadline.admit()
        result = await perform(job, self.run, known, judged)
        for node in (node for node in result.nodes if node.source):
            key = language.evaluation_key(node.case, node.source)
            evaluations.deadline.learn(key, node.evaluation.seconds)
        if self.run.files is not None:
            await self.run.files.add(result, language)
        return result

    async def close(self) -> None:
        """End what is under way."""
        tasks = [asked.task for asked in self._asked if asked.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
