"""One JSON object a line over a pair of pipes: all that parent and child ever exchange."""

from __future__ import annotations

import json
import os
from typing import Any

Message = dict[str, Any]


class Channel:
    """The child's end. Requests come in one at a time; every request gets one reply."""

    def __init__(self, reading: int, writing: int) -> None:
        self._in = os.fdopen(reading, "r")
        self._out = os.fdopen(writing, "w")

    def receive(self) -> Message | None:
        """The next request, or None when the parent has gone."""
        line = self._in.readline()
        return json.loads(line) if line else None

    def send(self, message: Message) -> None:
        """Answer the request in hand."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()
