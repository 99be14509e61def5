"""Statements in the layout of our formatter: lines of up to 100 characters."""

from __future__ import annotations

import re

LONGEST = 100


def wrapped(line: str) -> list[str]:
    """A statement as the formatter would lay it out: what stands in its last brackets goes on lines
    of its own where it does not fit. NumPy's format `bool` has the name `bool_` in NKI."""
    line = re.sub(r"\bnl\.bool\b", "nl.bool_", line)
    if len(line) <= LONGEST or line.lstrip().startswith("#"):
        return [line]
    opened = _last_brackets(line)
    if opened is None:
        return [line]
    first, last = opened
    pad = " " * (len(line) - len(line.lstrip()))
    head, inner, tail = line[: first + 1], line[first + 1 : last], line[last:]
    if len(head) > LONGEST and "] = " in head:
        return _target_wrapped(line, pad)
    whole = f"{pad}    {inner}"
    if len(whole) <= LONGEST:
        return [head, whole, pad + tail]
    pieces = [f"{pad}    {piece}," for piece in _split(inner)]
    return [head, *(text for piece in pieces for text in wrapped(piece)), pad + tail]


def _target_wrapped(line: str, pad: str) -> list[str]:
    """An assignment whose target is too long for the line that its value begins on."""
    target, value = line.split("] = ", 1)
    if len(f"{target}] = (") <= LONGEST:
        return [f"{target}] = (", *wrapped(f"{pad}    {value}"), f"{pad})"]
    name, inner = target.split("[", 1)
    after = wrapped(f"{pad}_ = {value}")  # as long as the bracket that stands there
    places = [f"{pad}    {inner}"]
    if len(places[0]) > LONGEST:
        places = [f"{pad}    {piece}," for piece in _split(inner)]
    return [f"{name}[", *places, f"{pad}]{after[0][len(pad) + 1 :]}", *after[1:]]


def _last_brackets(line: str) -> tuple[int, int] | None:
    """Where the outermost brackets that close last are opened and closed."""
    depth, start, found = 0, 0, None
    for at, character in enumerate(line):
        if character in "([{":
            if depth == 0:
                start = at
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                found = (start, at)
    return found


def _split(inner: str) -> list[str]:
    """What commas outside brackets separate."""
    pieces, depth, start = [], 0, 0
    for at, character in enumerate(inner):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            pieces.append(inner[start:at].strip())
            start = at + 1
    pieces.append(inner[start:].strip())
    return pieces
