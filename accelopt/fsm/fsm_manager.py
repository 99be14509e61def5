"""The outer machine: the manager over rounds, with the published entry point."""

from __future__ import annotations

from accelopt.agents.proposer import KernelView
from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import FSMEngine
from accelopt.fsm.manager_base import Optimization
from accelopt.fsm.states import INITIAL, STATES, TRANSITIONS
from accelopt.fsm.worker.context import WorkerSetup
from accelopt.fsm.worker.machine import context_of, walk
from accelopt.nodes import Job, Result
from accelopt.stages.jobs import Work
from accelopt.stages.run import Run


class FSMOptimizationManager(Optimization):
    """Optimises a kernel by rounds of workers, as two state machines.

    `FSMOptimizationManager(...).run_optimization(kernel, problem_file, test_code)` returns the result
    as a dict. Its arguments are those of `Optimization`.
    """

    async def _search(self, ctx: OptimizationContext) -> None:
        engine = FSMEngine(ctx.logger, TRANSITIONS)
        for state in STATES:
            engine.add_state(state())
        await engine.run_async(INITIAL, ctx)

    def _step(self, setup: WorkerSetup) -> Work:
        async def work(job: Job, view: KernelView, run: Run) -> Result:
            return (await walk(context_of(job, view, run, setup))).result

        return work
