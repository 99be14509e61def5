"""The seven states of the manager as a table: what each does, and where its answer leads. Where there are two ways on,
the answer says which."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from math import inf

from accelopt.errors import AcceloptError
from accelopt.evaluation import Evaluation, Status
from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import TERMINAL, declared, state
from accelopt.fsm.program_database import program_of, write_database
from accelopt.fsm.worker.context import TOP_KERNELS
from accelopt.fsm.worker.user_test import refusal
from accelopt.kernels.gpu.alternatives import COMPILED, PYTORCH
from accelopt.nodes import Job, Node, Plan, Result
from accelopt.script_file_columns import plan_id
from accelopt.stages.baseline_and_winner import first_verified, measure_alternatives
from accelopt.stages.experience import write_findings
from accelopt.stages.jobs import by_rule, keep, perform, silence
from accelopt.store import write_atomically, write_json


async def verify_initial(ctx: OptimizationContext) -> bool:
    """Whether the kernel to start from passes the referee, and the user's own test. One that only hidden
    inputs find fault with may be started from; it is no result (`finalize`)."""
    workshop, case = ctx.run.workshop, ctx.case
    source = workshop.language.complete(workshop.language.source(case))
    evaluation = await workshop.verifications.evaluate(case, source)
    node = Node(case, source, evaluation)
    error = "" if node.profile else f"{evaluation.status.value}: {evaluation.message}"
    if not error and ctx.setup.test_code:
        error = await refusal(ctx.setup.test_code, node, ctx.run)
    place = ctx.folder / "initial_verify"
    write_atomically(place / "kernel.py", source)
    write_json(place / "verdict.json", {"passed": not error, "error": error})
    if error:
        ctx.result = failed(f"the initial kernel fails: {error}")
        return False
    ctx.start = node
    ctx.strategy.initialize(node)
    ctx.judged.add(workshop.language.evaluation_key(case, source))
    return True


async def benchmark_baselines(ctx: OptimizationContext) -> None:
    """PyTorch's times in milliseconds where the language has such a reference, else infinite."""
    found = await measure_alternatives(ctx.case, ctx.run)
    ctx.eager_ms, ctx.compiled_ms = (found.get(name, inf) for name in (PYTORCH, COMPILED))
    ctx.setup = ctx.setup._replace(eager=ctx.eager_ms)
    ctx.logger.info("baselines: eager %g ms, compiled %g ms", ctx.eager_ms, ctx.compiled_ms)


def select_candidates(ctx: OptimizationContext) -> bool:
    """Whether the next round has anything to do."""
    ctx.jobs = [*iter(ctx.strategy.ask, None)]
    if not ctx.jobs:
        ctx.strategy.stop_reason = "nothing is left to try"
    return bool(ctx.jobs)


async def run_workers(ctx: OptimizationContext) -> None:
    """One inner machine for each job, side by side."""
    ctx.told = await _side_by_side(ctx, ctx.jobs)
    if said := silence(ctx.told, ctx.run):
        ctx.run = by_rule(ctx.run)
        ctx.logger.error("%s; the rules go on alone", said)


async def _side_by_side(ctx: OptimizationContext, jobs: Sequence[Job]) -> list[Result]:
    """What came of each job. Workers beyond the common deadline are ended, with whatever child
    processes their kernels run in."""
    tasks = [asyncio.create_task(_task(ctx, job, place)) for place, job in enumerate(jobs)]
    try:
        _, late = await asyncio.wait(tasks, timeout=ctx.deadline)
        if late:
            for task in late:
                task.cancel()
            await ctx.run.workshop.evaluations.stop()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [_ended(ctx, job, task) for job, task in zip(jobs, tasks, strict=True)]


async def _task(ctx: OptimizationContext, job: Job, place: int) -> Result:
    folder = ctx.folder / "workers" / f"w{place}" / f"r{job.round}"
    setup = ctx.setup._replace(worker_id=place, folder=folder)
    judged = frozenset(ctx.judged)
    return await perform(job, ctx.run, ctx.knowledge, judged, ctx.step(setup))


