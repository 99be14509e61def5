"""The terminal that people read: one console, on standard error while work is going on."""

from __future__ import annotations

import shutil
import textwrap

from rich.console import Console

IN_A_FILE = 100  # columns of a result that goes to a file or a pipe


def console() -> Console:
    """A console on standard error, for progress."""
    return Console(stderr=True)


def output() -> Console:
    """A console on standard output, for results: as wide as COLUMNS says, else as the terminal is."""
    return Console(width=shutil.get_terminal_size((IN_A_FILE, 0)).columns)


def paragraph(text: str, columns: int = 0) -> str:
    """A sentence in lines of so many columns, by default the output's, those behind the first farther in than that."""
    lead = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(
        text, columns or output().width, break_on_hyphens=False, break_long_words=False,
        subsequent_indent=lead and f"{lead}    ",
    )  # fmt: skip
