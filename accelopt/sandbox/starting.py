"""How a child process comes to be: as a new interpreter, or as a fork of this very process.

A fork needs no imports of its own, which cost more than tracing most kernels. It may only be taken
of a process that holds nothing the child must not see: it shares all memory with what it forks.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from accelopt.sandbox import entry

ENTRY = Path(__file__).with_name("entry.py")
RESULT, REQUESTS, BESIDE = 3, 4, 5  # descriptors of a fork
_STEP_SECONDS = 0.01


# What a child sees of the caller's environment: nothing that could be a secret.
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")


class Streams(NamedTuple):
    """The child's ends of its pipes: what it reads its job from, output and errors, the result,
    and further requests."""

    job: int
    output: int
    result: int
    requests: int


class ChildSetting(NamedTuple):
    """Words before the command, the child's whole environment, and the folder it works in."""

    wrapper: Sequence[str]
    variables: Mapping[str, str]
    folder: Path


class ChildProcess(Protocol):
    """A child that was started: a keeper (see `entry`)."""

    @property
    def pid(self) -> int:
        """Its number, as this process sees it."""
        ...

    def poll(self) -> int | None:
        """The exit code when it has ended, minus the number of the signal that ended it."""
        ...


Start = Callable[[Streams, ChildSetting], ChildProcess]


def variables_of(scratch: Path, threads: int, allowed: Sequence[str] = ()) -> dict[str, str]:
    """A child's environment: `scratch` for its files, so many threads for its arithmetic, and of the
    caller's the few that every program needs and the `allowed` (see `Policy.variables`)."""
    names = {*_KEPT_VARIABLES, *allowed}
    prefixes = tuple(name for name in allowed if name.endswith("_"))
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in names or name.startswith(prefixes)
    }
    count = str(threads)
    return {
        **kept,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": count,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
    }


def spawn(streams: Streams, setting: ChildSetting) -> ChildProcess:
    """A new interpreter."""
    return subprocess.Popen(
        [*setting.wrapper, sys.executable, "-I", "-B", str(ENTRY), *map(str, streams[2:])],
        stdin=streams.job,
        stdout=streams.output,
        stderr=subprocess.STDOUT,
        pass_fds=streams[2:],
        cwd=setting.folder,
        env=dict(setting.variables),
        start_new_session=True,
    )


def fork(
    streams: Streams, setting: ChildSetting, beside: socket.socket | None = None
) -> ChildProcess:
    """A copy of this process, which must have one thread. A wrapper still needs an interpreter."""
    if setting.wrapper or not hasattr(os, "fork"):
        return spawn(streams, setting)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        become_keeper(streams, setting, beside)
    return _Forked(pid)


def become_keeper(
    streams: Streams, setting: ChildSetting, beside: socket.socket | None = None
) -> None:
    """In a fork: leave everything of the parent but its memory, and do the job, with the socket of the
    server `beside` it. Never returns."""
    code = 1
    try:
        os.setsid()
        _keep_only(streams, beside)
        os.chdir(setting.folder)
        os.environ.clear()
        os.environ.update(setting.variables)
        tempfile.tempdir = None  # what an import has asked for in the parent's environment
        if "numpy.random" in sys.modules:  # Python's own generator begins anew by itself
            sys.modules["numpy.random"].seed()
        code = entry.main(RESULT, REQUESTS)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _keep_only(streams: Streams, beside: socket.socket | None) -> None:
    """Move the streams to descriptors 0 to 4, the socket to 5, and close all others, which are the parent's."""
    kept = (*streams, *([] if beside is None else [beside.fileno()]))
    job, output, *ours = (fcntl.fcntl(s, fcntl.F_DUPFD, BESIDE + 1) for s in kept)
    for place, stream in enumerate((job, output, output, *ours)):
        os.dup2(stream, place)
    os.closerange(BESIDE + (beside is not None), os.sysconf("SC_OPEN_MAX"))
    _Beside.held = None if beside is None else socket.socket(fileno=BESIDE)


class _Beside:
    """The socket of the server that this process was started beside, if it was."""

    held: socket.socket | None = None


def server_beside() -> socket.socket | None:
    """Where this process may ask for forks that know nothing of its job (see `forkserver`)."""
    return _Beside.held


def leave_server() -> None:
    """Before code that nobody has vouched for: it must not ask for processes."""
    if _Beside.held is not None:
        _Beside.held.close()
        _Beside.held = None


class _Forked:
    """A child by `os.fork`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def ended_within(process: ChildProcess, seconds: float) -> bool:
    """Wait for the end of `process`, at most so long. True when it has ended."""
    until = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() > until:
            return False
        time.sleep(_STEP_SECONDS)
    return True
