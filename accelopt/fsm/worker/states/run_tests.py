"""The referee, and the user's own test."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import passes_tests


class RunTests(State[WorkerContext]):
    """The referee, and the user's own test."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        return "BenchmarkNew" if await passes_tests(ctx) else "CheckAttempts"
