"""Answers of the bench: short, with what is left out and how to ask for it, without places on the machine."""

from __future__ import annotations

import re

from accelopt.errors import printable

LINES = 60
"""Lines of one answer, the one on what is left out included."""
WIDTH = 400  # characters
CHARACTERS = 8000
"""Of one answer: what floods its lines is cut sooner."""
PLACE = re.compile(r"(?<![\w.)\]/])/(?:[\w.+@-]+/)+(?=[\w.+@-])|(?<![\w/])~/(?:[\w.+@-]+/)*")
"""The folders of an absolute path; its last name stays."""


def placed_nowhere(text: str) -> str:
    """`text` with files by their names alone."""
    return PLACE.sub("", text)


def page(text: str, first: int = 1, most: int = LINES) -> str:
    """At most `most` lines of an answer from line `first` on, long ones folded, and how to ask for the
    rest."""
    lines = [part for line in printable(text).rstrip().splitlines() for part in _folded(line)]
    if len(lines) <= most and first <= 1 and sum(map(len, lines)) <= CHARACTERS:
        return "\n".join(lines)
    first = min(max(first, 1), max(len(lines), 1))
    shown = lines[first - 1 : first + most - 2]
    while sum(map(len, shown)) > CHARACTERS:
        shown.pop()
    last = first + len(shown) - 1
    rest = f"; first={last + 1} shows what follows" if last < len(lines) else ""
    return "\n".join([*shown, f"[lines {first} to {last} of {len(lines)}{rest}]"])


def _folded(line: str) -> list[str]:
    """A line in parts of at most `WIDTH`, cut behind a space where there is one."""
    parts = []
    while len(line) > WIDTH:
        cut = line.rfind(" ", WIDTH // 2, WIDTH) + 1 or WIDTH
        parts.append(line[:cut])
        line = line[cut:]
    return [*parts, line]
