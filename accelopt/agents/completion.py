"""Reading a chat completion from an endpoint that may answer anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

LONGEST_TEXT = 400_000  # characters kept of one answer
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


def read_completion(body: bytes, turn: int = 0) -> dict[str, object]:
    """The chat completion in `body`, with what lenient servers leave out filled in.

    Tool calls get ids that are unique over the turns of a conversation: some servers number them
    from zero each time, and openai-agents takes a repeated id for a repeated call.

    Raises Unusable: not JSON, not a completion, or neither text nor tool calls in it.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        start = body[:200].decode("utf-8", "replace")
        raise Unusable(f"garbled: {len(body)} bytes that are not JSON: {start!r}") from None
    choices = content.get("choices") if isinstance(content, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Unusable(f"no choices in the answer: {str(content)[:200]}")
    usage = _usage(content.get("usage"))
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise Unusable("no message in the answer", {"usage": usage} if usage else None)
    text = _text(message.get("content"))
    kept = {"role": "assistant", "content": text[:LONGEST_TEXT]}
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str):
            kept[name] = message[name][:LONGEST_TEXT]
    calls = _tool_calls(message.get("tool_calls"), turn)
    response: dict[str, object] = {
        "id": str(content.get("id") or "completion"),
        "object": "chat.completion",
        "created": 0,
        "model": str(content.get("model") or ""),
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if calls else _finish(choices[0]),
                "message": {**kept, "tool_calls": calls} if calls else kept,
            }
        ],
    }
    if usage:
        response["usage"] = usage
    if not text.strip() and not calls:
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


def _finish(choice: Mapping[str, object]) -> str:
    reason = choice.get("finish_reason")
    return reason if reason in ("stop", "length", "content_filter") else "stop"


def _usage(usage: object) -> dict[str, int] | None:
    if not isinstance(usage, dict):
        return None
    counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    numbers = [int(count) for count in counts if isinstance(count, (int, float)) and count >= 0]
    if len(numbers) != 2:
        return None
    return {
        "prompt_tokens": numbers[0],
        "completion_tokens": numbers[1],
        "total_tokens": sum(numbers),
    }


def _tool_calls(calls: object, turn: int) -> list[dict[str, object]]:
    if not isinstance(calls, list):
        return []
    kept: list[dict[str, object]] = []
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        kept.append(
            {
                "id": f"call_{turn}_{index}",
                "type": "function",
                "function": {"name": function["name"], "arguments": text},
            }
        )
    return kept
