"""Workers in processes of their own, each with its own journal, as the manager's rounds want them."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import queue
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Lock, Semaphore
from pathlib import Path
from typing import Any

from accelopt.agents.proposer import KernelView
from accelopt.awaiting import in_thread
from accelopt.fsm.constants import MOST_SHARED
from accelopt.fsm.program_database import program_id
from accelopt.fsm.worker.context import WorkerSetup
from accelopt.fsm.worker.worker_fsm import worker_process_entry
from accelopt.fsm.worker_options import ModelChoice, WorkerOptions
from accelopt.nodes import Job, Result
from accelopt.stages.jobs import Work
from accelopt.stages.run import Run
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
