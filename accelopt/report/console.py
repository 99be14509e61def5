"""The terminal that people read: one console, on standard error while work is going on."""

from __future__ import annotations

from rich.console import Console


def console() -> Console:
    """A console on standard error, for progress."""
    return Console(stderr=True)


def output() -> Console:
    """A console on standard output, for results; wide enough to keep rows whole in a file."""
    found = Console()
    return found if found.is_terminal else Console(width=120)
