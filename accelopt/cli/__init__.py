"""The `accelopt` command. What it imports, it imports when it is called, and Ctrl-C then just ends it."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from accelopt.interruption import end_in_good_order, nothing_to_lose, stop


def main() -> None:
    """Entry point: what the user can mend ends in one sentence and exit status 1."""
    with nothing_to_lose(), _said("accelopt starts ..."):
        from accelopt.cli.app import command

        call = command(sys.argv[1:])
    gc.freeze()  # what is imported is no garbage
    end_in_good_order()
    try:
        call()
    except KeyboardInterrupt:
        stop()


@contextlib.contextmanager
def _said(sentence: str) -> Iterator[None]:
    """`sentence` stands on the terminal meanwhile, where there is one: imports may take seconds."""
    if not sys.stderr.isatty():
        yield
        return
    print(sentence, end="\r", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(" " * len(sentence), end="\r", file=sys.stderr, flush=True)
