"""Children without start-up time: forks of a process that has done the imports.

The server is an interpreter started with the same few variables as any child. It imports what it is
told to, and then does nothing but fork: it never sees a job, so no child sees another's. Its children,
which do, may have a server `beside` them: a fork of it from before the first job. Who asks for a further
interpreter gets forks of one that has started by itself: what it drew when it began is no other's.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelopt.sandbox import linux_calls
from accelopt.sandbox.policy import search_path
from accelopt.sandbox.starting import (
    ChildProcess,
    ChildSetting,
    Streams,
    become_keeper,
    ended_within,
    fork,
    server_beside,
    spawn,
    variables_of,
)

_MESSAGE_BYTES = 1 << 16
_GRACE_SECONDS = 3.0
_SERVER = """\
import os, sys
sys.path[:0] = sys.argv[2].split(os.pathsep)
from accelopt.sandbox.forkserver import serve
serve(int(sys.argv[1]), sys.argv[4:], beside=sys.argv[3] == "beside")
"""


class ForkServer:
    """Starts children that have `modules` imported already; `start` is a `Start` for `sandbox.run`.

    The modules are imported with `environment`, beside the few variables of any child: some read theirs
    once and for all. Each child has its own as well. Children that are not confined can ask for forks
    by `clean_server`, if the server keeps one `beside` them.
    The server begins with the first child and ends with `close`, or with this process. Where there
    can be none (not Linux) every child is a new interpreter.
    """

    def __init__(
        self,
        modules: Sequence[str],
        threads: int = 1,
        environment: Mapping[str, str] | None = None,
        *,
        beside: bool = False,
    ) -> None:
        self.modules = modules
        self.threads = threads
        self.beside = beside
        self.environment = environment or {}
        self.further: dict[str, object] = {}  # which interpreter is asked for, if not this server's
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self, streams: Streams, setting: ChildSetting) -> ChildProcess:
        """A fork of the server, or a new interpreter where that does not work."""
        if setting.wrapper or not linux_calls.LINUX:
            return spawn(streams, setting)
        status, status_writer = os.pipe()
        message = {"variables": dict(setting.variables), "folder": str(setting.folder)}
        try:
            self.send({**message, **self.further}, [*streams, status_writer])
        except OSError:
            os.close(status)
            return spawn(streams, setting)
        finally:
            os.close(status_writer)
        return _Served(status)

    def send(self, message: Mapping[str, object], descriptors: Sequence[int]) -> None:
        """Asks for a child with these streams and a descriptor for how it ends. Raises OSError."""
        with self._lock:
            socket.send_fds(self._served(), [json.dumps(message).encode()], [*descriptors])

    def _served(self) -> socket.socket:
        if self._process is None or self._process.poll() is not None or self._socket is None:
            self.close()
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            beside = "beside" if self.beside else ""
            words = [_SERVER, str(theirs.fileno()), search_path(), beside, *self.modules]
            folder = Path(tempfile.gettempdir())
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-B", "-c", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # what imports say nobody asked for
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    cwd=folder,
                    env={**variables_of(folder, self.threads), **self.environment},
                    start_new_session=True,
                )
        return self._socket

    def close(self) -> None:
        """End the server. Children that are still at work end when their own pipes close."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None and not ended_within(self._process, _GRACE_SECONDS):
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None


class _Served:
    """A child of the server, which tells its number and then its exit code over a pipe."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._said = b""
        self._code: int | None = None
        while b"\n" not in self._said and self._code is None:
            self._read()
        self.pid = int(self._said.partition(b"\n")[0] or -1)

    def poll(self) -> int | None:
        while self._code is None and select.select([self._status], [], [], 0)[0]:
            self._read()
        return self._code

    def _read(self) -> None:
        said = os.read(self._status, 64)
        self._said += said
        if not said:
            os.close(self._status)
            code = self._said.partition(b"\n")[2].strip()
            self._code = int(code) if code else -signal.SIGKILL  # the server itself is gone


class _ServerBeside(ForkServer):
    """The server that this process was started beside, or a further interpreter of that one's."""

    def __init__(self, theirs: socket.socket, modules: Sequence[str], interpreter: int) -> None:
        super().__init__(modules)
        self._socket = theirs
        if interpreter:
            self.further = {"modules": [*modules], "interpreter": interpreter}

    def _served(self) -> socket.socket:
        assert self._socket is not None
        return self._socket


