"""Statements in the layout of our formatter: lines of up to 100 characters."""

from __future__ import annotations

import re

LONGEST = 100
INDENT = "    "


def wrapped(line: str, tail: str = "") -> list[str]:
    """A statement, or an element of one with the comma behind it as `tail`, as the formatter would lay it out: what
    stands in its last brackets goes on lines of its own where it does not fit. NumPy's format `bool` has the name
    `bool_` in NKI."""
    line = re.sub(r"\bnl\.bool\b", "nl.bool_", line)
    opened = _last_brackets(line)
    if len(line + tail) <= LONGEST or line.lstrip().startswith("#") or opened is None:
        return [line + tail]
    first, last = opened
    pad = line[: len(line) - len(line.lstrip())]
    head, inner, end = line[: first + 1], line[first + 1 : last].strip(), pad + line[last:] + tail
    if len(head) > LONGEST and "] = " in head:
        return _target_wrapped(line, pad)
    if len(pad + INDENT + inner) <= LONGEST:
        return [head, pad + INDENT + inner, end]
    pieces = _split(inner)
    comma = "," if len(pieces) > 1 else ""
    return [head, *(text for piece in pieces for text in wrapped(pad + INDENT + piece, comma)), end]


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
    """Where the outermost brackets that close last, and hold something, are opened and closed."""
    depth, start, found = 0, 0, None
    for at, character in enumerate(line):
        if character in "([{":
            start = at if depth == 0 else start
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and line[start + 1 : at].strip():
                found = (start, at)
    return found


def _split(inner: str) -> list[str]:
    """What commas outside of brackets separate."""
    pieces, depth, start = [], 0, 0
    for at, character in enumerate(inner):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            pieces.append(inner[start:at].strip())
            start = at + 1
    return [piece for piece in (*pieces, inner[start:].strip()) if piece]
