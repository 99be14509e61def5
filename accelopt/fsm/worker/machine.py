"""The inner machine: its states, and every edge between them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

from accelopt.agents.developer_by_rule import DeveloperByRule
from accelopt.agents.proposer import KernelView
from accelopt.evaluation import Evaluation, Status
from accelopt.findings import Development
from accelopt.fsm.engine import TERMINAL, FSMEngine
from accelopt.fsm.worker.context import UNKNOWN, Gear, WorkerContext
from accelopt.fsm.worker.states.analyze_bottleneck import AnalyzeBottleneck
from accelopt.fsm.worker.states.benchmark_baseline import BenchmarkBaseline
from accelopt.fsm.worker.states.benchmark_new import BenchmarkNew
from accelopt.fsm.worker.states.check_attempts import CheckAttempts
from accelopt.fsm.worker.states.check_early_stop import CheckEarlyStop
from accelopt.fsm.worker.states.check_patterns import CheckPatterns
from accelopt.fsm.worker.states.generate_kernel import GenerateKernel
from accelopt.fsm.worker.states.generate_reflexion import GenerateReflexion
from accelopt.fsm.worker.states.profile_kernel import ProfileKernel
from accelopt.fsm.worker.states.profile_sol import ProfileSol
from accelopt.fsm.worker.states.record_failure import RecordFailure
from accelopt.fsm.worker.states.refine_kernel import RefineKernel
from accelopt.fsm.worker.states.run_tests import RunTests
from accelopt.fsm.worker.states.update_kernels import UpdateKernels
from accelopt.fsm.worker.states.worker_finalize import WorkerFinalize
from accelopt.nodes import Job, Node, Result
from accelopt.stages.run import Run

STATES = (
    BenchmarkBaseline,
    ProfileKernel,
    AnalyzeBottleneck,
    GenerateKernel,
    CheckPatterns,
    RunTests,
    CheckAttempts,
    RefineKernel,
    BenchmarkNew,
    ProfileSol,
    GenerateReflexion,
    UpdateKernels,
    CheckEarlyStop,
    RecordFailure,
    WorkerFinalize,
)
INITIAL = BenchmarkBaseline.name
TRANSITIONS = {
    "BenchmarkBaseline": ("ProfileKernel",),
    "ProfileKernel": ("AnalyzeBottleneck",),
    "AnalyzeBottleneck": ("GenerateKernel", "WorkerFinalize"),
    "GenerateKernel": ("CheckPatterns", "RecordFailure"),
    "CheckPatterns": ("RunTests", "CheckAttempts", "RecordFailure"),
    "RunTests": ("BenchmarkNew", "CheckAttempts"),
    "CheckAttempts": ("RefineKernel", "RecordFailure"),
    "RefineKernel": ("CheckPatterns",),
    "BenchmarkNew": ("ProfileSol",),
    "ProfileSol": ("GenerateReflexion",),
    "GenerateReflexion": ("UpdateKernels", "WorkerFinalize"),
    "UpdateKernels": ("CheckEarlyStop", "WorkerFinalize"),
    "CheckEarlyStop": ("WorkerFinalize",),
    "RecordFailure": ("GenerateReflexion",),
    "WorkerFinalize": (TERMINAL,),
}
# The names under which the machine was published.
PUBLISHED_NAMES = {
    "BENCHMARK_BASELINE": "BenchmarkBaseline",
    "PROFILE_KERNEL": "ProfileKernel",
    "ANALYZE_BOTTLENECK": "AnalyzeBottleneck",
    "GENERATE_KERNEL": "GenerateKernel",
    "CHECK_DISALLOWED_PATTERNS": "CheckPatterns",
    "RUN_TESTS": "RunTests",
    "CHECK_REFINE_ATTEMPTS": "CheckAttempts",
    "REFINE_WITH_LLM": "RefineKernel",
    "BENCHMARK_NEW_KERNEL": "BenchmarkNew",
    "PROFILE_FOR_SOL": "ProfileSol",
    "GENERATE_REFLEXION": "GenerateReflexion",
    "UPDATE_BEST_KERNELS": "UpdateKernels",
    "CHECK_EARLY_STOP": "CheckEarlyStop",
    "RECORD_FAILURE": "RecordFailure",
    "WORKER_FINALIZE": "WorkerFinalize",
}


def build_worker_fsm(logger: logging.Logger | None = None) -> FSMEngine:
    """The machine of one worker, to be started at `INITIAL` with a WorkerContext."""
    engine = FSMEngine(logger, TRANSITIONS)
    for state in STATES:
        engine.add_state(state())
    return engine


class Walked(NamedTuple):
    """A worker's end: its result for the strategy, and its context for whoever reports."""

    result: Result
    ctx: WorkerContext


def context_of(job: Job, view: KernelView, run: Run, gear: Gear) -> WorkerContext:
    """What a worker starts with; the rules develop where no model does."""
    developer = run.proposer.developer or DeveloperByRule(run.workshop.offline)
    return WorkerContext(job, view, run, developer, gear)


async def walk(ctx: WorkerContext) -> Walked:
    """From the first state to the last."""
    engine = build_worker_fsm(ctx.gear.logger)
    await engine.run_async(INITIAL, ctx)
    return Walked(result_of(ctx, engine.path), ctx)


def result_of(ctx: WorkerContext, path: list[str]) -> Result:
    """What came of a step. No node at all says that nothing is left to do on this kernel."""
    nodes = _made(ctx)
    for node in nodes:
        ctx.run.watcher.sampled(node.case.case_name, ctx.job.round, node)
    return Result(
        ctx.job,
        nodes=tuple(nodes),
        remarks=(ctx.error,) if ctx.written is None or ctx.written.change is None else (),
        development=Development(
            path=tuple(path),
            finding=ctx.finding,
            stop=ctx.stop,
            efficiency_before=ctx.sols.get(ctx.parent.key, UNKNOWN).combined,
            efficiency_after=ctx.efficiency.combined,
        ),
    )


def _made(ctx: WorkerContext) -> list[Node]:
    if ctx.written is None or ctx.written.change is None:
        return []
    if ctx.node is not None:
        return [replace(ctx.node, failed=tuple(ctx.failed))]
    evaluation = Evaluation(status=Status.MISSING, message=ctx.error)
    return [Node(ctx.parent.case, "", evaluation, ctx.parent, ctx.written.change, ctx.label)]
