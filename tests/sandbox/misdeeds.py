"""Entries that the sandbox tests run in a child process: each does one thing."""

import _thread
import ctypes
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

Payload = dict[str, object]


def echo(payload: Payload, channel: BinaryIO) -> None:
    channel.write(json.dumps(payload).encode())


def environment(payload: Payload, channel: BinaryIO) -> None:
    channel.write(json.dumps(dict(os.environ)).encode())


def report(payload: Payload, channel: BinaryIO) -> None:
    """Try the misdeed named in the payload; tell whether it worked."""
    try:
        said = _MISDEEDS[str(payload["name"])](str(payload.get("path", "")))
    except (OSError, RuntimeError) as error:
        channel.write(f"refused: {error}".encode())
    else:
        channel.write(f"done: {said}".encode())


def descriptors(payload: Payload, channel: BinaryIO) -> None:
    """What is open in this process, with what it is."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        if entry.exists() or int(entry.name) < 4:
            found[entry.name] = str(entry.readlink())
    channel.write(json.dumps(found).encode())


def remember(payload: Payload, channel: BinaryIO) -> None:
    """Leave something in a module; tell what an earlier child left there."""
    channel.write(json.dumps(getattr(json, "left_behind", "nothing")).encode())
    json.left_behind = "something"  # type: ignore[attr-defined]


def ask_beside(payload: Payload, channel: BinaryIO) -> None:
    """With something in memory, have two others told what they see of it, and each draw a number."""
    from accelopt.sandbox import Limits, Policy, clean_server, run

    json.left_behind = "a secret"  # type: ignore[attr-defined]
    told = [
        run(
            f"tests.sandbox.misdeeds:{entry}",
            {},
            policy=Policy(readable=(str(Path(__file__).parents[1]), "/proc")),
            limits=Limits(seconds=120),
            start=clean_server(["json", "numpy"], interpreter).start,
        ).result.decode()
        for entry, interpreter in (
            *(("remember", 0), ("remember", 0), ("draw", 0), ("draw", 0), ("descriptors", 0)),
            *(("remember", 1), *(("hashed", n) for n in (0, 0, 1, 1, 2))),
        )
    ]
    channel.write(json.dumps(told).encode())


def hashed(payload: Payload, channel: BinaryIO) -> None:
    """The hash of a string, which each interpreter draws its own for."""
    channel.write(str(hash("a string")).encode())


def draw(payload: Payload, channel: BinaryIO) -> None:
    """A number of NumPy's own generator, which nobody has seeded."""
    import numpy

    channel.write(str(numpy.random.random()).encode())


def name_this_process(mark: object) -> None:
    """The name that other processes see in /proc/PID/comm: at most 15 characters."""
    ctypes.CDLL(None).prctl(15, str(mark).encode(), 0, 0, 0)  # PR_SET_NAME


def work(payload: Payload, channel: BinaryIO) -> None:
    """Take half a second of the processor."""
    while time.process_time() < 0.5:
        pass


def crowd(payload: Payload, channel: BinaryIO) -> None:
    """Let many threads stand in each other's way, and never end."""
    block = bytes(1 << 30)  # hashed without Python's lock

    def spin() -> None:
        while True:
            hashlib.sha256(block)

    for _ in range(50 * len(os.sched_getaffinity(0))):
        _thread.start_new_thread(spin, ())
    spin()


def hang(payload: Payload, channel: BinaryIO) -> None:
    name_this_process(payload.get("mark", "hangs"))
    while True:
        time.sleep(1)


def exit_without_result(payload: Payload, channel: BinaryIO) -> None:
    os._exit(0)


def crash(payload: Payload, channel: BinaryIO) -> None:
    ctypes.string_at(0)


def flood(payload: Payload, channel: BinaryIO) -> None:
    while True:
        sys.stdout.write("x" * 65536)


def eat_memory(payload: Payload, channel: BinaryIO) -> None:
    kept = []
    while True:
        kept.append(bytearray(64 << 20))


