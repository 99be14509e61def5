"""The attempt failed, with its error."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import record_failure


class RecordFailure(State[WorkerContext]):
    """The attempt failed, with its error."""

    def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        record_failure(ctx)
        return "GenerateReflexion"
