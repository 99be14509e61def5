"""The time of the verified kernel."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import time_kernel


class BenchmarkNew(State[WorkerContext]):
    """The time of the verified kernel."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        await time_kernel(ctx)
        return "ProfileSol"
