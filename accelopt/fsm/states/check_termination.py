"""Whether another round follows."""

from __future__ import annotations

from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import State
from accelopt.fsm.steps import check_termination


class CheckTermination(State[OptimizationContext]):
    """Whether another round follows."""

    def execute(self, ctx: OptimizationContext) -> str:
        """The next state."""
        return "SelectCandidates" if check_termination(ctx) else "Finalize"
