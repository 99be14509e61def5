"""What came of the round."""

from __future__ import annotations

from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import State
from accelopt.fsm.steps import update_strategy


class UpdateStrategy(State[OptimizationContext]):
    """What came of the round."""

    def execute(self, ctx: OptimizationContext) -> str:
        """The next state."""
        update_strategy(ctx)
        return "CheckTermination"
