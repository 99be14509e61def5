"""Evaluations of one run: each source once, kept in the journal as soon as it is finished."""

from __future__ import annotations

import asyncio

from accelopt.evaluation import Evaluation, Status
from accelopt.kernels.language import Backend
from accelopt.published import Candidate
from accelopt.store import Journal

KIND = "evaluation"


class Evaluations:
    """`backend.evaluate`, where equal work is done once in a run, also across an interruption."""

    def __init__(self, backend: Backend, journal: Journal) -> None:
        self.backend = backend
        self.journal = journal
        self.made = 0
        self._running: dict[str, asyncio.Task[Evaluation]] = {}

    async def evaluate(self, candidate: Candidate, source: str) -> Evaluation:
        """The verdict on `source`: from the journal, from a run under way, or from a new run."""
        key = self.backend.evaluation_key(candidate, source)
        kept = self.journal.find(KIND, key)
        if kept is not None:
            return Evaluation.model_validate(kept)
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._evaluate(key, candidate, source))
        return await asyncio.shield(self._running[key])

    async def _evaluate(self, key: str, candidate: Candidate, source: str) -> Evaluation:
        try:
            evaluation = await self.backend.evaluate(candidate, source)
            self.made += 1
            if evaluation.status is not Status.BASELINE_FAILED:  # somebody will mend the reference
                self.journal.append(KIND, key, evaluation.model_dump(mode="json"))
            return evaluation
        finally:
            del self._running[key]

    async def stop(self) -> None:
        """End what is under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
