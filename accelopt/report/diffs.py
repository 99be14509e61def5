"""Two sources compared: side by side for a page, and as a patch."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

AROUND = 3  # unchanged lines kept beside a change


class DiffRow(NamedTuple):
    """One row: line numbers (0: none) and texts of both sides. `kind` is same, changed or gap."""

    kind: str
    left_number: int
    left: str
    right_number: int
    right: str


NO_NEWLINE = "\\ No newline at end of file\n"


LINE = re.compile(r"[^\n]*\n|[^\n]+")
MARK = "\ufeff"


def ended_as(raw: str, text: str) -> str:
    """`text`, which has plain ends of lines, with the byte order mark and the ends that a file's `raw` text
    has: lines that stay keep theirs, new ones get the commonest."""
    own = LINE.findall(raw.removeprefix(MARK))
    new = LINE.findall(text)
    windows = 2 * sum(line.endswith("\r\n") for line in own) > len(own)
    made = [line.replace("\n", "\r\n") if windows else line for line in new]
    plain = [line.replace("\r\n", "\n") for line in own]
    for block in difflib.SequenceMatcher(None, plain, new, autojunk=False).get_matching_blocks():
        made[block.b : block.b + block.size] = own[block.a : block.a + block.size]
    return (MARK if raw.startswith(MARK) else "") + "".join(made)


def patch_of(before: str, after: str, name: str) -> str:
    """A unified diff that `patch` applies to the file `name`; empty for equal texts."""
    texts = (LINE.findall(before), LINE.findall(after))
    lines = difflib.unified_diff(*texts, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)


def side_by_side(before: str, after: str) -> list[DiffRow]:
    """The rows of a diff from `before` to `after`, with a little of what stays the same."""
    left, right = before.splitlines(), after.splitlines()
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    rows: list[DiffRow] = []
    for number, group in enumerate(matcher.get_grouped_opcodes(AROUND)):
        if number:
            rows.append(DiffRow("gap", 0, "", 0, ""))
        for tag, left_from, left_to, right_from, right_to in group:
            kind = "same" if tag == "equal" else "changed"
            for step in range(max(left_to - left_from, right_to - right_from)):
                i, j = left_from + step, right_from + step
                on_left, on_right = i < left_to, j < right_to
                rows.append(
                    DiffRow(
                        kind,
                        i + 1 if on_left else 0,
                        left[i] if on_left else "",
                        j + 1 if on_right else 0,
                        right[j] if on_right else "",
                    )
                )
    return rows
