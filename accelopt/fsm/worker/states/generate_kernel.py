"""A kernel that relieves it."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import write_kernel


class GenerateKernel(State[WorkerContext]):
    """A kernel that relieves it."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        return "CheckPatterns" if await write_kernel(ctx) else "RecordFailure"
