"""The outer machine: the manager over rounds, with the published entry point, and workers in processes
of their own, each with its own journal."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import queue
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Lock, Semaphore
from pathlib import Path
from typing import Any

from accelopt.agents.configuration import OFFLINE
from accelopt.agents.proposer import KernelView
from accelopt.concurrency import in_thread
from accelopt.fsm.context import OptimizationContext
from accelopt.fsm.engine import FSMEngine, log_to
from accelopt.fsm.program_database import program_id
from accelopt.fsm.states import INITIAL, STATES, TRANSITIONS
from accelopt.fsm.worker.context import MOST_SHARED, WorkerSetup
from accelopt.fsm.worker.worker_fsm import develop, worker_process_entry
from accelopt.fsm.worker_options import ModelChoice, WorkerOptions, case_of, open_run, with_backend
from accelopt.interruption import stop
from accelopt.nodes import Job, Result
from accelopt.search.bottleneck_search import open_variant
from accelopt.stages.experience import read_findings
from accelopt.stages.jobs import Knowledge, Work
from accelopt.stages.run import Run
from accelopt.store import content_key, read_text, write_atomically
from accelopt.time_limits import KILL_SECONDS, TERMINATE_SECONDS

LOOK_SECONDS = 0.02  # between looks at a worker's queue
LAST_SECONDS = 2.0  # that the message of a process that has ended may still take


class WorkerLost(Exception):
    """A worker's process that ended without a result, with what it said."""