def _ended(ctx: OptimizationContext, job: Job, task: asyncio.Task[Result]) -> Result:
    if task.cancelled():
        return lost(job, f"it did not end within {ctx.deadline:g} s")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, AcceloptError) or not isinstance(error, Exception):
        raise error
    ctx.logger.error("worker of job %d: %s", job.number, "".join(traceback.format_exception(error)))
    return lost(job, f"{type(error).__name__}: {error}")


def lost(job: Job, reason: str) -> Result:
    """What stands for the result of a worker that did not come to its end."""
    evaluation = Evaluation(status=Status.MISSING, message=f"the worker was lost: {reason}")
    change = Plan(sentence=f"Relieve bottleneck {job.focus}.")
    node = Node(job.node.case, "", evaluation, job.node, change, plan_id(job.number, 0))
    return Result(job, nodes=(node,), remarks=(reason,))


def update_strategy(ctx: OptimizationContext) -> None:
    """What came of the round goes to the journal, the strategy, the next workers and the files."""
    keep(ctx.told, ctx.run)
    ctx.results += ctx.told
    ctx.judged.update(key for result in ctx.told for key in result.judged)
    ctx.knowledge = ctx.knowledge._replace(results=tuple(ctx.results))
    for result in ctx.told:
        ctx.strategy.tell(result)
        for node in result.nodes:
            if node.latency is None:
                ctx.logger.info("round %d, job %d: %s", result.job.round, result.job.number,
                                node.evaluation.message)  # fmt: skip
    best, number = ctx.strategy.best, ctx.strategy.round - 1
    ctx.logger.info("round %d: best %g ms, %s", number, best.latency or 0.0, best.name)
    write_database(ctx.database, ctx.case, ctx.strategy.ranked())
    write_findings(ctx.run.folder, ctx.case, ctx.results)


def check_termination(ctx: OptimizationContext) -> bool:
    """Whether another round follows; the strategy's `stop_reason` then says why none does."""
    number = ctx.strategy.round - 1
    if not ctx.strategy.stop_reason and number >= ctx.max_rounds:
        ctx.strategy.stop_reason = f"{number} round{' is' if number == 1 else 's are'} done"
    return not ctx.strategy.stop_reason


async def finalize(ctx: OptimizationContext) -> None:
    """The result, unless one is set: the fastest kernel that the whole referee accepts."""
    if ctx.result is not None or ctx.start is None:
        return
    ranked = ctx.strategy.ranked()
    best, verdict = await first_verified(ranked, ctx.run)
    if best is None:
        ctx.result = failed(f"no kernel passes every check: {verdict.message}")
        return
    ranked = ranked[ranked.index(best) :]
    ctx.result = {
        "success": True,
        "kernel_code": best.source,
        "best_time_ms": best.latency,
        "total_rounds": ctx.results[-1].job.round if ctx.results else 0,
        "pytorch_baseline_ms": ctx.eager_ms,
        "pytorch_compile_ms": ctx.compiled_ms,
        "initial_kernel_time_ms": ctx.start.latency,
        "top_kernels": [*map(program_of, ranked[:TOP_KERNELS])],
        "stop_reason": ctx.strategy.stop_reason,
    }


def failed(error: str) -> dict[str, object]:
    """The result of an optimisation that did not come to a kernel."""
    return {"success": False, "error": error, "kernel_code": None, "total_rounds": 0,
            "stop_reason": error.partition(":")[0]}  # fmt: skip


VerifyInitialKernel = state("VerifyInitialKernel", verify_initial, "BenchmarkBaselines", "Finalize")
BenchmarkBaselines = state("BenchmarkBaselines", benchmark_baselines, "SelectCandidates")
SelectCandidates = state("SelectCandidates", select_candidates, "RunWorkers", "Finalize")
RunWorkers = state("RunWorkers", run_workers, "UpdateStrategy")
UpdateStrategy = state("UpdateStrategy", update_strategy, "CheckTermination")
CheckTermination = state("CheckTermination", check_termination, "SelectCandidates", "Finalize")
Finalize = state("Finalize", finalize, TERMINAL)

STATES = (
    VerifyInitialKernel,
    BenchmarkBaselines,
    SelectCandidates,
    RunWorkers,
    UpdateStrategy,
    CheckTermination,
    Finalize,
)
INITIAL = VerifyInitialKernel.name
TRANSITIONS = declared(STATES)
