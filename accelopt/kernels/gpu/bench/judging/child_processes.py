"""The two child processes of an evaluation: their confinement, and verdicts from their errors.

Both are confined by the sandbox to their own folder and the driver, with the driver's variables and no
others: no key, no network, no home.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from accelopt.concurrency import Closing
from accelopt.evaluation import Status
from accelopt.kernels.gpu.bench.files.tracefiles import Solution
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.judging.reply_rules import NOT_JUDGED, Ended, OutOfMemory, refuse
from accelopt.kernels.gpu.bench.judging.verdict import status_of_error
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.entry_points import passes_destination
from accelopt.sandbox import Ending, Limits, Policy, Start, spawn
from accelopt.sandbox.conversation import ChildEnded, ChildRaised, Conversation
from accelopt.sandbox.drivers import NVIDIA
from accelopt.sandbox.serving import Message
from accelopt.time_limits import GPU_START_SECONDS

CANDIDATE = "accelopt.kernels.gpu.bench.process.candidate:handlers"
REFEREE = "accelopt.kernels.gpu.bench.process.referee:handlers"
MEMORY_BYTES = 96 << 30
ANSWER_BYTES = 64 << 20
LAST_CHARACTERS = 200
COMPILER_SETTINGS = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # more are processes that share locks: closed here
}
Reply = TypeVar("Reply", bound=Message)


def caches(scratch: Path) -> dict[str, str]:
    """What tells compilers to keep what they make below `scratch`."""
    return {
        **COMPILER_SETTINGS,
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TRITON_HOME": str(scratch),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "torch"),
        "FIB_CACHE_PATH": str(scratch / "package"),
    }


def converse(
    entry: str,
    payload: Mapping[str, object],
    scratch: Path,
    *,
    readable: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    device: bool = True,
    start: Start = spawn,
) -> Conversation:
    """A confined child that may use the GPU, or with `device` False only its compiler.

    Caches of compilers are its own: what others have put into one would run in it.
    """
    driver = NVIDIA if device else replace(NVIDIA, devices=())
    return Conversation(
        entry,
        payload,
        policy=driver.allow(Policy(readable=readable)),
        limits=Limits(
            memory_bytes=MEMORY_BYTES,
            address_space=False,  # a driver reserves far more than there is
            disk_bytes=None,
            result_bytes=ANSWER_BYTES,
        ),
        environment={**caches(scratch), **(environment or {})},
        scratch=scratch,
        threads=os.cpu_count() or 1,
        start=start,
    )


def payload_of(task: Task, folder: Path) -> dict[str, object]:
    """What the child of a task is told at its start; its files go to `folder`."""
    return {
        "definition": task.definition.model_dump(mode="json", exclude_unset=True),
        "workload": task.workload.model_dump(mode="json", exclude_unset=True),
        "root": str(task.root.resolve()),
        "folder": str(folder),
        "device": task.device,
        "tolerance": task.tolerance._asdict(),
    }


class Process(Closing):
    """One child of a task, working in a folder of its own."""

    def __init__(
        self, entry: str, task: Task, folder: Path, payload: Mapping[str, object],
        readable: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.task = task
        root = task.root.resolve()
        blobs = tuple(str(root / source.path) for source in task.workload.workload.inputs.values()
                      if source.path is not None)  # fmt: skip
        self.child = converse(
            entry, payload, folder, readable=(*blobs, *readable),
            environment=dict(task.environment), start=task.starting,
        )  # fmt: skip

    def close(self) -> None:
        """End the child."""
        self.child.close()


class CandidateProcess(Process):
    """Asks the candidate's process; a failure of any kind is the verdict."""

    def __init__(self, task: Task, solution: Solution, folder: Path) -> None:
        style = passes_destination(solution, task.definition, task.destination_passing_style)
        payload = {
            **payload_of(task, folder),
            "solution": solution.model_dump(mode="json", exclude_unset=True),
            "destination_passing_style": style,
        }
        super().__init__(CANDIDATE, task, folder, payload)
        self.left = task.timeout_seconds

    def start(self) -> say.DeviceEnvironment:
        """Wait for it to be there, and let it load the solution."""
        try:
            place = self.child.ask(say.Introduce(), say.DeviceEnvironment, GPU_START_SECONDS)
        except (ChildEnded, ChildRaised) as error:
            text = f"the candidate's process did not start: {_why(error)}"
            raise Ended(Status.RUN_ERROR, text, _whole(error)) from None
        self.ask(say.Load(), say.Done)
        return place

    def ask(self, request: Message, reply: type[Reply]) -> Reply:
        """Its answer, within what is left of the task's time. Raises Ended."""
        begin = time.monotonic()
        name = type(request).__name__.lower()
        try:
            answer = self.child.ask(request, reply, max(1.0, self.left))
        except ChildEnded as error:
            if error.ending is Ending.TIMEOUT:
                text = f"no answer to `{name}` within the time limit"
                raise Ended(Status.TIMEOUT, text, _whole(error)) from None
            text = f"the process died during `{name}`: {_why(error)}"
            raise Ended(Status.CRASH, text, _whole(error)) from None
        except ChildRaised as error:
            refuse_to_judge(error)
            status = status_of_error(error.kind, error.message)
            if isinstance(request, say.Load) and status is Status.RUN_ERROR:
                status = Status.COMPILE_ERROR
            raise Ended(status, str(error), error.traceback) from None
        finally:
            self.left -= time.monotonic() - begin
        if faults := getattr(answer, "faults", ()):
            raise refuse("; ".join(faults))
        return answer

    def forget(self, name: str) -> None:
        """Remove the files of a call that was judged."""
        for path in self.folder.glob(f"{name}_*.bin"):
            path.unlink(missing_ok=True)


