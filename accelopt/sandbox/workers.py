"""Work in child processes: isolation, hard time and memory limits, parallelism.

This is the one place where an exception of an evaluation becomes a status.
"""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext as free
from dataclasses import replace
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from pydantic import ValidationError

from accelopt.caches import default_cache
from accelopt.concurrency import guarded
from accelopt.errors import AcceloptError, sentence
from accelopt.evaluation import Evaluation, Row, Status
from accelopt.sandbox.child import Ending
from accelopt.sandbox.drivers import NEURON, NVIDIA
from accelopt.sandbox.forkserver import own_server
from accelopt.sandbox.launch import ChildOutcome, run
from accelopt.sandbox.leases import NotLeased, lease
from accelopt.sandbox.policy import Limits, Policy
from accelopt.sandbox.progress import Told, heard_by, report_to, split
from accelopt.sandbox.starting import Start, spawn

Cancelled = Callable[[], bool]
Answer = TypeVar("Answer", bound=Row)
T = TypeVar("T")

OUT_OF_MEMORY = 112  # the exit code of a child that met its limit
TO_BE_MENDED = 78  # that of one in which something lacks; the sentence is the last of its output
RESULT_BYTES = 64 << 20
ENDED_BY_KERNEL = {
    Ending.TIMEOUT: Status.TIMEOUT,
    **dict.fromkeys((Ending.MEMORY, Ending.FLOOD, Ending.DISK), Status.CRASH),
}
# Memory that a large array leaves is used for the next one: pages that the system has to give anew
# cost more than most arithmetic on them (glibc's malloc; others know nothing of it).
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


class Call(NamedTuple):
    """One piece of work as plain data, which any process of any machine can do.

    `function` ("module:name") takes the payload and returns a Row. With `warm`, in a process that has
    these modules imported already, with `environment`; for work that is short beside its imports.
    `files` are the paths in the payload whose files it reads. `gpu` says that it needs one.
    """

    function: str
    payload: Mapping[str, object]
    seconds: float
    memory_bytes: int
    environment: Mapping[str, str] | None = None
    warm: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    gpu: bool = False


class Fault(NamedTuple):
    """Why a child gave no answer: `status` says whose fault it is, `output` what it had printed."""

    status: Status
    message: str
    output: str
    seconds: float


def perform(
    call: Call,
    answer: type[Answer],
    *,
    threads: int | None = None,
    cancelled: Cancelled = lambda: False,
    watch: Callable[[str], None] = lambda _: None,
    start: Start | None = None,
) -> Answer | Fault:
    """Do `call` in a child process of its own, and wait for it. Any way in which it ends is a value.
    `watch` is told what the child notes of its work. Without `start` a call with `warm` modules is a
    fork of a server of this process that has them.

    The child runs our code with the caller's rights but not its environment; what it evaluates must
    be confined further by the device.
    """
    threads = threads or os.cpu_count() or 1
    environment = {**KEEP_MEMORY, **(call.environment or {})}
    if start is None and call.warm:
        start = own_server(call.warm, threads, environment, beside=True).start
    limits = Limits(
        seconds=call.seconds,
        memory_bytes=call.memory_bytes,
        address_space=False,
        disk_bytes=None,  # the trials and a device's files have bounds of their own
        result_bytes=RESULT_BYTES,
    )
    outcome = run(
        "accelopt.sandbox.workers:child",
        {"function": call.function, "payload": dict(call.payload)},
        policy=Policy(confined=False, variables=(*NEURON.variables, *NVIDIA.variables)),
        limits=limits,
        environment=environment,
        threads=threads,
        cancelled=cancelled,
        listen=heard_by(watch),
        start=start or spawn,
    )
    told = split(outcome.result)
    if outcome.completed and told.rest:
        try:
            return answer.model_validate_json(told.rest)
        except ValidationError as error:
            said = f"the evaluation's process left a damaged answer: {error.error_count()} faults"
            return Fault(Status.FAULT, said, outcome.output, outcome.seconds)
    return _fault(outcome, told)


