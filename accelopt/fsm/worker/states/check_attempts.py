"""Whether another refinement is left."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import may_refine


class CheckAttempts(State[WorkerContext]):
    """Whether another refinement is left."""

    def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        return "RefineKernel" if may_refine(ctx) else "RecordFailure"
