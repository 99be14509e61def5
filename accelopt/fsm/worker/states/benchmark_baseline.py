"""The parent's time."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import time_parent


class BenchmarkBaseline(State[WorkerContext]):
    """The parent's time."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        await time_parent(ctx)
        return "ProfileKernel"
