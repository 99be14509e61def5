"""The error goes to whoever repairs."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import refine


class RefineKernel(State[WorkerContext]):
    """The error goes to whoever repairs."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        await refine(ctx)
        return "CheckPatterns"
