"""The kernel to start from, before the whole referee."""

from __future__ import annotations

from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import State
from accelopt.fsm.steps import verify_initial


class VerifyInitialKernel(State[OptimizationContext]):
    """The kernel to start from, before the whole referee."""

    async def execute(self, ctx: OptimizationContext) -> str:
        """The next state."""
        return "BenchmarkBaselines" if await verify_initial(ctx) else "Finalize"
