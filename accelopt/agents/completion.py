"""Reading a chat completion from an endpoint that may answer anything."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from accelopt.replies import json_in, unquoted

LONGEST_TEXT = 400_000  # characters of one answer; a real one is a tenth of it
ONLY_REASONING = "only reasoning"  # how the problem of a reply begins that holds no answer
UNREADABLE = "unreadable"  # the key of arguments of a tool call that are broken JSON
TRUNCATED = "truncated"  # how the problem of an answer begins that met the limit of its length
MOST_TOKENS = 1 << 40  # a larger count is none
REASONING = ("reasoning_content", "reasoning")
_TAG = "(?:think|thinking|thought|reasoning)>"
THOUGHT = re.compile(
    rf"\A(?:(?!<{_TAG}).)*</{_TAG}|<{_TAG}.*?(?:</{_TAG}|\Z)", re.DOTALL | re.IGNORECASE
)
"""A section that a model marks as its thoughts; servers leave out the first tag, limits the last."""
UNPRINTABLE = re.compile("[\x00\ud800-\udfff]")  # not in UTF-8, or not in a text file
SPACES = str.maketrans("\u00a0\u202f", "  ", "\ufeff\u200b")  # what editors and pages put into code
SHORTEST_SECRET = 6
CHARACTERS_PER_TOKEN = 4  # where an endpoint does not count tokens


class Unusable(Exception):
    """An answer nothing can be done with; `response` is what could be read of it."""

    def __init__(self, problem: str, response: dict[str, object] | None = None) -> None:
        super().__init__(problem)
        self.response = response


class Tokens(NamedTuple):
    """Token counts of one exchange."""

    input: int
    output: int


def clean(value: Any, secrets: Sequence[str] = ()) -> Any:
    """`value`, as JSON gives it, with all its texts fit to be kept: no lone surrogates, no NUL, plain
    spaces, and `[secret]` in place of each of `secrets` (of some length: a short word is no secret)."""
    if isinstance(value, str):
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                value = value.replace(secret, "[secret]")
        return UNPRINTABLE.sub("\ufffd", value.translate(SPACES))
    if isinstance(value, list):
        return [clean(item, secrets) for item in value]
    if isinstance(value, dict):
        return {clean(key, secrets): clean(item, secrets) for key, item in value.items()}
    return value


def read_completion(
    body: bytes, turn: int = 0, *, tools: bool = True, secrets: Sequence[str] = ()
) -> dict[str, object]:
    """The chat completion in `body`, with what lenient servers leave out filled in.

    Its texts are clean of `secrets`. Without `tools` on offer, calls of some are passed over.

    Tool calls get ids that are unique over the turns of a conversation: some servers number them
    from zero each time, and openai-agents takes a repeated id for a repeated call.

    Of several choices the first that says something counts. Arguments of tool calls become JSON objects,
    for a server reads them once more with the next request.

    Raises Unusable: not JSON, not a completion, cut off, too long, or neither text nor tool calls
    in it.
    """
    try:
        content = clean(json.loads(body), secrets)
    except (ValueError, RecursionError):
        start = clean(body[:200].decode("utf-8", "replace"), secrets)
        raise Unusable(f"garbled: {len(body)} bytes that are not JSON: {start!r}") from None
    choices = content.get("choices") if isinstance(content, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Unusable(f"no choices in the answer: {str(content)[:200]}")
    usage = _usage(content.get("usage"))
    choice = next((one for one in choices if _says_something(one)), choices[0])
    message = choice.get("message")
    if not isinstance(message, dict):
        raise Unusable("no message in the answer", {"usage": usage} if usage else None)
    written = _text(message.get("content"))
    text = THOUGHT.sub("", written)
    kept = {"role": "assistant", "content": unquoted(text[:LONGEST_TEXT])}
    if text != written:
        thoughts = (re.sub(f"</?{_TAG}", "", one, flags=re.I) for one in THOUGHT.findall(written))
        kept[REASONING[0]] = "\n".join(thoughts)[:LONGEST_TEXT]
    for name in REASONING:
        if isinstance(message.get(name), str):
            kept[name] = message[name][:LONGEST_TEXT]
    calls = tool_calls(message.get("tool_calls"), turn) if tools else []
    response: dict[str, object] = {
        "id": str(content.get("id") or "completion"),
        "object": "chat.completion",
        "created": 0,
        "model": str(content.get("model") or ""),
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if calls else _finish(choice),
                "message": {**kept, "tool_calls": calls} if calls else kept,
            }
        ],
    }
    if usage:
        response["usage"] = usage
    if choice.get("finish_reason") == "length":
        tokens = f" of {usage['completion_tokens']} tokens" if usage else ""
        raise Unusable(f"{TRUNCATED}: the answer was cut off at its limit{tokens}", response)
    if longest := _too_long(text, calls):
        raise Unusable(f"too long: {longest:,} characters", response)
    if not text.strip() and not calls:
        thought = sum(len(kept[name]) for name in REASONING if name in kept)
        if thought:
            problem = f"{ONLY_REASONING}: {thought:,} characters of it and no answer"
            raise Unusable(problem, response)
        raise Unusable("empty: neither text nor tool calls in the answer", response)
    return response


def token_counts(response: Mapping[str, object] | None, request: Mapping[str, object]) -> Tokens:
    """Counts from the endpoint, or estimated from the characters where it gives none."""
    usage = (response or {}).get("usage")
    if isinstance(usage, dict):
        return Tokens(int(usage["prompt_tokens"]), int(usage["completion_tokens"]))
    asked = len(json.dumps(request.get("messages", ""), default=str))
    answered = len(json.dumps((response or {}).get("choices", "")))
    return Tokens(asked // CHARACTERS_PER_TOKEN, answered // CHARACTERS_PER_TOKEN)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # content parts
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _says_something(choice: object) -> bool:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return False
    return bool(_text(message.get("content")).strip() or message.get("tool_calls"))


def _finish(choice: Mapping[str, object]) -> str:
    reason = choice.get("finish_reason")
    return reason if reason in ("stop", "length", "content_filter") else "stop"


def _usage(usage: object) -> dict[str, int] | None:
    if not isinstance(usage, dict):
        return None
    counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    numbers = [
        int(count)
        for count in counts
        if isinstance(count, (int, float)) and math.isfinite(count) and 0 <= count < MOST_TOKENS
    ]
    if len(numbers) != 2:
        return None
    return {
        "prompt_tokens": numbers[0],
        "completion_tokens": numbers[1],
        "total_tokens": sum(numbers),
    }


def _too_long(text: str, calls: Sequence[Mapping[str, Any]]) -> int:
    """The length of the longest text when it is more than is kept; else 0."""
    lengths = [len(text), *(len(call["function"]["arguments"]) for call in calls)]
    return max(lengths) if max(lengths) > LONGEST_TEXT else 0


def tool_calls(calls: object, turn: int) -> list[dict[str, Any]]:
    """The calls of tools in an answer that can be read, with ids of their own in turn number `turn`."""
    if not isinstance(calls, list):
        return []
    kept: list[dict[str, Any]] = []
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        kept.append(
            {
                "id": f"call_{turn}_{index}",
                "type": "function",
                "function": {
                    "name": function["name"],
                    "arguments": json.dumps(_arguments(function.get("arguments"))),
                },
            }
        )
    return kept


def _arguments(given: object) -> dict[str, Any]:
    """The arguments of a tool call as an object: models also send the bare text, or JSON with line ends
    in it, or JSON that is cut off."""
    read = given
    if isinstance(given, str):
        bracketed = given.lstrip()[:1] in ("{", "[", "`")
        try:
            read = json.loads(given, strict=False)
        except (ValueError, RecursionError):
            found = json_in(given) if bracketed else given
            read = {UNREADABLE: given} if found is None else found
    if isinstance(read, dict):
        return {str(name): value for name, value in read.items()}
    return {} if read in (None, "") else {"text": read}