class Processes:
    """Makes the work of one worker: a spawned process that sends one message and ends. The workers of
    a round share a lock for benchmarks and a semaphore for profiling."""

    def __init__(
        self, options: WorkerOptions, thinking: ModelChoice, problem: Path, count: int
    ) -> None:
        self.options = options._replace(
            workers=options.workers or max(1, (os.cpu_count() or 1) // count), findings=None
        )
        self.thinking = thinking
        self.problem = problem
        self._spawn = multiprocessing.get_context("spawn")
        self._turns: dict[int, tuple[Lock, Semaphore]] = {}  # by round: one may die with its holder

    def __call__(self, setup: WorkerSetup) -> Work:
        """The work of the worker with this setup."""

        async def work(job: Job, view: KernelView, run: Run) -> Result:
            results: Any = self._spawn.Queue()
            process = self._spawn.Process(
                target=worker_process_entry, args=self._arguments(job, view, setup, results)
            )
            await in_thread(process.start)
            try:
                message = await _message(process, results)
            finally:
                await asyncio.shield(in_thread(end, process))
            if not message["success"]:
                raise WorkerLost(f"{message['error']}\n{message['traceback']}")
            return Result.of(job, message["record"])

        return work

    def _arguments(
        self, job: Job, view: KernelView, setup: WorkerSetup, results: Any
    ) -> tuple[Any, ...]:
        assert setup.folder is not None
        if job.round not in self._turns:
            self._turns[job.round] = self._spawn.Lock(), self._spawn.Semaphore(1)
        shared = view.findings[-MOST_SHARED:]
        reflexions = [f.reflexion.model_dump(mode="json") for f in shared if f.reflexion]
        step = {
            "number": job.number,
            "round": job.round,
            "evaluation": job.node.evaluation.model_dump(mode="json"),
            "findings": [finding.model_dump(mode="json") for finding in view.findings],
            "recalled": [finding.model_dump(mode="json") for finding in view.recalled],
            "known": sorted(view.known),
        }
        return (
            setup.worker_id,
            job.node.source,
            job.node.latency,
            program_id(job.node),
            str(self.problem),
            setup.test_code,
            str(setup.folder),
            str(setup.folder / "logs"),
            results,
            *self._turns[job.round],
            setup.eager,
            int(job.focus),
            self.thinking.model,
            self.thinking.high_effort,
            setup.override or None,
            {**self.options._asdict(), "step": step},
            [finding.attempt.model_dump(mode="json") for finding in shared],
            reflexions,
        )


async def _message(process: BaseProcess, results: Any) -> dict[str, Any]:
    """The worker's message, drained while it is sent: a large one is not whole before."""
    while True:
        alive = process.is_alive()
        try:
            found: dict[str, Any] = await in_thread(
                results.get, True, LOOK_SECONDS if alive else LAST_SECONDS
            )
            return found
        except queue.Empty:
            if not alive:
                code = process.exitcode
                raise WorkerLost(f"the worker's process ended with exit code {code}") from None


def end(process: BaseProcess) -> None:
    """Have a process gone: asked, told, and made to."""
    steps: tuple[tuple[Callable[[], None], float], ...] = (
        (process.terminate, TERMINATE_SECONDS),
        (process.kill, KILL_SECONDS),
    )
    for step, seconds in steps:
        if process.exitcode is None:
            step()
            process.join(seconds)


class FSMOptimizationManager:
    """Optimises a kernel by rounds of workers, as two state machines: `run_optimization` returns the
    result as a dict. Arguments as published, and `worker_kwargs` as in `WorkerOptions`.

    `strategy` is beam_search or greedy, `strategy_config` its settings. `log_dir` takes all files (by
    default a new temporary folder); the same call with the same folder continues a run that was
    ended. `openai_model="offline"` calls no model. `bottleneck_override` replaces the category that the
    judge names.

    Raises ValueError for an unknown strategy or option, or where `num_workers` is not what the
    strategy needs.
    """

    def __init__(
        self,
        strategy: str = "beam_search",
        num_workers: int = 4,
        max_rounds: int = 10,
        log_dir: str | Path | None = None,
        database_path: str | Path | None = None,
        strategy_config: Mapping[str, int] | None = None,
        openai_model: str = OFFLINE,
        high_reasoning_effort: bool = True,
        bottleneck_override: str | None = None,
        **worker_kwargs: Any,
    ) -> None:
        self.strategy = strategy
        self.strategy_config = dict(strategy_config or {})
        needed = open_variant(strategy, **self.strategy_config).num_workers_needed
        if num_workers != needed:
            raise ValueError(f"num_workers={num_workers}, but {strategy} needs {needed}")
        self.num_workers = num_workers
        self.max_rounds = max_rounds
        self.log_dir = Path(log_dir) if log_dir else Path(tempfile.mkdtemp(prefix="accelopt-fsm-"))
        self.database_path = Path(database_path or self.log_dir / "program_database.json")
        self.bottleneck_override = bottleneck_override or ""
        self.thinking = ModelChoice(openai_model, high_reasoning_effort)
        self.options = WorkerOptions.of(worker_kwargs)

    def run_optimization(
        self,
        initial_kernel: str | Path,
        problem_file: str | Path,
        test_code: str = "",
        max_rounds: int | None = None,
        **kwargs: Any,
    ) -> dict[str, object]:
        """The result: `success`, `kernel_code`, `best_time_ms`, `total_rounds`, baselines, `top_kernels`,
        `stop_reason`; on failure `error`.

        `initial_kernel` is a kernel's text or its path. `kwargs` are worker options for this call.
        Call it outside of a running event loop. Ctrl-C ends the process in one sentence, with status
        130. Raises ConfigError for files that cannot be used.
        """
        options = WorkerOptions.of({**self.options._asdict(), **kwargs})
        kernel = self._start(initial_kernel)
        options = with_backend(options, Path(problem_file), kernel)
        rounds = self.max_rounds if max_rounds is None else max_rounds
        try:
            return asyncio.run(
                self._optimize(kernel, Path(problem_file), test_code, rounds, options)
            )
        except KeyboardInterrupt:
            stop(f"Stopped; the same call with log_dir={str(self.log_dir)!r} continues.")

    async def _optimize(
        self, kernel: Path, problem: Path, test_code: str, rounds: int, options: WorkerOptions
    ) -> dict[str, object]:
        case = case_of(kernel, problem, options, self.log_dir)
        saved = self._saved(kernel, problem, test_code, options)
        with log_to(self.log_dir / "manager.log") as logger:
            async with open_run(self.log_dir, options, self.thinking, saved) as run:
                earlier = read_findings(Path(options.findings)) if options.findings else []
                turns = asyncio.Lock(), asyncio.Semaphore(1)
                strategy = open_variant(self.strategy, **self.strategy_config)
                ctx = OptimizationContext(
                    run=run,
                    case=case,
                    strategy=strategy,
                    max_rounds=rounds,
                    folder=self.log_dir,
                    database=self.database_path,
                    step=Processes(options, self.thinking, problem, self.num_workers)
                    if options.isolation == "process"
                    else lambda setup: partial(develop, setup=setup),
                    setup=WorkerSetup(
                        test_code=test_code,
                        override=self.bottleneck_override,
                        divergence=options.divergence_threshold,
                        benchmark=lambda: turns[0],
                        profiling=lambda: turns[1],
                        logger=logger,
                    ),
                    deadline=options.deadline,
                    logger=logger,
                    knowledge=Knowledge(earlier=tuple(earlier)),
                )
                engine = FSMEngine(logger, TRANSITIONS)
                for state in STATES:
                    engine.add_state(state())
                await engine.run_async(INITIAL, ctx)
                assert ctx.result is not None
                return ctx.result

    def _start(self, kernel: str | Path) -> Path:
        """The kernel's file: a given one, or the text in a file of the run's folder."""
        if isinstance(kernel, Path) or ("\n" not in kernel and Path(kernel).is_file()):
            return Path(kernel)
        path = self.log_dir / "initial_kernel.py"
        write_atomically(path, kernel)
        return path

    def _saved(
        self, kernel: Path, problem: Path, test_code: str, options: WorkerOptions
    ) -> dict[str, object]:
        """What a continued run must share; more rounds continue the same search."""
        return {
            "strategy": self.strategy,
            "strategy_config": self.strategy_config,
            "problem": content_key(read_text(problem), read_text(kernel), test_code),
            "model": self.thinking.model,
            "bottleneck_override": self.bottleneck_override,
            "backend": options.backend,
            "target": options.language_target,
            "rel_tol": options.rel_tol,
            "isolation": options.isolation,
            "seed": options.seed,
            "max_refine_attempts": options.max_refine_attempts,
        }


OptimizationManager = FSMOptimizationManager
"""The other published name."""
