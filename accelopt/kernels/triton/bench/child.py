"""A child process of our own with a pipe to it and a watchdog over it.

A dead child is noticed when its pipe closes, at once; a silent one when its time is up. Either
way nothing of its process group is left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from accelopt.kernels.triton.bench.channel import Message

LOG_BYTES = 200_000
LINE_BYTES = 4 << 20


class ChildDied(Exception):
    """The process ended before it answered: a crash, or `exit`."""


class ChildTimeout(Exception):
    """The process did not answer in time."""


def _python_path() -> dict[str, str]:
    """The child finds this package where the parent found it."""
    root = str(Path(__file__).resolve().parents[4])
    return {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


class Child:
    """`python -m MODULE REQUEST_FILE`, answering one JSON line for each one it is sent."""

    def __init__(
        self, module: str, request: Message, folder: Path, environment: dict[str, str]
    ) -> None:
        self.name = module.rsplit(".", 1)[-1]
        request_file = folder / f"{self.name}.json"
        request_file.write_text(json.dumps(request))
        self.log = folder / f"{self.name}.log"
        child_reads, self._out = os.pipe()
        self._in, child_writes = os.pipe()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(request_file), str(child_reads),
                 str(child_writes)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                pass_fds=(child_reads, child_writes), start_new_session=True,
                env={**os.environ, **_python_path(), **environment}, cwd=folder,
            )  # fmt: skip
        os.close(child_reads)
        os.close(child_writes)
        self._buffer = b""
        self._closed = False

    def ask(self, message: Message, deadline: float) -> Message:
        """Send a request and wait for its reply until `deadline` (of `time.monotonic`)."""
        try:
            os.write(self._out, (json.dumps(message) + "\n").encode())
        except BrokenPipeError:
            raise ChildDied(self.last_words()) from None
        return self.receive(deadline)

    def receive(self, deadline: float) -> Message:
        """The next reply. Raises ChildDied or ChildTimeout."""
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or len(self._buffer) > LINE_BYTES:
                raise ChildTimeout(self.last_words())
            ready, _, _ = select.select([self._in], [], [], min(remaining, 0.5))
            if ready:
                data = os.read(self._in, 1 << 16)
                if not data:
                    raise ChildDied(self.last_words())
                self._buffer += data
            elif self._process.poll() is not None:
                raise ChildDied(self.last_words())
        line, self._buffer = self._buffer.split(b"\n", 1)
        reply = json.loads(line)
        if not isinstance(reply, dict) or "status" not in reply:
            raise ChildDied("the process answered something that is no reply")
        return reply

    def last_words(self) -> str:
        """How the process ended, if it has, and the end of what it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.2)
        code = self._process.returncode
        if code is None:
            ended = "it was still running"
        elif code < 0:
            ended = f"it was ended by {signal.Signals(-code).name}"
        else:
            ended = f"it exited with code {code}"
        return f"{ended}\n{self.printed()}".strip()

    def printed(self) -> str:
        """The end of the child's output."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - LOG_BYTES))
            return stream.read().decode(errors="replace")

    def close(self) -> None:
        """End the process and everything it started in its session; once is enough."""
        if self._closed:
            return
        self._closed = True
        for handle in (self._out, self._in):
            with contextlib.suppress(OSError):
                os.close(handle)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