def as_evaluation(found: Evaluation | Fault) -> Evaluation:
    """A fault as the evaluation that it is."""
    if isinstance(found, Evaluation):
        return found
    return Evaluation(
        status=found.status,
        message=found.message,
        traceback=found.output,
        seconds=found.seconds,
    )


def child(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """The child's side: call the function, send the row it returns as JSON."""

    def tell(line: bytes) -> None:
        channel.write(line)
        channel.flush()

    report_to(tell)
    module, _, name = str(payload["function"]).partition(":")
    try:
        row: Row = getattr(import_module(module), name)(payload["payload"])
    except MemoryError:
        traceback.print_exc()
        raise SystemExit(OUT_OF_MEMORY) from None
    except AcceloptError as error:
        print(" ".join(sentence(error).split()), flush=True)
        raise SystemExit(TO_BE_MENDED) from None
    channel.write(row.model_dump_json().encode())


def _fault(outcome: ChildOutcome, told: Told) -> Fault:
    """Why a child left no result. What it had announced is to blame (a reference, whose child is
    this one); otherwise limits are the kernel's to keep, and all else says nothing of the kernel:
    of what had been done to the process before, the last is named."""
    out_of_memory = outcome.exit_code == OUT_OF_MEMORY and outcome.ending is Ending.FINISHED
    ending = Ending.MEMORY if out_of_memory else outcome.ending
    words = replace(outcome, ending=ending).words
    status = ENDED_BY_KERNEL.get(ending, Status.FAULT)
    if outcome.exit_code == TO_BE_MENDED and outcome.ending is Ending.FINISHED:
        *_, last = outcome.output.splitlines() or [words]
        return Fault(Status.FAULT, last, outcome.output, outcome.seconds)
    if told.doing and outcome.ending is not Ending.CANCELLED:
        said = f"{told.doing} {words}"
        return Fault(Status.BASELINE_FAILED, said, outcome.output, outcome.seconds)
    said = f"the evaluation's process {words}"
    if status is Status.FAULT and told.last and outcome.ending is not Ending.CANCELLED:
        said += f"; before that it ran {told.last}"
    return Fault(status, said, outcome.output, outcome.seconds)


class Pool(Protocol):
    """Who does calls for a run: processes of this machine (`WorkerPool`), or nodes of a cluster.

    `count` calls can be under way at once; `cache` is the folder of this machine for what holds for
    every run.
    """

    count: int
    cache: str

    async def ask(self, call: Call, answer: type[Answer]) -> Answer | Fault:
        """`perform`, when a worker is free. Cancelling the task ends the child."""


class WorkerPool:
    """So many calls at once, each in a child process of its own.

    `cores` are the NeuronCores to share out on a Trainium machine, one a worker, which stand in each
    payload as `core`, and which nobody else on this host measures on meanwhile (`leases`); the
    simulated core needs none. Use it as an async context manager, or call
    `close`.
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

    async def ask(self, call: Call, answer: type[Answer]) -> Answer | Fault:
        """`perform`, when a worker is free. Cancelling the task ends the child."""
        core = await self._cores.get()
        if self._share_cores:
            call = call._replace(payload={**call.payload, "core": core})
        threads = 1 if call.gpu else self._threads

        def work(cancelled: Cancelled) -> Answer | Fault:
            try:
                with lease(f"neuron-{core}", cancelled=cancelled) if self._share_cores else free():
                    return perform(call, answer, threads=threads, cancelled=cancelled)
            except NotLeased:
                said = "cancelled while it waited for a core"
                return Fault(Status.FAULT, said, "", 0.0)

        return await self._in_thread(core, work)

    async def _in_thread(self, core: int, work: Callable[[Cancelled], T]) -> T:
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(
                self._executor, guarded, work, lambda: stop.is_set() or self._closing.is_set()
            )
        except RuntimeError:  # closed meanwhile: whoever still asks ends as those under way do
            self._cores.put_nowait(core)
            raise asyncio.CancelledError from None
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

    async def __aenter__(self) -> WorkerPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)
