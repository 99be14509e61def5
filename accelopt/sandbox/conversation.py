"""A child that answers requests: the caller's side. The child's is `serving`. A child's entry is a
function of the payload that returns its handlers:

    class Load(Message):
        path: str

    class Loaded(Message):
        names: tuple[str, ...]

    def handlers(payload):
        candidate = Candidate(payload)
        return {Load: candidate.load}  # of a Load, to a Loaded

    with Conversation("package.module:handlers", payload, policy=..., limits=...) as child:
        child.ask(Load(path="main.py"), Loaded, seconds=60).names
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from accelopt.concurrency import Closing
from accelopt.errors import printable, quoted
from accelopt.sandbox.child import Child, Ending, prepared
from accelopt.sandbox.policy import Limits, Policy
from accelopt.sandbox.serving import Message, Raised
from accelopt.sandbox.starting import Start, spawn

_TICK_SECONDS = 0.1
_ENDING_SECONDS = 10.0  # a driver may take seconds to give up a device after the pipes are closed


Reply = TypeVar("Reply", bound=Message)


class ChildEnded(Exception):
    """The child is gone and gave no answer: the text says how, `output` what it had printed."""

    def __init__(self, ending: Ending, said: str, output: str = "") -> None:
        super().__init__(said)
        self.ending = ending
        self.output = output


class ChildRaised(Exception):
    """A handler raised: `kind` is the exception's module and name. The child goes on."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{kind.rpartition('.')[2]}: {message}")
        self.kind = kind
        self.message = message
        self.traceback = trace


class Conversation(Closing):
    """A child that is asked, one thing at a time, until `close`. Not for several threads at once.

    `limits.seconds` is no limit here: every question has its own. A child that does not answer in
    time, or with something that is no answer, is ended, and every further question raises ChildEnded.
    """

    def __init__(
        self,
        entry: str,
        payload: Mapping[str, object],
        *,
        policy: Policy,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        scratch: Path | None = None,
        threads: int = 1,
        start: Start = spawn,
    ) -> None:
        self._stack = contextlib.ExitStack()
        job, setting = self._stack.enter_context(
            prepared(
                entry,
                payload,
                policy,
                limits,
                environment=environment,
                scratch=scratch,
                threads=threads,
                serves=True,
            )
        )
        try:
            self._child = self._stack.enter_context(Child(job, setting, start))
        except BaseException:
            self._stack.close()
            raise
        self._ended: ChildEnded | None = None

    @property
    def isolation(self) -> tuple[str, ...]:
        """What confines the child; known with its first answer."""
        return self._child.isolation or ()

    def printed(self) -> str:
        """The end of what the child printed, as far as it was read."""
        return self._child.printed()

    def ask(self, request: Message, reply: type[Reply], seconds: float) -> Reply:
        """The child's answer. Raises ChildRaised and ChildEnded."""
        if self._ended is not None:
            raise self._ended
        line = json.dumps({"request": type(request).__name__, "fields": request.model_dump()})
        self._child.outgoing += line.encode() + b"\n"
        answer = self._receive(time.monotonic() + seconds, seconds)
        try:
            said = json.loads(answer)
            if "raised" in said:
                raised = Raised.model_validate(said["raised"])
            else:
                return reply.model_validate(said["answer"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # or ValidationError
            why = f"{len(error.errors())} faults" if isinstance(error, ValidationError) else error
            name = type(request).__name__
            raise self._end(
                Ending.FINISHED, f"it answered {name} with something that is no answer: {why}"
            ) from None
        raise ChildRaised(quoted(raised.kind), quoted(raised.message), printable(raised.traceback))

    def _receive(self, deadline: float, seconds: float) -> bytes:
        child = self._child
        while child.isolation is None or b"\n" not in child.result:
            speaks = child.step(_TICK_SECONDS)
            if child.isolation is not None and b"\n" in child.result:
                break
            if not speaks:
                raise self._end(Ending.FINISHED)
            if (ending := child.overstepped()) is not None:
                raise self._end(ending)
            if time.monotonic() > deadline:
                raise self._end(Ending.TIMEOUT, f"it gave no answer within {seconds:g} s")
        line, _, rest = child.result.partition(b"\n")
        child.result = rest
        return bytes(line)

    def _end(self, ending: Ending, said: str = "") -> ChildEnded:
        """Close the child; the exception that says how it ended, now and whenever it is asked."""
        if ending is Ending.FINISHED and not said:
            self._child.ended_within(_ENDING_SECONDS)
        self._child.close()
        said = said or f"it {ending.words(self._child.exit_code, self._child.limits)}"
        self._ended = ChildEnded(ending, said, self.printed())
        return self._ended

    def close(self) -> None:
        """End the child and everything it started; once is enough."""
        if self._ended is None:
            self._ended = ChildEnded(Ending.CANCELLED, "it was closed")
        self._stack.close()
