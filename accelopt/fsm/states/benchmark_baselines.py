"""What PyTorch and the initial kernel take."""

from __future__ import annotations

from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import State
from accelopt.fsm.steps import benchmark_baselines


class BenchmarkBaselines(State[OptimizationContext]):
    """What PyTorch and the initial kernel take."""

    async def execute(self, ctx: OptimizationContext) -> str:
        """The next state."""
        await benchmark_baselines(ctx)
        return "SelectCandidates"
