"""Reading what a model answered: JSON in whatever form it came, and code inside of it.

Models wrap lists in objects, write Python in place of JSON, leave commas before a closing bracket, put
per cent where a share is asked for, and fences anywhere. One reader knows these forms for every role.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from accelopt.kernel_source import KERNEL_NAMES, fenced_blocks, kernel_source

TRAILING = re.compile(r",(\s*[}\]])")
REMARK = re.compile(r"^\s*(?://|#).*$", re.MULTILINE)
LONGEST = 400_000
NO_JSON = "it holds no JSON that can be read"


def json_in(reply: str) -> Any:
    """The JSON in a reply: of its last block that is some, else from a bracket to the last one that
    closes. None where there is none."""
    for text in _candidates(reply):
        for repaired in (text, TRAILING.sub(r"\1", REMARK.sub("", text))):
            try:
                return json.loads(repaired, strict=False)
            except (ValueError, RecursionError):
                continue
        try:
            found = ast.literal_eval(text.strip()) if len(text) < LONGEST else None
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(found, (dict, list)):
            return found
    return None


def _candidates(reply: str) -> Iterator[str]:
    blocks = [block.text for block in fenced_blocks(reply)]
    yield from (text for text in reversed(blocks) if text.lstrip()[:1] in ("{", "["))
    starts = sorted(at for at in (reply.find("["), reply.find("{")) if at >= 0)
    for start in starts:
        closing = "]" if reply[start] == "[" else "}"
        yield reply[start : reply.rfind(closing) + 1]


def rows_in(found: Any, name: str) -> list[dict[str, Any]]:
    """The objects of a list, also of one inside of an object under `name` or as its only list, or one
    object by itself."""
    if isinstance(found, dict):
        lists = [part for part in found.values() if isinstance(part, list)]
        inner = found.get(name, lists[0] if len(lists) == 1 and len(found) == 1 else None)
        found = [found] if inner is None else inner
    if isinstance(found, dict):
        found = [found]
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def object_in(reply: str, *names: str) -> dict[str, Any] | None:
    """The object in a reply, also inside of another one that has nothing else or in a list; with
    `names`, one that has one of them. None where there is none."""
    found = json_in(reply)
    for _ in range(3):
        if isinstance(found, dict) and (not names or {*names} & found.keys()):
            return found
        parts = (
            [*(found.values() if isinstance(found, dict) else found or ())]
            if isinstance(found, (dict, list))
            else []
        )
        found = next((part for part in parts if isinstance(part, dict)), None)
    return None


def share_in(value: object) -> float:
    """A share between 0 and 1: of a number, of one in per cent, of `65%`; 0 for anything else."""
    text = str(value).strip() if isinstance(value, str) else ""
    if found := re.match(r"[~≈]?\s*(\d+(?:\.\d+)?)\s*(%|percent|per cent)?", text):
        value = float(found[1]) / (100 if found[2] else 1)
    share = float(value) if isinstance(value, (int, float)) else 0.0
    return min(max(share / 100 if share > 1 else share, 0.0), 1.0) if share == share else 0.0


def kernel_in(reply: str, names: tuple[str, ...] = KERNEL_NAMES) -> str | None:
    """The kernel that a reply proposes, in a block or as a text in JSON."""
    found = kernel_source(reply, names)
    if found is not None and found.lstrip()[:1] not in ("{", "["):
        return found
    texts = sorted(_texts(json_in(reply)), key=len)
    return next(
        (
            code
            for text in reversed(texts)
            if "def " in text and (code := kernel_source(text, names))
        ),
        None,
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
