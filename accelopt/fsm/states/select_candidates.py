"""What the strategy wants of the next round."""

from __future__ import annotations

from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import State
from accelopt.fsm.steps import select_candidates


class SelectCandidates(State[OptimizationContext]):
    """What the strategy wants of the next round."""

    def execute(self, ctx: OptimizationContext) -> str:
        """The next state."""
        return "RunWorkers" if select_candidates(ctx) else "Finalize"