def fill_disk(payload: Payload, channel: BinaryIO) -> None:
    for i in range(1000):
        Path(f"block{i}").write_bytes(b"x" * (1 << 20))


def start_daemon(payload: Payload, channel: BinaryIO) -> None:
    """A grandchild in a session of its own that would outlive everybody."""
    if os.fork() == 0:
        os.setsid()
        name_this_process(payload["mark"])
        if os.fork() == 0:
            while True:
                time.sleep(1)
        os._exit(0)
    os.wait()
    channel.write(b"started")


def nested(payload: Payload, channel: BinaryIO) -> None:
    """A sandbox inside of a sandbox, which may not make namespaces any more."""
    from accelopt.sandbox import Limits, Policy, run

    outcome = run(
        "tests.sandbox.misdeeds:report",
        {"name": payload["name"], "path": payload["path"]},
        policy=Policy(readable=(str(Path(__file__).parents[1]),)),
        limits=Limits(seconds=120),
    )
    said = [outcome.isolation, outcome.result.decode(), outcome.exit_code, outcome.output]
    channel.write(json.dumps(said).encode())


def _fork(_: str) -> str:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "forked"


def _connect(_: str) -> str:
    with socket.socket() as own:
        own.settimeout(1)
        own.connect(("127.0.0.1", 22))
    return "connected"


def _unshare(_: str) -> str:
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return "unshared"


def _kill_parent(_: str) -> str:
    os.kill(os.getppid(), 9)
    return "killed"


def _watch(path: str) -> str:
    """Ask to be told what happens in a folder (inotify(7))."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.inotify_init1(os.O_NONBLOCK)
    if handle < 0 or libc.inotify_add_watch(handle, path.encode(), 0x100) < 0:  # IN_CREATE
        raise OSError(ctypes.get_errno(), "inotify")
    return "watched"


def call_numbers(payload: Payload, channel: BinaryIO) -> None:
    """Make system calls by number with arguments that mean nothing; tell each one's errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    said = []
    for number in payload["numbers"]:  # type: ignore[attr-defined]
        ctypes.set_errno(0)
        libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 5)
        said.append(ctypes.get_errno())
    channel.write(json.dumps(said).encode())


def nested_folders(payload: Payload, channel: BinaryIO) -> None:
    """Folders one inside of another, beyond what any path can name; the last cannot be read."""
    for _ in range(int(str(payload["depth"]))):
        Path("inner").mkdir()
        os.chdir("inner")
    Path("closed").mkdir(mode=0)
    channel.write(b"made")


def many_files(payload: Payload, channel: BinaryIO) -> None:
    for i in range(int(str(payload["count"]))):
        os.close(os.open(f"file{i}", os.O_CREAT | os.O_WRONLY))
    channel.write(b"made")


def _change_flags(path: str) -> str:
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, 0x40086602, (0x80).to_bytes(8, "little"))  # FS_IOC_SETFLAGS, no atime
    finally:
        os.close(handle)
    return "changed"


_MISDEEDS = {
    "chmod": lambda path: str(Path(path).chmod(0o4777)),
    "chown": lambda path: str(os.chown(path, os.getuid(), os.getgid())),
    "utime": lambda path: str(os.utime(path, (1, 1))),
    "setxattr": lambda path: str(os.setxattr(path, "user.mark", b"x")),
    "flags": _change_flags,
    "read": lambda path: Path(path).read_text(),
    "list": lambda path: str(list(Path(path).iterdir())),
    "write": lambda path: str(Path(path).write_text("x")),
    "delete": lambda path: str(Path(path).unlink()),
    "link": lambda path: str(Path("link").symlink_to(path) or Path("link").read_text()),
    "fork": _fork,
    "run": lambda path: str(subprocess.run(["true"])),
    "connect": _connect,
    "unshare": _unshare,
    "kill": _kill_parent,
    "watch": _watch,
    "processes": lambda path: str(list(Path("/proc").iterdir())),
}


def blocked_signals(payload: Payload, channel: BinaryIO) -> None:
    """Tell which signals are blocked here."""
    channel.write(json.dumps(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))).encode())
