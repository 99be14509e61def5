"""Reading what a model answered: JSON in whatever form it came, code inside of it, and calls of tools.

Models wrap lists in objects, write Python in place of JSON, or some of both, leave commas before a closing
bracket and remarks behind lines, put per cent where a share is asked for, other names for keys, and fences
anywhere. One reader knows these forms for every role.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from accelopt.kernel_source import (
    KERNEL_NAMES,
    QUOTES,
    entries,
    fenced_blocks,
    functions,
    kernel_source,
)
from accelopt.parsing import parse_expression, tree_of

NOISE = re.compile(
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/|\#[^\n]*|,(?=\s*[}\]])""",
    re.DOTALL,
)
"""Texts, which stay as they are; or remarks and commas before a closing bracket."""
BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[][{}]')
QUOTED = re.compile(
    r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1|\Z)|(?:^ {0,3}>[^\n]*\n?){2,}", re.MULTILINE | re.DOTALL
)
"""A fenced block, which stays as it is; or lines of a quotation, of which one alone may be code."""
WORDS = {"true": True, "false": False, "null": None}
CLOSES = {"[": "]", "{": "}"}
MOST_UNCLOSED = 8
DEEPEST = 5  # objects and lists, one in the other, around what was asked for
LONGEST = 400_000
NO_JSON = "it holds no JSON that can be read"
TAG = re.compile(r"""<([\w.:-]+)(?:\s*=\s*|\s+name\s*=\s*)?["']?([\w.-]*)["']?\s*>""")
"""The opening of an element and its label: `<check>`, `<invoke name="check">`, `<function=check>`."""
CALLED = ("tool", "tool_name", "name", "function", "function_name", "action", "recipient_name")
GIVEN = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "params")
BETWEEN = r"\W*(?:(?:action input|input|arguments|parameters|json|sep|constrain|message)\W*)*\Z"
MEANT = re.compile(
    r"<\W*(?:tool\W?call|function|invoke)|```tool|TOOL_CALL|[\"'](?:tool|tool_calls|tool_name)[\"']\s*:",
    re.IGNORECASE,
)
"""What stands in answers that mean to call a tool."""


def unquoted(reply: str) -> str:
    """`reply` with what it quotes, as e-mails do behind `> `, without these marks."""
    for _ in range(DEEPEST):
        before, reply = reply, QUOTED.sub(_quotation, reply)
        if reply == before:
            break
    return reply


def _quotation(match: re.Match[str]) -> str:
    lines = [] if match[1] else [line.partition(">")[2] for line in match[0].splitlines()]
    spaced = all(line[:1] in ("", " ") for line in lines)
    return "".join(f"{line[spaced:]}\n" for line in lines) or match[0]


def json_in(reply: str) -> Any:
    """The JSON in a reply: of its last block that is some, else the last object, or list, outside of any
    other. None where there is none."""
    blocks = [block.text for block in fenced_blocks(reply)]
    texts = [text for text in reversed(blocks) if text.lstrip()[:1] in ("{", "[")]
    for some in ((*texts, *_outermost(reply)), _outermost(reply.translate(QUOTES))):
        read = [value for text in some if isinstance(value := _value(text), (dict, list))]
        if read:
            return next((value for value in read if rows_in(value, "")), read[0])
    for text in (reply.strip(), f'"{reply.strip()}"'):  # JSON as a text in JSON, or its inside
        if isinstance(inner := _value(text), str) and len(inner) < len(reply):
            return json_in(inner)
    return None


def _outermost(reply: str) -> list[str]:
    """The texts from an opening bracket to the one that closes it, and in no other; the last one first."""
    return [text for _, text in _bracketed(reply)][::-1]


