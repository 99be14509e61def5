"""Metrics and files."""

from __future__ import annotations

from accelopt.fsm.engine import TERMINAL, State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import finish


class WorkerFinalize(State[WorkerContext]):
    """Metrics and files."""

    def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        finish(ctx)
        return TERMINAL
