"""The parent's side of `bench.process.compilation`: will this source compile, and how well?"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import NamedTuple

from accelopt.concurrency import Closing
from accelopt.evaluation import Status
from accelopt.hardware.gpus import DEFAULT_GPU, GPUS
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution, Trace
from accelopt.kernels.gpu.bench.judging.child_processes import converse
from accelopt.kernels.gpu.bench.judging.verdict import status_of_error
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.entry_points import passes_destination
from accelopt.sandbox import scratch_folder
from accelopt.sandbox.conversation import ChildEnded, ChildRaised, Conversation
from accelopt.time_limits import COMPILE_CHECK_SECONDS, GPU_START_SECONDS

COMPILER = "accelopt.kernels.gpu.bench.process.compilation:handlers"


class CompileVerdict(NamedTuple):
    """`failure` is empty when every kernel fits the target; `unknown` when nobody can say.

    Host code that wants real values of the data (a length read from a tensor that was never
    filled) may fail here and not on the device: that is unknown, not a failure. `code` is what was
    compiled, one for each kernel and its options.
    """

    resources: tuple[say.Resources, ...] = ()
    failure: str = ""
    unknown: bool = False
    code: tuple[say.Code, ...] = ()

    @property
    def spilled_bytes(self) -> int:
        """The most that any kernel spills, bytes a thread."""
        return max((item.spilled_bytes for item in self.resources), default=0)


class CompilerPool(Closing):
    """So many compiler processes. Another is started only when all that were are at work."""

    def __init__(
        self, count: int, target: str = DEFAULT_GPU, environment: dict[str, str] | None = None
    ) -> None:
        self.target = GPUS[target]
        self._name = target
        self._environment = environment or {}
        self._free: queue.Queue[Conversation | None] = queue.LifoQueue()
        for _ in range(max(1, count)):
            self._free.put(None)
        self._lock = threading.Lock()
        self._all: list[Conversation] = []
        self._stack = contextlib.ExitStack()
        self._folder = self._stack.enter_context(scratch_folder())

    def check(self, definition: Definition, workload: Trace, solution: Solution) -> CompileVerdict:
        """Compile one solution for the target without a GPU. Blocks; call it from any thread."""
        asked = say.Compile(
            definition=definition.model_dump(mode="json", exclude_unset=True),
            workload=workload.model_dump(mode="json", exclude_unset=True),
            solution=solution.model_dump(mode="json", exclude_unset=True),
            destination_passing_style=passes_destination(solution, definition),
        )
        try:
            with self._compiler() as (child, seconds):
                reply = child.ask(asked, say.Compiled, seconds)
        except ChildRaised as error:
            status = status_of_error(error.kind, error.message)
            return CompileVerdict(failure=str(error), unknown=status is not Status.COMPILE_ERROR)
        except ChildEnded as error:
            return CompileVerdict(failure=f"{error}\n{error.output}".strip(), unknown=True)
        limit = self.target.block_shared_bytes
        for item in reply.resources:
            if item.shared_bytes > limit:
                return CompileVerdict(
                    reply.resources,
                    f"{item.kernel} needs {item.shared_bytes} bytes of shared memory; "
                    f"{self.target.name} has {limit}",
                )
        return CompileVerdict(reply.resources, code=reply.code)

    @contextlib.contextmanager
    def _compiler(self) -> Iterator[tuple[Conversation, float]]:
        """A free process and the seconds it has to answer; one that has ended is not used again."""
        child = self._free.get()
        seconds = COMPILE_CHECK_SECONDS
        try:
            if child is None:
                child = self._start()
                seconds += GPU_START_SECONDS
            yield child, seconds
        except ChildRaised:
            raise
        except BaseException:
            if child is not None:
                child.close()
                child = None
            raise
        finally:
            self._free.put(child)

    def _start(self) -> Conversation:
        with self._lock:
            folder = self._folder / str(len(self._all))
            folder.mkdir()
            # No device: host code must not find a real one, nor compilers share its memory.
            settings = {**self._environment, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
            payload = {"target": self._name}
            child = converse(COMPILER, payload, folder, environment=settings, device=False)
            self._all.append(child)
        return child

    def close(self) -> None:
        """End all processes."""
        for child in self._all:
            child.close()
        self._stack.close()
