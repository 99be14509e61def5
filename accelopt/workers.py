"""Evaluations in child processes: isolation, hard time and memory limits, parallelism.

This is the one place where an exception of an evaluation becomes a status.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from accelopt.evaluation import Confirmation, Evaluation, EvaluationRequest, Row, Status
from accelopt.sandbox import Ending, ForkServer, Limits, Outcome, Policy, Start, run, spawn
from accelopt.sandbox.drivers import NEURON, NVIDIA
from accelopt.store import default_cache

NKI_EVALUATION = "accelopt.kernels.nki.judging:evaluate_job"
NKI_CONFIRMATION = "accelopt.kernels.nki.judging:confirm_job"


def evaluate(
    request: EvaluationRequest,
    *,
    cache: str | None = None,
    threads: int | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Compile, check and time one kernel in a child process of its own; never raises for a kernel.

    Blocks until the child has ended, at most `request.total_seconds` and a little. `cache` is the
    folder for inputs and reference outputs, the user's own by default.
    """
    return evaluate_by(
        NKI_EVALUATION,
        {"request": _placed(request), "cache": cache or str(default_cache())},
        seconds=request.total_seconds,
        memory_bytes=request.memory_bytes,
        threads=threads,
        cancelled=cancelled,
    )


def evaluate_by(
    function: str,
    payload: Mapping[str, object],
    *,
    seconds: float,
    memory_bytes: int,
    environment: Mapping[str, str] | None = None,
    threads: int | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    start: Start = spawn,
) -> Evaluation:
    """Call `function` ("module:name", a payload to an Evaluation) in a child process of its own.

    The child runs our code with the caller's rights but not its environment; what it evaluates must
    be confined further by the device. Any way in which the child ends is an Evaluation.
    """
    limits = _limits(seconds, memory_bytes)
    outcome = _run(function, payload, limits, environment, threads, cancelled, start)
    if outcome.completed:
        return Evaluation.model_validate_json(outcome.result)
    status, message = _reason(outcome, limits)
    return Evaluation(
        status=status, message=message, traceback=outcome.output, seconds=outcome.seconds
    )


def confirm(
    winner: EvaluationRequest, parent: EvaluationRequest, *, cache: str | None = None
) -> Confirmation:
    """Measure two correct kernels of one problem again, alternating, in a child process."""
    payload = {
        "winner": _placed(winner),
        "parent": _placed(parent),
        "cache": cache or str(default_cache()),
    }
    limits = _limits(winner.total_seconds, winner.memory_bytes)
    outcome = _run(NKI_CONFIRMATION, payload, limits)
    if outcome.completed:
        return Confirmation.model_validate_json(outcome.result)
    return Confirmation(confirmed=False, message=_reason(outcome, limits)[1])


def _placed(request: EvaluationRequest) -> dict[str, Any]:
    """The request for a child, which works in another folder: absolute paths."""
    places = {name: str(Path(getattr(request, name)).resolve()) for name in ("kernel", "task")}
    return request.model_copy(update=places).model_dump(mode="json")


def _limits(seconds: float, memory_bytes: int) -> Limits:
    return Limits(
        seconds=seconds,
        memory_bytes=memory_bytes,
        address_space=False,
        disk_bytes=None,  # the trials and a device's files have bounds of their own
        result_bytes=64 << 20,
    )


def _run(
    function: str,
    payload: Mapping[str, object],
    limits: Limits,
    environment: Mapping[str, str] | None = None,
    threads: int | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    start: Start = spawn,
) -> Outcome:
    return run(
        "accelopt.workers:child",
        {"function": function, "payload": dict(payload)},
        policy=Policy(confined=False, variables=(*NEURON.variables, *NVIDIA.variables)),
        limits=limits,
        environment=environment,
        threads=threads or os.cpu_count() or 1,
        cancelled=cancelled,
        start=start,
    )


