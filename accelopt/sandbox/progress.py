"""What a worker's child is doing, told before it begins: what never comes to its end cannot say so,
and whoever waits wants to know.

A process has one channel to its caller, so there is one place to tell it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

Tell = Callable[[bytes], object]

_MARK = b"doing "
_NOTE = b"note "
_MOST_BYTES = 1 << 14  # of a line of ours
_tell: list[Tell] = []


def report_to(tell: Tell) -> None:
    """From here on, lines on what begins and ends go to `tell`; called once, when a child starts."""
    _tell[:] = [tell]


@contextlib.contextmanager
def announced(what: str) -> Iterator[None]:
    """Whoever ends this process, or waits for it in vain, meanwhile, is told that it was at `what`."""
    _say(what)
    try:
        yield
    except KeyboardInterrupt:  # ends the process, which was at this
        raise
    except BaseException:
        _say("")
        raise
    _say("")


def note(what: str) -> None:
    """For whoever waits: what comes now. It blames nobody."""
    _say(what, _NOTE)


def _say(what: str, mark: bytes = _MARK) -> None:
    for tell in _tell:
        tell(mark + json.dumps(what).encode() + b"\n")


def heard_by(watch: Callable[[str], None]) -> Callable[[bytes], None]:
    """What takes a child's result as it comes, and gives the notes in it to `watch`."""
    waiting = bytearray()

    def listen(data: bytes) -> None:
        waiting.extend(data)
        *lines, rest = waiting.split(b"\n")
        waiting[:] = rest[:_MOST_BYTES]
        for line in lines:
            if line.startswith(_NOTE):
                with contextlib.suppress(ValueError):
                    watch(str(json.loads(line[len(_NOTE) :])))

    return listen


class Told(NamedTuple):
    """What a child said of itself: what it was `doing` at the end, empty where nothing, what it had
    been at last, and the rest of what it wrote."""

    doing: str
    last: str
    rest: bytes


def split(result: bytes) -> Told:
    """A child's result without the lines on what it was doing."""
    doing, last, rest = "", "", []
    for line in result.splitlines(keepends=True):
        if line.startswith(_MARK):
            with contextlib.suppress(ValueError):
                doing = str(json.loads(line[len(_MARK) :]))
                last = doing or last
        elif not line.startswith(_NOTE):
            rest.append(line)
    return Told(doing, last, b"".join(rest))
