"""Reading what a model answered: JSON in whatever form it came, and code inside of it.

Models wrap lists in objects, write Python in place of JSON, or some of both, leave commas before a closing
bracket and remarks behind lines, put per cent where a share is asked for, other names for keys, and fences
anywhere. One reader knows these forms for every role.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from accelopt.kernel_source import KERNEL_NAMES, fenced_blocks, kernel_source
from accelopt.parsing import parse_expression

NOISE = re.compile(
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/|\#[^\n]*|,(?=\s*[}\]])""",
    re.DOTALL,
)
"""Texts, which stay as they are; or remarks and commas before a closing bracket."""
BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[][{}]')
QUOTES = str.maketrans("\u201c\u201d\u2018\u2019\u00a0\ufeff", "\"\"''  ")
WORDS = {"true": True, "false": False, "null": None}
LONGEST = 400_000
NO_JSON = "it holds no JSON that can be read"


def json_in(reply: str) -> Any:
    """The JSON in a reply: of its last block that is some, else the last object, or list, outside of any
    other. None where there is none."""
    blocks = [block.text for block in fenced_blocks(reply)]
    texts = [text for text in reversed(blocks) if text.lstrip()[:1] in ("{", "[")]
    found = [_value(text) for text in (*texts, *_outermost(reply))]
    read = [value for value in found if isinstance(value, (dict, list))]
    return next((value for value in read if rows_in(value, "")), read[0] if read else None)


def _outermost(reply: str) -> list[str]:
    """The texts from an opening bracket to the one that closes it, and in no other; the last one first."""
    found, start, depth = [], 0, 0
    text = re.sub(r"^[ \t>]*```.*$", "", reply[:LONGEST].translate(QUOTES), flags=re.MULTILINE)
    for match in BRACKET.finditer(text):
        if match[0] in "[{":
            start = start if depth else match.start()
            depth += 1
        elif match[0] in "]}" and depth:
            depth -= 1
            if not depth:
                found.append(text[start : match.end()])
    return found[::-1]


def _value(text: str) -> Any:
    """JSON as it is, without remarks, or as Python with the words of JSON; None where it is neither."""
    plain = NOISE.sub(lambda match: match[1] or "", text)
    for one in (text, plain):
        try:
            return json.loads(one, strict=False)
        except (ValueError, RecursionError):
            continue
    try:
        tree = parse_expression(plain.strip())
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                node.keys = [
                    ast.Constant(k.id) if isinstance(k, ast.Name) else k for k in node.keys
                ]
        return ast.literal_eval(_Words().visit(tree))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


class _Words(ast.NodeTransformer):
    """Words of JSON as Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(WORDS[node.id]) if node.id in WORDS else node


def named(row: dict[str, Any], names: Iterable[str] = ()) -> dict[str, Any]:
    """`row` with `names` for keys that differ from them in case and separators alone; others in lower case
    with underscores: `Root Cause` and `rootCause` are `root_cause`."""
    known = {_plain(name): name for name in names}
    return {known.get(_plain(key), _plain(key)): value for key, value in row.items()}


def _plain(key: object) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key))
    return re.sub(r"[\W_]+", "_", words).strip("_").lower()


def rows_in(found: Any, name: str) -> list[dict[str, Any]]:
    """The objects of a list, also of one inside of an object under `name` or as its only list, or one
    object by itself."""
    if isinstance(found, dict):
        found = named(found)
        lists = [part for part in found.values() if isinstance(part, list)]
        inner = found.get(name, lists[0] if len(lists) == 1 and len(found) == 1 else None)
        found = [found] if inner is None else inner
    if isinstance(found, dict):
        found = [found]
    return [named(row) for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def object_in(reply: str, *names: str) -> dict[str, Any] | None:
    """The object in a reply, also inside of another one that has nothing else or in a list; with
    `names`, one that has one of them. None where there is none."""
    found = json_in(reply)
    for _ in range(3):
        if isinstance(found, dict) and (not names or {*names} & named(found, names).keys()):
            return named(found, names) if names else found
        parts = (
            [*(found.values() if isinstance(found, dict) else found or ())]
            if isinstance(found, (dict, list))
            else []
        )
        found = next((part for part in parts if isinstance(part, dict)), None)
    return None


def words_in(value: Any) -> str:
    """A value as words, also of a list or of an object that was given where words were asked for."""
    if isinstance(value, dict):
        return " ".join(words_in(part) for part in value.values())
    return ", ".join(map(words_in, value)) if isinstance(value, list) else str(value)


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
