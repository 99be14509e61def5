"""How near it is to the peaks."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import profile_kernel


class ProfileSol(State[WorkerContext]):
    """How near it is to the peaks."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        await profile_kernel(ctx)
        return "GenerateReflexion"
