"""Statements in the layout of our formatter: lines of up to 100 characters."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 100
INDENT = "    "


def compact(line: str, width: int) -> list[str]:
    """A statement on as few lines of a `width` as what stands in its last brackets fits on, below each other behind
    the bracket or indented; of as many lines as the formatter has, in the formatter's layout."""
    opened = _last_brackets(line)
    plain = wrapped(line)
    if len(line) <= width or line.lstrip().startswith("#") or opened is None:
        return [line]
    first, last = opened
    pad = line[: len(line) - len(line.lstrip())]
    head, pieces, end = line[: first + 1], _split(line[first + 1 : last]), line[last:]
    made = [_filled(pieces, pad + INDENT, width)]
    made[0] = [head, *made[0], pad + end]
    beside = _filled(pieces, " " * len(head), width - len(end))
    made += [[head + beside[0].lstrip(), *beside[1:-1], beside[-1] + end]] if beside[1:] else []
    fitting = [lines for lines in made if max(map(len, lines)) <= width]
    return min((plain, *fitting), key=len)


def _filled(pieces: Sequence[str], pad: str, width: int) -> list[str]:
    """Pieces with commas between them, on lines of up to a width where they fit."""
    lines = [pad + pieces[0]]
    for piece in pieces[1:]:
        if len(f"{lines[-1]}, {piece},") > width:
            lines[-1] += ","
            lines.append(pad + piece)
        else:
            lines[-1] += f", {piece}"
    return lines


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