_own: dict[object, ForkServer] = {}
os.register_at_fork(after_in_child=_own.clear)


def own_server(
    modules: Sequence[str],
    threads: int = 1,
    environment: Mapping[str, str] | None = None,
    *,
    beside: bool = False,
    interpreter: int = 0,
) -> ForkServer:
    """The `ForkServer` of this process with these settings, which ends with it; of several with the same ones
    each `interpreter` is another, with hashes and addresses of its own."""
    given = tuple((environment or {}).items())
    key = (tuple(modules), threads, given, beside, interpreter, *sys.path)
    return _own.setdefault(key, ForkServer(modules, threads, environment, beside=beside))


def clean_server(modules: Sequence[str], interpreter: int = 0) -> ForkServer:
    """Where a process that holds what a child must not see gets forks from: the server that it was
    started beside, or one of its own that has imported `modules`; of a further `interpreter` forks that have
    other hashes and addresses than those."""
    if (beside := server_beside()) is None:
        return own_server(modules, interpreter=interpreter)
    return _ServerBeside(beside, modules, interpreter)


def fork_with_server(streams: Streams, setting: ChildSetting) -> ChildProcess:
    """A `Start`: `fork`, where the child has another fork of this process for a server beside it."""
    if setting.wrapper or not linux_calls.LINUX:
        return fork(streams, setting)
    with _forked_server() as server:
        return fork(streams, setting, server)


def serve(descriptor: int, modules: Sequence[str], *, beside: bool = False) -> None:
    """The server's side: fork for every message, say how each child ended, until the client ends. With
    `beside`, children that are not confined can ask a fork of this very process for more."""
    for module in modules:
        with contextlib.suppress(Exception):  # for the child to say, if it needs it
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as client:
        _serve(client, _forked_server() if beside else None)


def _forked_server() -> socket.socket:
    """The socket of a fork of this process that does nothing but serve, and ends when nobody has it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for place in range(3):
                os.dup2(nothing, place)
            os.dup2(theirs.fileno(), 3)
            os.closerange(4, os.sysconf("SC_OPEN_MAX"))
            _serve(socket.socket(fileno=3), None)
        finally:
            os._exit(0)
    theirs.close()
    return ours


def _serve(client: socket.socket, beside: socket.socket | None) -> None:
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([client.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _tell_ends(running)
        if client.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(client, _MESSAGE_BYTES, 5)
            if not message:
                return
            _serve_one(json.loads(message), descriptors, running, beside)


def _serve_one(
    message: Mapping[str, Any],
    descriptors: Sequence[int],
    running: dict[int, int],
    beside: socket.socket | None,
) -> None:
    *ends, status = descriptors
    if further := message.get("interpreter"):
        plain = {name: message[name] for name in ("variables", "folder")}
        with contextlib.suppress(OSError):  # who has asked sees that nobody answers
            own_server(message["modules"], interpreter=further).send(plain, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return
    variables = message["variables"]
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        setting = ChildSetting((), variables, Path(str(message["folder"])))
        become_keeper(Streams(*ends), setting, beside)
    for end in ends:
        os.close(end)
    running[pid] = status
    _tell(status, pid)


def _tell_ends(running: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if (status := running.pop(ended[0], None)) is None:
                continue  # the server beside the children
            _tell(status, os.waitstatus_to_exitcode(ended[1]))
            os.close(status)


def _tell(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(status, b"%d\n" % number)
