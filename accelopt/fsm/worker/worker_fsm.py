"""The inner machine, from a job to its result, and its entry points: one for the common driver, one for a process of its own."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.agents.developer_by_rule import DeveloperByRule
from accelopt.agents.proposer import KernelView
from accelopt.concurrency import in_thread
from accelopt.evaluation import Case, Evaluation, Status
from accelopt.experience import Attempt, Development, Finding, Reflexion
from accelopt.fsm.engine import FSMEngine, log_to
from accelopt.fsm.worker.context import UNKNOWN, Turn, WorkerContext, WorkerSetup
from accelopt.fsm.worker.states import INITIAL, PUBLISHED_NAMES, STATES, TRANSITIONS
from accelopt.fsm.worker_options import ModelChoice, WorkerOptions, case_of, open_run, with_backend
from accelopt.nodes import Job, Node, Result, Want
from accelopt.stages.planning import view_kernel
from accelopt.stages.run import Run
from accelopt.store import write_atomically


def build_worker_fsm(logger: logging.Logger | None = None) -> FSMEngine:
    """The machine of one worker, to be started at `INITIAL` with a WorkerContext."""
    engine = FSMEngine(logger, TRANSITIONS)
    for state in STATES:
        engine.add_state(state())
    return engine


ALONE = WorkerSetup()


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


__all__ = [
    "INITIAL",
    "PUBLISHED_NAMES",
    "TRANSITIONS",
    "build_worker_fsm",
    "develop",
    "worker_process_entry",
]


async def develop(job: Job, view: KernelView, run: Run, setup: WorkerSetup = ALONE) -> Result:
    """One step: the kernel with its verdict, the path that led to it, and what it taught. The common driver
    gives no setup."""
    return (await walk(context_of(job, view, run, setup))).result


def worker_process_entry(
    worker_id: int,
    kernel_code: str,
    known_time: float | None,
    parent_id: str,
    problem_file: str,
    test_code: str,
    workdir: str,
    log_dir: str,
    result_queue: Any,
    benchmark_lock: Any,
    profiling_semaphore: Any,
    pytorch_baseline: float,
    bottleneck_id: int,
    openai_model: str,
    high_reasoning_effort: bool,
    bottleneck_override: str | None,
    worker_kwargs: Mapping[str, Any],
    prior_history: Sequence[Mapping[str, Any]],
    prior_reflexions: Sequence[Mapping[str, Any]],
) -> None:
    """One step in this process, with a journal in `workdir`; puts one message into `result_queue`.

    The message has success, worker_id, kernel_code, time_ms, parent_id, attempt, reflexion, sol_pct and
    early_stop_reason; or success=False, worker_id, error, traceback.
    """
    setup = WorkerSetup(
        worker_id=worker_id,
        folder=Path(workdir),
        test_code=test_code,
        eager=pytorch_baseline,
        override=bottleneck_override or "",
        benchmark=_turn(benchmark_lock),
        profiling=_turn(profiling_semaphore),
    )
    history = zip_longest(prior_history, prior_reflexions)
    start = _Start(kernel_code, known_time, Path(problem_file), bottleneck_id, tuple(history))
    thinking = ModelChoice(openai_model, high_reasoning_effort)
    try:
        with log_to(Path(log_dir) / "worker.log") as logger:
            setup = setup._replace(logger=logger)
            walked = asyncio.run(_in_process(start, setup, thinking, worker_kwargs))
        message = message_of(walked, parent_id)
    except Exception as error:
        message = {
            "success": False,
            "worker_id": worker_id,
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
    result_queue.put(message)


class _Start(NamedTuple):
    """What a process begins with: a kernel, its milliseconds where they are known, its problem, the
    rank of the bottleneck, and attempts with their reflexions."""

    kernel_code: str
    known_time: float | None
    problem: Path
    rank: int
    history: tuple[tuple[Any, Any], ...]


async def _in_process(
    start: _Start, setup: WorkerSetup, thinking: ModelChoice, worker_kwargs: Mapping[str, Any]
) -> WorkerRun:
    step = worker_kwargs.get("step", {})
    given = {name: value for name, value in worker_kwargs.items() if name != "step"}
    options = with_backend(WorkerOptions.of(given), start.problem, Path("parent.py"))
    setup = setup._replace(divergence=options.divergence_threshold)
    assert setup.folder is not None
    kernel = setup.folder / "parent.py"
    write_atomically(kernel, start.kernel_code)
    case = case_of(kernel, start.problem, options, setup.folder)
    async with open_run(setup.folder, options, thinking) as run:
        node = Node(case, start.kernel_code, await _evaluation(start, case, step, run))
        view = await view_kernel(node, run.workshop.language, iteration=step.get("round", 1))
        own = step.get("findings")
        findings = _findings(own) if own is not None else _foreign(start, case)
        view = view._replace(
            findings=findings,
            recalled=_findings(step.get("recalled", ())),
            known=frozenset(step.get("known", ())),
        )
        number = step.get("number", setup.worker_id or 0)
        job = Job(number, view.iteration, Want.DEVELOP, node, focus=str(start.rank))
        return await walk(context_of(job, view, run, setup))


async def _evaluation(start: _Start, case: Case, step: Mapping[str, Any], run: Run) -> Evaluation:
    """The parent's verdict: handed over, or made here; a known time stands for the measured one."""
    if "evaluation" in step:
        return Evaluation.model_validate(step["evaluation"])
    found = await run.workshop.evaluations.evaluate(case, start.kernel_code)
    if found.profile is None or start.known_time is None:
        return found
    profile = found.profile.model_copy(update={"latency": start.known_time})
    return found.model_copy(update={"profile": profile})


def _findings(rows: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding.model_validate(row) for row in rows)


def _foreign(start: _Start, case: Case) -> tuple[Finding, ...]:
    """What a caller that knows attempts and reflexions alone hands over."""
    return tuple(
        Finding(
            problem=case.problem,
            change=str(attempt.get("recommended_fix", "")),
            attempt=Attempt.model_validate(attempt),
            reflexion=Reflexion.model_validate(reflexion) if reflexion else None,
        )
        for attempt, reflexion in start.history
        if attempt
    )


def message_of(walked: WorkerRun, parent_id: str) -> dict[str, Any]:
    """A worker's message to its manager."""
    ctx, node = walked.ctx, walked.ctx.node
    passed = node is not None and node.latency is not None
    kernel = node if passed else None
    return {
        "success": True,
        "worker_id": ctx.worker_id,
        "kernel_code": kernel.source if kernel else None,
        "time_ms": kernel.latency if kernel else None,
        "parent_id": parent_id,
        "attempt": ctx.attempt.model_dump(mode="json") if ctx.attempt else None,
        "reflexion": ctx.reflexion.model_dump(mode="json") if ctx.reflexion else None,
        "sol_pct": ctx.efficiency.combined,
        "early_stop_reason": ctx.stop or None,
        "record": walked.result.record(),
    }


def _turn(lock: Any) -> Turn:
    """A turn at a lock that processes share."""

    @asynccontextmanager
    async def turn() -> AsyncIterator[None]:
        await in_thread(lock.acquire)
        try:
            yield
        finally:
            lock.release()

    return nullcontext if lock is None else turn
