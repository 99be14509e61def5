"""One call in a child process, watched to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accelopt.sandbox.child import Child, Ending, prepared
from accelopt.sandbox.policy import Limits, Policy
from accelopt.sandbox.starting import Start, spawn

_TICK_SECONDS = 0.1


@dataclass(frozen=True)
class ChildOutcome:
    """What a child left. `result` is data from an untrusted writer: parse it with care."""

    ending: Ending
    exit_code: int
    result: bytes
    output: str
    isolation: tuple[str, ...]
    seconds: float
    limits: Limits

    @property
    def completed(self) -> bool:
        """True when the entry returned and nothing cut it short."""
        return self.ending is Ending.FINISHED and self.exit_code == 0

    @property
    def words(self) -> str:
        """How it ended, behind "the process"."""
        return self.ending.words(self.exit_code, self.limits)


def run(
    entry: str,
    payload: Mapping[str, object],
    *,
    policy: Policy,
    limits: Limits,
    environment: Mapping[str, str] | None = None,
    scratch: Path | None = None,
    threads: int = 1,
    cancelled: Callable[[], bool] = lambda: False,
    listen: Callable[[bytes], None] = lambda _: None,
    start: Start = spawn,
) -> ChildOutcome:
    """Call `entry` ("module:function", of `(payload, channel)`) in a child process.

    The child runs in `scratch` (a fresh folder, removed afterwards, when not given), the only place
    where it may write besides `policy.writable`. `environment` is added to the few variables that
    pass. `cancelled` is asked several times a second, `listen` is given the result as it comes, and
    `start` is how its process comes to be. Returns when no process of the child is left.
    """
    with prepared(
        entry, payload, policy, limits, environment=environment, scratch=scratch, threads=threads
    ) as (job, setting):
        with Child(job, setting, start) as child:
            ending = _follow(child, cancelled, listen)
        return ChildOutcome(
            ending=ending,
            exit_code=child.exit_code,
            result=bytes(child.result),
            output=child.printed(),
            isolation=child.isolation or (),
            seconds=time.monotonic() - child.started,
            limits=limits,
        )


def _follow(child: Child, cancelled: Callable[[], bool], listen: Callable[[bytes], None]) -> Ending:
    """Until nothing more comes and it has ended, or something forbidden happens."""
    speaks, heard = True, 0
    while speaks or not child.ended_within(_TICK_SECONDS):
        if speaks:
            speaks = child.step(_TICK_SECONDS)
        if child.isolation is not None and len(child.result) > heard:
            listen(bytes(child.result[heard:]))
            heard = len(child.result)
        if (ending := child.overstepped()) is not None:
            return ending
        if child.seconds > child.limits.seconds:
            return Ending.TIMEOUT
        if cancelled():
            return Ending.CANCELLED
    return Ending.FINISHED
