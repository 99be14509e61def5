"""How a command ends before its work is done: Ctrl-C, SIGTERM and SIGHUP alike, without a traceback."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from accelopt.time_limits import END_SECONDS

STOPPED = 128 + signal.SIGINT
POLL_SECONDS = 0.5


@contextlib.contextmanager
def nothing_to_lose() -> Iterator[None]:
    """While only modules are being imported: Ctrl-C ends the process at once."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, as of a shell's background jobs
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_in_good_order() -> None:
    """From here on SIGTERM and SIGHUP do what Ctrl-C does: KeyboardInterrupt in the main thread, so
    that children end and scratch folders go. Signals that the caller ignores (nohup) stay ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def end_with_ancestors(top: int) -> None:
    """From here on this process ends in good order when the process `top`, or one between it and this
    one, ends: a shell that is killed tells its children nothing. Where there is no such ancestor any
    more, it ends at once."""
    watched = _ancestors(top)
    if not watched:
        signal.raise_signal(signal.SIGTERM)
        return

    def watch() -> None:
        _wait_for_one(watched)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(END_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="ancestors", daemon=True).start()


def _ancestors(top: int) -> list[int]:
    """The processes from this one's parent up to `top`; none where it is not above this one."""
    found = [os.getppid()]
    while found[-1] != top:
        try:
            status = Path(f"/proc/{found[-1]}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # gone, or a system without /proc: there only the parent is watched
            return found if not Path("/proc/self/stat").exists() else []
        above = int(status.rpartition(")")[2].split()[1])
        if above == 0:
            return []
        found.append(above)
    return found


def _wait_for_one(processes: Sequence[int]) -> None:
    """Waits until one of these processes has ended, whether or not somebody has asked how."""
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as ended:
        for process in processes:
            try:
                handle = os.pidfd_open(process)
            except ProcessLookupError:
                return
            except (AttributeError, OSError):  # a system without such handles
                _poll(processes)
                return
            stack.callback(os.close, handle)
            ended.register(handle, selectors.EVENT_READ)
        ended.select()


def _poll(processes: Sequence[int]) -> None:
    while True:
        for process in processes:
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return
            except PermissionError:  # it is there
                continue
        time.sleep(POLL_SECONDS)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if callable(signal.getsignal(signal.SIGINT)):  # Python's own handler, or that of an event loop
        signal.raise_signal(signal.SIGINT)
    else:  # Ctrl-C is ignored; this is none
        raise KeyboardInterrupt


def stop(said: str = "Stopped.") -> NoReturn:
    """End with the status of Ctrl-C; whoever is at the terminal, if there is still one, reads why."""
    # Of a library's task that was cut short before it began: nothing that anybody can mend.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    with contextlib.suppress(OSError):
        print(f"\n{said}", file=sys.stderr)
    raise SystemExit(STOPPED)
