"""The `accelopt` command. What it imports, it imports when it is called, and Ctrl-C then just ends it."""

from __future__ import annotations

import sys

from accelopt.interruption import end_in_good_order, nothing_to_lose, stop


def main() -> None:
    """Entry point: what the user can mend ends in one sentence and exit status 1."""
    with nothing_to_lose():
        from accelopt.cli.app import command

        call = command(sys.argv[1:])
    end_in_good_order()
    try:
        call()
    except KeyboardInterrupt:
        stop()
