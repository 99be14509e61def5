"""Which bottleneck this worker takes on."""

from __future__ import annotations

from accelopt.fsm.engine import State
from accelopt.fsm.worker.context import WorkerContext
from accelopt.fsm.worker.steps import choose_bottleneck


class AnalyzeBottleneck(State[WorkerContext]):
    """Which bottleneck this worker takes on."""

    async def execute(self, ctx: WorkerContext) -> str:
        """The next state."""
        return "GenerateKernel" if await choose_bottleneck(ctx) else "WorkerFinalize"
