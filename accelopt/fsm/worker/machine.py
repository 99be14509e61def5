"""The inner machine: from a job to its result."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

from accelopt.agents.developer_by_rule import DeveloperByRule
from accelopt.agents.proposer import KernelView
from accelopt.evaluation import Evaluation, Status
from accelopt.experience import Development
from accelopt.fsm.engine import FSMEngine
from accelopt.fsm.worker.context import UNKNOWN, WorkerContext, WorkerSetup
from accelopt.fsm.worker.states import INITIAL, STATES, TRANSITIONS
from accelopt.nodes import Job, Node, Result
from accelopt.stages.run import Run


def build_worker_fsm(logger: logging.Logger | None = None) -> FSMEngine:
    """The machine of one worker, to be started at `INITIAL` with a WorkerContext."""
    engine = FSMEngine(logger, TRANSITIONS)
    for state in STATES:
        engine.add_state(state())
    return engine


class WorkerRun(NamedTuple):
    """A worker's end: its result for the strategy, and its context for whoever reports."""

    result: Result
    ctx: WorkerContext


def context_of(job: Job, view: KernelView, run: Run, setup: WorkerSetup) -> WorkerContext:
    """What a worker starts with; the rules develop where no model does."""
    developer = run.proposer.developer or DeveloperByRule(run.workshop.offline)
    return WorkerContext(job, view, run, developer, setup)


async def walk(ctx: WorkerContext) -> WorkerRun:
    """From the first state to the last."""
    engine = build_worker_fsm(ctx.setup.logger)
    await engine.run_async(INITIAL, ctx)
    return WorkerRun(result_of(ctx, engine.path), ctx)


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
