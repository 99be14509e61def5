"""The caller's side of one child: its pipes, what it may still use, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from accelopt.concurrency import Closing
from accelopt.errors import printable
from accelopt.sandbox import bubblewrap
from accelopt.sandbox.policy import ChildJob, Limits, Policy, runtime_paths
from accelopt.sandbox.scratch import Usage, scratch_folder, usage
from accelopt.sandbox.starting import ChildSetting, Start, Streams, ended_within, variables_of

_WATCH_SECONDS = 0.25
_PATIENCE = 4  # times a limit that a child may take where processors are busy
_GRACE_SECONDS = 3.0


class Ending(StrEnum):
    """Why a child ended."""

    FINISHED = "finished"  # by itself, in whatever way: see the exit code
    TIMEOUT = "timeout"
    MEMORY = "memory"
    FLOOD = "flood"
    DISK = "disk"
    CANCELLED = "cancelled"

    def words(self, exit_code: int, limits: Limits) -> str:
        """How the child ended, behind "the process"."""
        return {
            Ending.TIMEOUT: f"took longer than {limits.seconds:g} s",
            Ending.MEMORY: f"needed more than {limits.memory_bytes / 2**30:.3g} GiB of memory",
            Ending.FLOOD: "flooded its output",
            Ending.DISK: "filled its scratch folder",
            Ending.CANCELLED: "was cancelled",
            Ending.FINISHED: _exit_words(exit_code),
        }[self]


def _exit_words(code: int) -> str:
    number = code - 128 if code > 128 else -code  # the worker's, or its keeper's
    if number not in set(signal.Signals):
        return f"ended by exit code {code}"
    killed = ", as when the machine runs out of memory" if number == signal.SIGKILL else ""
    return f"was ended by signal {number} ({signal.Signals(number).name}){killed}"


@contextlib.contextmanager
def prepared(
    entry: str,
    payload: Mapping[str, object],
    policy: Policy,
    limits: Limits,
    *,
    environment: Mapping[str, str] | None,
    scratch: Path | None,
    threads: int,
    serves: bool = False,
) -> Iterator[tuple[ChildJob, ChildSetting]]:
    """The job and its setting, with a scratch folder of its own where none is given."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder()) if scratch is None else scratch
        allowed = replace(
            policy,
            readable=(*runtime_paths(), *policy.readable),
            writable=(*policy.writable, str(folder), "/dev/null"),
        )
        wrapper: list[str] = []
        if policy.confined and (program := bubblewrap.installed()):
            wrapper = bubblewrap.prefix(program, allowed, folder)
        inside = ("bubblewrap",) if wrapper else ()
        job = ChildJob(entry, dict(payload), allowed, limits, inside=inside, serves=serves)
        variables = {**variables_of(folder, threads, policy.variables), **(environment or {})}
        yield job, ChildSetting(wrapper, variables, folder)


