"""The caller's side: start a child process, watch its time, memory, output and disk, collect it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from accelopt.sandbox import bubblewrap
from accelopt.sandbox.policy import Job, Limits, Policy, runtime_paths
from accelopt.sandbox.starting import (
    Process,
    Setting,
    Start,
    Streams,
    ended_within,
    spawn,
    variables_of,
)

_TICK_SECONDS = 0.1
_WATCH_SECONDS = 0.25
_GRACE_SECONDS = 3.0


class Ending(str, Enum):
    """Why a child ended."""

    FINISHED = "finished"  # by itself, in whatever way: see the exit code
    TIMEOUT = "timeout"
    MEMORY = "memory"
    FLOOD = "flood"
    DISK = "disk"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Outcome:
    """What a child left. `result` is data from an untrusted writer: parse it with care."""

    ending: Ending
    exit_code: int
    result: bytes
    output: str
    isolation: tuple[str, ...]
    seconds: float

    @property
    def completed(self) -> bool:
        """True when the entry returned and nothing cut it short."""
        return self.ending is Ending.FINISHED and self.exit_code == 0


def run(
    entry: str,
    payload: Mapping[str, object],
    *,
    policy: Policy,
    limits: Limits,
    environment: Mapping[str, str] | None = None,
    scratch: Path | None = None,
    threads: int = 1,
    cancelled: Callable[[], bool] = lambda: False,
    start: Start = spawn,
) -> Outcome:
    """Call `entry` ("module:function", of `(payload, channel)`) in a child process.

    The child runs in `scratch` (a fresh folder, removed afterwards, when not given), the only place
    where it may write besides `policy.writable`. `environment` is added to the few variables that
    pass. `cancelled` is asked several times a second. `start` is how its process comes to be.
    Returns when no process of the child is left.
    """
    with contextlib.ExitStack() as stack:
        if scratch is None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="accelopt_")))
        allowed = replace(
            policy,
            readable=(*runtime_paths(), *policy.readable),
            writable=(*policy.writable, str(scratch), "/dev/null"),
        )
        wrapper: list[str] = []
        if policy.confined and (program := bubblewrap.installed()):
            wrapper = bubblewrap.prefix(program, allowed, scratch)
        inside = ("bubblewrap",) if wrapper else ()
        job = Job(entry, dict(payload), allowed, limits, inside=inside)
        variables = {**variables_of(scratch, threads), **(environment or {})}
        return _Watch(job, wrapper, variables, scratch, cancelled, start).run()


@dataclass
class _Watch:
    """One child from start to end."""

    job: Job
    wrapper: list[str]
    variables: dict[str, str]
    scratch: Path
    cancelled: Callable[[], bool]
    start: Start
    output: bytearray = field(default_factory=bytearray)
    output_count: int = 0
    result: bytearray = field(default_factory=bytearray)

    def run(self) -> Outcome:
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            process, ends = self._start(stack)
            try:
                self._send_job(ends.job)
                ending = self._follow(process, ends, started)
            finally:
                exit_code = _end(process, ends.job)
        line, _, rest = bytes(self.result).partition(b"\n")
        return Outcome(
            ending=ending,
            exit_code=exit_code,
            result=rest,
            output=printable(self.output.decode(errors="replace")),
            isolation=_isolation(line),
            seconds=time.monotonic() - started,
        )

    def _start(self, stack: contextlib.ExitStack) -> tuple[Process, Streams]:
        """The child, and this side's ends of its pipes; all but the job's are closed with `stack`."""
        job, job_writer = os.pipe()
        output, output_writer = os.pipe()
        result, result_writer = os.pipe()
        stack.callback(os.close, output)
        stack.callback(os.close, result)
        theirs = Streams(job, output_writer, result_writer)
        try:
            process = self.start(theirs, Setting(self.wrapper, self.variables, self.scratch))
        except BaseException:
            os.close(job_writer)
            raise
        finally:
            for end in theirs:
                os.close(end)
        return process, Streams(job_writer, output, result)

    def _send_job(self, pipe: int) -> None:
        line = json.dumps(self.job.to_dict()).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "wb", closefd=False) as file:
            file.write(line)

    def _follow(self, process: Process, ends: Streams, started: float) -> Ending:
        """Read what comes until every writer is gone, or something forbidden happens."""
        limits = self.job.limits
        watched = started
        with selectors.DefaultSelector() as selector:
            selector.register(ends.output, selectors.EVENT_READ, self._keep_output)
            selector.register(ends.result, selectors.EVENT_READ, self._keep_result)
            while selector.get_map():
                for key, _ in selector.select(_TICK_SECONDS):
                    chunk = os.read(key.fd, 1 << 16 if key.fd != ends.result else 1 << 20)
                    if not chunk:
                        selector.unregister(key.fileobj)
                        continue
                    key.data(chunk)
                    if self.output_count > limits.output_bytes:
                        return Ending.FLOOD
                    if len(self.result) > limits.result_bytes:
                        return Ending.FLOOD
                now = time.monotonic()
                if now - started > limits.seconds:
                    return Ending.TIMEOUT
                if self.cancelled():
                    return Ending.CANCELLED
                if now - watched > _WATCH_SECONDS:
                    watched = now
                    if _folder_bytes(self.scratch) > limits.disk_bytes:
                        return Ending.DISK
                    if _resident_bytes(process.pid) > limits.memory_bytes:
                        return Ending.MEMORY
                if process.poll() is not None and not selector.select(0):
                    break
        return self._wait(process, started)

    def _wait(self, process: Process, started: float) -> Ending:
        """The pipes are closed; the child may still be working, or be gone already."""
        while not ended_within(process, _TICK_SECONDS):
            if time.monotonic() - started > self.job.limits.seconds:
                return Ending.TIMEOUT
            if self.cancelled():
                return Ending.CANCELLED
        return Ending.FINISHED

    def _keep_output(self, chunk: bytes) -> None:
        self.output_count += len(chunk)
        self.output += chunk
        # The end of the output says what went wrong.
        del self.output[: -self.job.limits.kept_output_bytes]

    def _keep_result(self, chunk: bytes) -> None:
        self.result += chunk


def _end(process: Process, lifeline: int) -> int:
    """Cut the lifeline, so that the keeper kills what is left; kill the keeper when it does not.

    Returns its exit code."""
    os.close(lifeline)
    if not ended_within(process, _GRACE_SECONDS):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        ended_within(process, _GRACE_SECONDS)
    code = process.poll()
    return -1 if code is None else code


def printable(text: str) -> str:
    """`text` without control characters, which a terminal or a log would obey."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def _isolation(line: bytes) -> tuple[str, ...]:
    with contextlib.suppress(ValueError):
        words = json.loads(line)
        if isinstance(words, list):
            return tuple(str(word) for word in words)
    return ()


def _folder_bytes(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                total += path.lstat().st_blocks * 512
    return total


def _resident_bytes(root: int) -> int:
    """Resident memory of a process and its descendants, by Linux's /proc; 0 where there is none."""
    total, waiting = 0, [root]
    page = os.sysconf("SC_PAGE_SIZE")
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
            total += (int(resident) - int(shared)) * page
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            waiting.extend(int(child) for child in children.split())
    return total


__all__ = ["Ending", "Limits", "Outcome", "Policy", "run"]
