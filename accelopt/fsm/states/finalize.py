"""The result."""

from __future__ import annotations

from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import TERMINAL, State
from accelopt.fsm.steps import finalize


class Finalize(State[OptimizationContext]):
    """The result."""

    async def execute(self, ctx: OptimizationContext) -> str:
        """The next state."""
        await finalize(ctx)
        return TERMINAL