class Child(Closing):
    """A child that was started, as a context manager that leaves no process of it.

    Nothing is read or sent but by `step`. `output` keeps the end of what it printed, `result` what
    it wrote since the line on its confinement, and `exit_code` is there at the end.
    """

    def __init__(self, job: ChildJob, setting: ChildSetting, start: Start) -> None:
        self.limits = job.limits
        self.scratch = setting.folder
        self.output = bytearray()
        self.result = bytearray()
        self.outgoing = bytearray()
        self.isolation: tuple[str, ...] | None = None
        self.exit_code = -1
        self.started = self._watched = time.monotonic()
        self._queued = 0.0
        self._printed = 0
        self._selector = selectors.DefaultSelector()
        self._open = True
        theirs, self._ends = _pipes()
        try:
            self._process = start(theirs, setting)
        except BaseException:
            self._close_ends()
            os.close(self._ends.job)
            raise
        finally:
            for end in theirs:
                os.close(end)
        self._selector.register(self._ends.output, selectors.EVENT_READ)
        self._selector.register(self._ends.result, selectors.EVENT_READ)
        os.set_blocking(self._ends.requests, False)
        self._send(job)

    def _send(self, job: ChildJob) -> None:
        line = json.dumps(job.to_dict()).encode() + b"\n"
        with (
            contextlib.suppress(BrokenPipeError),
            os.fdopen(self._ends.job, "wb", closefd=False) as file,
        ):
            file.write(line)

    @property
    def seconds(self) -> float:
        """How long it has been at work: not while it waited for a processor that others had. Those may be
        processes of its own, so a part of the time counts whatever it waits for."""
        passed = time.monotonic() - self.started
        return max(passed - self._queued, passed / _PATIENCE)

    @property
    def running(self) -> bool:
        """False when its first process has ended."""
        return self._process.poll() is None

    def step(self, seconds: float) -> bool:
        """Wait at most so long for it to say something, and send what it takes of `outgoing`.

        False when nothing more can come: every writer is gone.
        """
        self._offer()
        for key, _ in self._selector.select(seconds):
            if key.fd == self._ends.requests:
                self._flush()
            elif chunk := os.read(key.fd, 1 << 16 if key.fd == self._ends.output else 1 << 20):
                self._keep(key.fd, chunk)
            else:
                self._selector.unregister(key.fd)
        readers = {self._ends.output, self._ends.result} & set(self._selector.get_map())
        return bool(readers) and (self.running or bool(self._selector.select(0)))

    def _offer(self) -> None:
        """Look for room in the pipe of requests only while there is something to send."""
        watched = self._ends.requests in self._selector.get_map()
        if self.outgoing and not watched:
            self._selector.register(self._ends.requests, selectors.EVENT_WRITE)
        elif watched and not self.outgoing:
            self._selector.unregister(self._ends.requests)

    def _flush(self) -> None:
        try:
            del self.outgoing[: os.write(self._ends.requests, self.outgoing)]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.outgoing.clear()

    def _keep(self, pipe: int, chunk: bytes) -> None:
        if pipe == self._ends.output:
            self._printed += len(chunk)
            self.output += chunk
            del self.output[: -self.limits.kept_output_bytes]  # the end says what went wrong
            return
        self.result += chunk
        if self.isolation is None and b"\n" in self.result:
            line, _, rest = self.result.partition(b"\n")
            self.isolation, self.result = _isolation(line), bytearray(rest)

    def overstepped(self) -> Ending | None:
        """The limit that it does not keep to, but for time."""
        limits = self.limits
        if self._printed > limits.output_bytes or len(self.result) > limits.result_bytes:
            return Ending.FLOOD
        now = time.monotonic()
        if now - self._watched > _WATCH_SECONDS:
            self._watched = now
            if limits.disk_bytes is not None:
                most = Usage(limits.disk_bytes, limits.files)
                used = usage(self.scratch, most)
                if used.bytes > most.bytes or used.entries > most.entries:
                    return Ending.DISK
            family = list(_family(self._process.pid))
            self._queued = max([self._queued, *map(_queued_seconds, family)])
            for bytes_of in (_resident_bytes, _unshared_bytes):  # the second takes longer to tell
                if sum(map(bytes_of, family)) <= limits.memory_bytes:
                    return None
            return Ending.MEMORY
        return None

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end, at most so long."""
        return ended_within(self._process, seconds)

    def close(self) -> None:
        """Cut the lifeline, so that the keeper kills what is left; kill the keeper when it does not."""
        if not self._open:
            return
        self._open = False
        os.close(self._ends.job)
        if not self.ended_within(_GRACE_SECONDS):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self.ended_within(_GRACE_SECONDS)
        code = self._process.poll()
        self.exit_code = -1 if code is None else code
        self._close_ends()

    def _close_ends(self) -> None:
        self._selector.close()
        for end in self._ends[1:]:
            os.close(end)

    def printed(self) -> str:
        """The end of its output, fit to be shown."""
        return printable(self.output.decode(errors="replace"))


def _pipes() -> tuple[Streams, Streams]:
    """The child's ends of the pipes, and ours."""
    job, job_writer = os.pipe()
    output, output_writer = os.pipe()
    result, result_writer = os.pipe()
    requests, requests_writer = os.pipe()
    theirs = Streams(job, output_writer, result_writer, requests)
    return theirs, Streams(job_writer, output, result, requests_writer)


def _isolation(line: bytes | bytearray) -> tuple[str, ...]:
    with contextlib.suppress(ValueError):
        words = json.loads(line)
        if isinstance(words, list):
            return tuple(str(word) for word in words)
    return ()


def _family(root: int) -> Iterator[int]:
    """A process and its descendants, by Linux's /proc; itself alone where there is none."""
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        with contextlib.suppress(OSError, ValueError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            waiting.extend(int(child) for child in children.split())


def _resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 where nobody tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _unshared_bytes(pid: int) -> int:
    """The same, of what a fork shares with the process that it is a fork of only its part."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("Pss_Anon:")).split()[1])
    return _resident_bytes(pid)


def _queued_seconds(pid: int) -> float:
    """How long a process was ready to run and another one ran; 0 where nobody tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0
