"""Why nothing is left to gain, stored for the manager."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import decide_stop


class CheckEarlyStop(State[WorkerContext]):
    """Why nothing is left to gain, stored for the manager."""

    def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        decide_stop(ctx)
        return "WorkerFinalize"
