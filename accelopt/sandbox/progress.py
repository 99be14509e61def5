"""What a worker's child is doing, told before it begins: what never comes to its end cannot say so.

A process has one channel to its caller, so there is one place to tell it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

Tell = Callable[[bytes], object]

_MARK = b"doing "
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


def _say(what: str) -> None:
    for tell in _tell:
        tell(_MARK + json.dumps(what).encode() + b"\n")


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
        else:
            rest.append(line)
    return Told(doing, last, b"".join(rest))
