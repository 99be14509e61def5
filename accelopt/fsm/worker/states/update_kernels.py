"""The best by time and the best by efficiency, kept apart."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import update_kernels


class UpdateKernels(State[WorkerContext]):
    """The best by time and the best by efficiency, kept apart."""

    def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        return "CheckEarlyStop" if update_kernels(ctx) else "WorkerFinalize"
