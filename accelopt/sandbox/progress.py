"""What a worker's child is doing, told before it begins: what never comes to its end cannot say so.

A process has one channel to its caller, so there is one place to tell it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

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
    finally:
        _say("")


def _say(what: str) -> None:
    for tell in _tell:
        tell(_MARK + json.dumps(what).encode() + b"\n")


def split(result: bytes) -> tuple[str, bytes]:
    """What a child was doing last, and the rest of what it wrote."""
    doing, rest = "", []
    for line in result.splitlines(keepends=True):
        if line.startswith(_MARK):
            with contextlib.suppress(ValueError):
                doing = str(json.loads(line[len(_MARK) :]))
        else:
            rest.append(line)
    return doing, b"".join(rest)
