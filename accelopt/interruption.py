"""How a command ends before its work is done: Ctrl-C, SIGTERM and SIGHUP alike, without a traceback."""

from __future__ import annotations

import contextlib
import signal
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

STOPPED = 128 + signal.SIGINT


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
