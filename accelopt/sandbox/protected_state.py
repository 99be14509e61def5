"""What a process needs to do its work, kept while it runs what others wrote.

A function that nobody vouches for may lower a limit of its process, block signals, set an alarm or
return twice by a fork: what comes after it fails or never ends, and says nothing of the cause.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator

_NAMES = sorted((n for n in vars(resource) if n.startswith("RLIMIT_")), reverse=True)
_LIMITS = {getattr(resource, name): name for name in _NAMES}  # one limit has two names
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ProcessChanged(Exception):
    """What was done to the process and cannot be undone."""


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Afterwards the limits of the process and its blocked signals are as they were, Python's
    recursion goes as deep, and no alarm is set that was not before; a copy of the process ends here.
    Raises ProcessChanged for a limit that cannot be raised again, and for standard files that were
    closed."""
    process = os.getpid()
    depth = sys.getrecursionlimit()
    files = [number for number in range(3) if _is_open(number)]
    limits = {which: resource.getrlimit(which) for which in _LIMITS}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    quiet = [timer for timer in _TIMERS if signal.getitimer(timer) == (0.0, 0.0)]
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(1)
        for timer in quiet:
            signal.setitimer(timer, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        sys.setrecursionlimit(max(depth, sys.getrecursionlimit()))
        for which, before in limits.items():
            _raise_again(which, before)
        if not all(map(_is_open, files)):
            raise ProcessChanged("it closes the standard files of its process")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _raise_again(which: int, before: tuple[int, int]) -> None:
    now = resource.getrlimit(which)
    if now != before:
        try:
            resource.setrlimit(which, before)
        except (OSError, ValueError):
            name = _LIMITS[which]
            raise ProcessChanged(f"it lowers {name} of its process to {now[1]}, for good") from None
