"""What the attempt taught; failures teach, too."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import reflect


class GenerateReflexion(State[WorkerContext]):
    """What the attempt taught; failures teach, too."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        return "UpdateKernels" if await reflect(ctx) else "WorkerFinalize"