def _bracketed(reply: str) -> list[tuple[str, str]]:
    """The same in their order, each behind what stands between it and the one before."""
    text = re.sub(r"^[ \t>]*```.*$", "", reply[:LONGEST], flags=re.MULTILINE)
    found, at, ended = [], 0, 0
    for _ in range(MOST_UNCLOSED):
        start, unclosed = 0, list[str]()
        for match in BRACKET.finditer(text, at):
            if match[0] in "[{":
                start = start if unclosed else match.start()
                unclosed.append(CLOSES[match[0]])
            elif match[0] in "]}" and unclosed:
                unclosed.pop()
                if not unclosed:
                    found.append((text[ended:start], text[start : match.end()]))
                    ended = match.end()
        if not unclosed:
            break
        whole = text[start:] + "".join(reversed(unclosed[:MOST_UNCLOSED]))
        if len(unclosed) <= MOST_UNCLOSED and rows_in(_value(whole), ""):
            found.append((text[ended:start], whole))
            break
        at = start + 1  # one that nothing closes: of prose, or of an interval [0, 8)
    return found


def _value(text: str) -> Any:
    """JSON as it is, without remarks, or as Python with the words of JSON; None where it is neither."""
    plain = NOISE.sub(lambda match: match[1] or "", text)
    for one in (text, plain):
        try:
            return json.loads(one, strict=False)
        except (ValueError, RecursionError):
            continue
    try:
        return ast.literal_eval(_Words().visit(parse_expression(plain.strip())))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


