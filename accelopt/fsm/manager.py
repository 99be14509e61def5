"""The imperative twin of both machines, over the same steps: what they must agree with."""

from __future__ import annotations

from accelopt.agents.proposer import KernelView
from accelopt.fsm import steps
from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.manager_base import Optimization
from accelopt.fsm.worker import steps as worker
from accelopt.fsm.worker.context import WorkerContext, WorkerSetup
from accelopt.fsm.worker.machine import context_of, result_of
from accelopt.nodes import Job, Result
from accelopt.stages.jobs import Work
from accelopt.stages.run import Run


class OptimizationManager(Optimization):
    """`FSMOptimizationManager` without machines: the same arguments, the same result."""

    async def _search(self, ctx: OptimizationContext) -> None:
        if await steps.verify_initial(ctx):
            await steps.benchmark_baselines(ctx)
            while steps.select_candidates(ctx):
                await steps.run_workers(ctx)
                steps.update_strategy(ctx)
                if not steps.check_termination(ctx):
                    break
        await steps.finalize(ctx)

    def _step(self, setup: WorkerSetup) -> Work:
        async def work(job: Job, view: KernelView, run: Run) -> Result:
            ctx = context_of(job, view, run, setup)
            await _develop(ctx)
            return result_of(ctx, [])

        return work


async def _develop(ctx: WorkerContext) -> None:
    await worker.time_parent(ctx)
    await worker.profile_parent(ctx)
    if await worker.choose_bottleneck(ctx):
        if await _verified(ctx):
            await worker.time_kernel(ctx)
            await worker.profile_kernel(ctx)
        else:
            worker.record_failure(ctx)
        if await worker.reflect(ctx) and worker.update_kernels(ctx):
            worker.decide_stop(ctx)
    worker.finish(ctx)


async def _verified(ctx: WorkerContext) -> bool:
    if not (await worker.write_kernel(ctx) and worker.screen(ctx)):
        return False
    passed = await worker.passes_tests(ctx)
    while not passed and worker.may_refine(ctx):
        await worker.refine(ctx)
        passed = worker.screen(ctx) and await worker.passes_tests(ctx)
    return passed
