"""Where the parent's time goes."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import profile_parent


class ProfileKernel(State[WorkerContext]):
    """Where the parent's time goes."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        await profile_parent(ctx)
        return "AnalyzeBottleneck"