class _Words(ast.NodeTransformer):
    """Words of JSON as Python's, and names in the place of keys as texts."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Dict):
            node.keys = [ast.Constant(k.id) if isinstance(k, ast.Name) else k for k in node.keys]
        if isinstance(node, ast.Name) and node.id in WORDS:
            return ast.Constant(WORDS[node.id])
        return self.generic_visit(node)


def named(row: dict[str, Any], names: Iterable[str] = ()) -> dict[str, Any]:
    """`row` with `names` for keys that differ from them in case and separators alone; others in lower case
    with underscores: `Root Cause` and `rootCause` are `root_cause`."""
    known = {_plain(name): name for name in names}
    return {known.get(_plain(key), _plain(key)): value for key, value in row.items()}


def _plain(key: object) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key))
    return re.sub(r"[\W_]+", "_", words).strip("_").lower()


def rows_in(found: Any, name: str) -> list[dict[str, Any]]:
    """The objects of a list, also of one inside of an object under `name` or as all that it holds, or one
    object by itself."""
    for _ in range(DEEPEST):
        if isinstance(found, dict):
            inner = named(found).get(name)
            only = [*found.values()] if inner is None and len(found) == 1 else [inner]
        else:
            only = found if isinstance(found, list) and len(found) == 1 else []
            only = [part for part in only if isinstance(part, list)]
        if not only or not _holds_rows(only[0]):
            break
        found = only[0]
    found = [found] if isinstance(found, dict) else found
    return [named(row) for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def object_in(reply: str, *names: str) -> dict[str, Any] | None:
    """The object in a reply, also inside of another one that has nothing else or in a list; with
    `names`, one that has one of them. None where there is none."""
    found = json_in(reply)
    for _ in range(DEEPEST):
        if isinstance(found, dict) and (not names or {*names} & named(found, names).keys()):
            return named(found, names) if names else found
        parts = found.values() if isinstance(found, dict) else found or ()
        inner = [part for part in parts if part and isinstance(part, (dict, list))]
        found = min(inner, key=lambda part: isinstance(part, list), default=None)
    return None


def _holds_rows(value: Any) -> bool:
    """Whether a value may be rows, or hold some."""
    inside = value if isinstance(value, list) else ()
    return isinstance(value, dict) or any(isinstance(part, (dict, list)) for part in inside)


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


def kernel_in(reply: str, names: Collection[str] = KERNEL_NAMES) -> str | None:
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


def kernel_like(reply: str, kernel: str) -> str | None:
    """The kernel in a reply that was asked for none, where it defines the function that `kernel` does."""
    source = kernel_in(reply, names := {*KERNEL_NAMES, *entries(kernel)})
    return source if source and functions(source) & names else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            yield "\n".join(value)  # the lines of one


class WrittenCall(NamedTuple):
    """A call of a tool that was written as text."""

    name: str
    arguments: Any


def calls_in(reply: str, tools: Mapping[str, Sequence[str]]) -> list[WrittenCall]:
    """The calls of `tools` (each with the names of its arguments) that a reply writes as text: as elements,
    as JSON that names a tool or stands behind its name, or as blocks or lines of Python that only call."""
    reply = reply[:LONGEST]
    texts = [textwrap.dedent(block.text) for block in fenced_blocks(reply)] or reply.splitlines()
    return (
        [*_elements(reply, tools)]
        or [
            call
            for before, text in _bracketed(reply)
            for call in _calls(_value(text), before, tools)
        ]
        or [call for text in texts for call in _statements(text.strip(), tools)]
    )


def _elements(text: str, tools: Mapping[str, Sequence[str]]) -> Iterator[WrittenCall]:
    """Elements with a tool for a label, which hold elements or JSON for arguments."""
    at = 0
    while tag := TAG.search(text, at):
        at, name = tag.end(), _tool(tag[2] or tag[1], tools)
        end = text.find(f"</{tag[1]}>", at) if name in tools else -1
        if end >= 0:
            body, at = text[at:end], end
            parts = [(part[2] or part[1], part) for part in TAG.finditer(body)]
            given = {
                label: body[part.end() : close].strip("\n")
                for label, part in parts
                if label in tools[name] and (close := body.find(f"</{part[1]}>", part.end())) >= 0
            }
            yield WrittenCall(name, given or body.strip())


def _calls(value: Any, before: str, tools: Mapping[str, Sequence[str]]) -> list[WrittenCall]:
    """Objects that name a tool beside its arguments, have it for their only key, or stand behind it."""
    if isinstance(value, list):
        return [call for one in value for call in _calls(one, "", tools)]
    if not isinstance(value, dict):
        return []
    row = {_plain(key): part for key, part in value.items()}
    for key in CALLED:
        label, given = row.get(key), next((name for name in GIVEN if name in row), "")
        name = _tool(label, tools) if isinstance(label, str) else ""
        if name in tools or (given and re.fullmatch(r"\w+", name)):
            rest = {other: part for other, part in row.items() if other != key}
            return [WrittenCall(name, row[given] if given else rest)]
    for name, part in value.items():
        if name in tools and isinstance(part, dict) and len(row) == 1 and {*part} <= {*tools[name]}:
            return [WrittenCall(name, part)]
    names = "|".join(map(re.escape, tools))
    if found := re.search(rf"\b({names}){BETWEEN}", before[-200:], re.IGNORECASE):
        return [WrittenCall(found[1].lower(), value)]
    return [call for part in value.values() for call in _calls(part, "", tools)]


def _statements(text: str, tools: Mapping[str, Sequence[str]]) -> Iterator[WrittenCall]:
    """Python that calls tools with literals, and does nothing else."""
    for statement in tree_of(text).body:
        call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "print" and call.args:
            call = call.args[0]
        name = _tool(ast.unparse(call.func), tools) if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or name not in tools:
            return
        given = {**dict(zip(tools[name], call.args, strict=False)),
                 **{one.arg or "": one.value for one in call.keywords}}  # fmt: skip
        try:
            yield WrittenCall(name, {key: ast.literal_eval(part) for key, part in given.items()})
        except (ValueError, TypeError, MemoryError, RecursionError):
            return


def _tool(label: str, tools: Mapping[str, Sequence[str]]) -> str:
    """A tool's name without what models put before it: `functions.check`, `mcp__accelopt__check`."""
    last = re.split(r"[.:/]|__", label.strip())[-1]
    return last if last in tools else label.strip()
