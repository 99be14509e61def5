"""Evaluations in child processes: isolation, hard time and memory limits, parallelism.

This is the one place where an exception of an evaluation becomes a status.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from accelopt.records import Evaluation, EvaluationRequest


def evaluate(request: EvaluationRequest) -> Evaluation:
    """Compile, check and time one kernel in a child process of its own; never raises for a kernel.

    Blocks until the child has ended, at most `request.total_seconds` and a little.
    """
    raise NotImplementedError


class WorkerPool:
    """So many evaluations at once, each in a child process of its own.

    `cores` are the NeuronCores to share out on a Trainium machine; the simulated core needs none.
    """

    def __init__(self, count: int, cores: tuple[int, ...] = ()) -> None:
        self.count = count
        self.cores = cores

    async def submit(self, request: EvaluationRequest) -> Evaluation:
        """`evaluate`, when a worker is free. Cancelling the task ends the child."""
        raise NotImplementedError

    async def __aenter__(self) -> WorkerPool:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.sleep(0)