def child(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """The child's side: call the function, send the row it returns as JSON."""
    module, _, name = str(payload["function"]).partition(":")
    row: Row = getattr(import_module(module), name)(payload["payload"])
    channel.write(row.model_dump_json().encode())


def _reason(outcome: Outcome, limits: Limits) -> tuple[Status, str]:
    """Why a child left no result."""
    gibibytes = limits.memory_bytes / 2**30
    reasons = {
        Ending.TIMEOUT: (Status.TIMEOUT, f"took longer than {limits.seconds:g} s"),
        Ending.MEMORY: (Status.CRASH, f"needed more than {gibibytes:.3g} GiB of memory"),
        Ending.FLOOD: (Status.CRASH, "flooded its output"),
        Ending.DISK: (Status.CRASH, "filled the disk"),
        Ending.CANCELLED: (Status.CRASH, "was cancelled"),
    }
    how = f"exit code {outcome.exit_code}"
    if outcome.exit_code > 128:
        how = f"signal {outcome.exit_code - 128}"
        if outcome.exit_code == 128 + signal.SIGKILL:
            how += ", as when the machine runs out of memory"
    status, words = reasons.get(outcome.ending, (Status.CRASH, f"ended by {how}"))
    return status, f"the evaluation's process {words}"


class WorkerPool:
    """So many evaluations at once, each in a child process of its own.

    `cores` are the NeuronCores to share out on a Trainium machine, one a worker; the simulated core
    needs none. Use it as an async context manager, or call `close`.
    """

    def __init__(
        self, count: int, cores: tuple[int, ...] = (), *, cache: str | None = None
    ) -> None:
        if count < 1:
            raise ValueError(f"a pool of {count} workers")
        self.count = min(count, len(cores)) if cores else count
        self.cache = cache or str(default_cache())
        self._threads = max(1, (os.cpu_count() or 1) // self.count)
        self._executor = ThreadPoolExecutor(self.count, thread_name_prefix="accelopt-worker")
        self._cores: asyncio.Queue[int] = asyncio.Queue()
        for core in cores[: self.count] if cores else range(self.count):
            self._cores.put_nowait(core)
        self._share_cores = bool(cores)
        self._closing = threading.Event()
        self._servers: dict[Sequence[str], ForkServer] = {}

    async def submit(self, request: EvaluationRequest) -> Evaluation:
        """`evaluate`, when a worker is free. Cancelling the task ends the child."""
        core = await self._cores.get()
        if self._share_cores:
            request = request.model_copy(update={"core": core})
        return await self._in_thread(core, lambda cancelled: self._evaluate(request, cancelled))

    async def submit_by(
        self,
        function: str,
        payload: Mapping[str, object],
        *,
        warm: Sequence[str] = (),
        **limits: Any,
    ) -> Evaluation:
        """`evaluate_by`, when a worker is free: the same for another kind of kernel.

        With `warm`, in a process that has these modules imported already; for short work.
        """
        start = self._server(warm).start if warm else spawn
        core = await self._cores.get()
        return await self._in_thread(
            core,
            lambda cancelled: evaluate_by(
                function, payload, cancelled=cancelled, start=start, **limits
            ),
        )

    def _server(self, modules: Sequence[str]) -> ForkServer:
        if modules not in self._servers:
            self._servers[modules] = ForkServer(modules)
        return self._servers[modules]

    def _evaluate(self, request: EvaluationRequest, cancelled: Callable[[], bool]) -> Evaluation:
        return evaluate(request, cache=self.cache, threads=self._threads, cancelled=cancelled)

    async def _in_thread(
        self, core: int, work: Callable[[Callable[[], bool]], Evaluation]
    ) -> Evaluation:
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(
            self._executor, work, lambda: stop.is_set() or self._closing.is_set()
        )
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([future])
            raise
        finally:
            self._cores.put_nowait(core)

    def close(self) -> None:
        """End running evaluations and wait for their processes to be gone."""
        self._closing.set()
        self._executor.shutdown(wait=True, cancel_futures=True)
        for server in self._servers.values():
            server.close()

    async def __aenter__(self) -> WorkerPool:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)
