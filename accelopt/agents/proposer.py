"""What a proposer is asked and what it answers: the one door between the loop and its agents."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from accelopt.evaluation import Profile
from accelopt.published import Candidate, Experience


class Tried(NamedTuple):
    """A plan that was carried out on a kernel before, and in one sentence what came of it."""

    plan: str
    outcome: str


class KernelView(NamedTuple):
    """Everything a proposer may know of one kernel.

    `facts` are sentences of our profiler: the bound, the limiting engine, costly source lines,
    spills. `gate` says how results are judged. `goal` is the best latency so far in milliseconds,
    where predictions and measurements are the same, so that what is predicted to miss it will.
    """

    candidate: Candidate
    reference: str
    kernel: str
    facts: tuple[str, ...] = ()
    gate: str = ""
    tried: tuple[Tried, ...] = ()
    experiences: tuple[Experience, ...] = ()
    iteration: int = 0
    goal: float | None = None

    @property
    def service_name(self) -> str:
        """The candidate's name, unique in a run."""
        return self.candidate.service_name

    @property
    def profile(self) -> Profile | None:
        """The candidate's measured profile."""
        return self.candidate.profile


class PlanDraft(NamedTuple):
    """A plan in words, or None and the reason why there is none.

    `failed` tells a proposer that could not answer from one that has nothing to propose.
    """

    text: str | None
    reasoning: str = ""
    reason: str = ""
    failed: bool = False


class Draft(NamedTuple):
    """Source that claims to carry out a plan, or None and the reason why there is none.

    `plan` says what was really done when that is more than the plan that was asked for.
    """

    source: str | None
    reason: str = ""
    failed: bool = False
    plan: str = ""


class Failure(NamedTuple):
    """A draft that did not pass, with the message of what refused it; `round` counts from 1."""

    source: str | None
    error: str
    round: int


class Pair(NamedTuple):
    """Two verified kernels for one problem, and how many times as fast the second is."""

    label: str
    slow_kernel: str
    fast_kernel: str
    speedup: float
    plan: str = ""
    iteration: int = 0


class Lesson(NamedTuple):
    """What a summarizer says of a pair; no summary where it found nothing to learn."""

    title: str
    summary: str | None
    raw_response: str = ""


class Plans(Protocol):
    """Says what to change. Having no plan is an answer, not an exception."""

    async def plan(self, view: KernelView, draw: int, draws: int) -> PlanDraft:
        """The plan of draw number `draw` out of `draws`."""


class Implements(Protocol):
    """Writes what a plan describes, and repairs it. Having no source is an answer."""

    async def implement(self, view: KernelView, plan: str, draw: int, sample: int) -> Draft:
        """Implementation number `sample` of `plan`, which came from draw number `draw`."""

    async def repair(
        self, view: KernelView, plan: str, draw: int, sample: int, failure: Failure
    ) -> Draft:
        """A mended version of `failure.source`."""


class Summarizes(Protocol):
    """Says what made a kernel faster."""

    async def summarize(self, pair: Pair) -> Lesson:
        """What made the difference between the two kernels of `pair`."""


class Proposer(NamedTuple):
    """The three roles of one run; each may be a model or the offline rules."""

    planner: Plans
    executor: Implements
    summarizer: Summarizes
