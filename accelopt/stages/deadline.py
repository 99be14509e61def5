"""The wall-clock limit of a search: no evaluation is begun that would leave its final checks no time."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from statistics import fmean

FINAL = 2.5
"""What the final checks of a search take, in evaluations of a build, beside one of the start: the best kernel
with everything asked takes 1.3 to 1.5 (measured with Triton's interpreter), and one more confirms it."""


class TimeIsOver(Exception):
    """There is no time for another evaluation; the text says so."""


class Deadline:
    """When a search must have ended, its final checks included: `seconds` from now. A build is begun where
    it and the checks will be done by then, if they take what evaluations took so far."""

    def __init__(self, seconds: float = inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._seconds = seconds
        self._end = clock() + seconds
        self._over = False
        self._took: dict[str, float] = {}  # by key; the start's is the first

    def admit(self) -> None:
        """Raises TimeIsOver where an evaluation must not be begun. The start's may, whatever is left."""
        if not self._took:
            return
        start, *builds = self._took.values()
        needed = start + (1 + FINAL) * fmean(builds or [start])
        self._over |= self.clock() + needed > self._end
        if self._over:
            raise TimeIsOver(f"{self._seconds:.0f} seconds are over but for the final checks")

    def learn(self, key: str, seconds: float) -> None:
        """What an evaluation took, now or when it was made."""
        self._took.setdefault(key, seconds)
