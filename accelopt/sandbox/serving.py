"""What a caller and its child tell each other, and the one loop in which a child answers.

Both sides speak typed messages, one JSON line each.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict

_MOST_CHARACTERS = 20_000


class Message(BaseModel):
    """What one side tells the other; frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Handlers = Mapping[type[Message], Callable[[Any], Message]]


class Raised(Message):
    """What a handler raised: its exception's module and name, text and traceback."""

    kind: str
    message: str
    traceback: str


def serve(requests: BinaryIO, channel: BinaryIO, handlers: Handlers) -> None:
    """Answer requests until the caller is gone. What a handler raises is an answer, too."""
    named = {kind.__name__: (kind, handler) for kind, handler in handlers.items()}
    for line in requests:
        channel.write(json.dumps(_answer(line, named)).encode() + b"\n")
        channel.flush()


def _answer(
    line: bytes, named: Mapping[str, tuple[type[Message], Callable[[Any], Message]]]
) -> dict[str, object]:
    try:
        asked = json.loads(line)
        kind, handler = named[asked["request"]]
        return {"answer": handler(kind.model_validate(asked["fields"])).model_dump(mode="json")}
    except Exception as error:  # the one place where what a handler raises becomes data
        raised = Raised(
            kind=f"{type(error).__module__}.{type(error).__qualname__}",
            message=str(error)[:_MOST_CHARACTERS],
            traceback=traceback.format_exc()[-_MOST_CHARACTERS:],
        )
        return {"raised": raised.model_dump()}
