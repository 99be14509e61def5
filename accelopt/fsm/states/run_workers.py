"""One inner machine for each candidate."""

from __future__ import annotations

from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import State
from accelopt.fsm.steps import run_workers


class RunWorkers(State[OptimizationContext]):
    """One inner machine for each candidate."""

    async def execute(self, ctx: OptimizationContext) -> str:
        """The next state."""
        await run_workers(ctx)
        return "UpdateStrategy"
