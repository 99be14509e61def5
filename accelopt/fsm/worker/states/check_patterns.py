"""The text alone, before anything runs. A violation in a refinement costs one attempt."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import screen


class CheckPatterns(State[WorkerContext]):
    """The text alone, before anything runs. A violation in a refinement costs one attempt."""

    def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        if screen(ctx):
            return "RunTests"
        return "CheckAttempts" if ctx.refinements else "RecordFailure"