class RefereeProcess(Process):
    """Asks the referee's process; if it cannot answer, the baseline has failed."""

    def __init__(self, task: Task, folder: Path, outputs: Path) -> None:
        payload = {**payload_of(task, folder), "folder": str(outputs)}
        super().__init__(REFEREE, task, folder, payload, readable=(str(outputs),))

    def start(self) -> say.DeviceEnvironment:
        """Wait for it to be there."""
        try:
            return self.child.ask(say.Introduce(), say.DeviceEnvironment, GPU_START_SECONDS)
        except (ChildEnded, ChildRaised) as error:
            text = f"the reference's process did not start: {_why(error)}"
            raise Ended(Status.BASELINE_FAILED, text, _whole(error)) from None

    def ask(self, request: Message, reply: type[Reply]) -> Reply:
        """Its answer. Raises Ended."""
        try:
            return self.child.ask(request, reply, self.task.timeout_seconds)
        except ChildEnded as error:
            name = type(request).__name__.lower()
            text = f"the reference's process did not finish `{name}`: {_why(error)}"
            raise Ended(Status.BASELINE_FAILED, text, _whole(error)) from None
        except ChildRaised as error:
            refuse_to_judge(error)
            text = f"the reference failed: {error}"
            raise Ended(Status.BASELINE_FAILED, text, error.traceback) from None


def refuse_to_judge(error: ChildRaised) -> None:
    """Raises OutOfMemory where a child lacked memory of the device: PyTorch says so by an exception's
    name, Triton and CUDA by cudaErrorMemoryAllocation's text."""
    if error.kind.endswith("OutOfMemoryError") or "out of memory" in error.message:
        raise OutOfMemory(Status.FAULT, f"{NOT_JUDGED}: {error}", error.traceback)


def _why(error: ChildEnded | ChildRaised) -> str:
    """How a child failed, and where it ended the last line that it printed."""
    printed = error.output.split("\n") if isinstance(error, ChildEnded) else []
    last = next((line.strip() for line in reversed(printed) if line.strip()), "")
    return f"{error}; it printed last: {last[-LAST_CHARACTERS:]}" if last else str(error)


def _whole(error: ChildEnded | ChildRaised) -> str:
    said = error.output if isinstance(error, ChildEnded) else error.traceback
    return f"{error}\n{said}".strip()
