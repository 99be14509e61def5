"""What a proposer is asked and what it answers: the interface between the loop and its agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from accelopt.agents.budget import EvaluationBudget
from accelopt.agents.prompts import quote
from accelopt.evaluation import Bottleneck, Diagnosis, Profile
from accelopt.experience import Attempt, Finding, Reflexion
from accelopt.kernel_source import SourceEdit, edit_of
from accelopt.knob_space import Configuration
from accelopt.nodes import Action, Change, Node, Plan
from accelopt.script_file_columns import Experience

if TYPE_CHECKING:
    from accelopt.agents.bench_agent import Agent
    from accelopt.agents.knob_expert_model import ExpertModel
    from accelopt.agents.lister import Lister

LONGEST_DETAIL = 512  # characters on what a written kernel does

Scheduled = Callable[[Node, str], Awaitable[Action | str | None]]
"""What a reply says of a kernel's schedules: an action, why there is none in a sentence, or nothing."""


async def no_schedule(node: Node, reply: str) -> Action | str | None:
    """Where no kernel has schedules."""
    return None


class TriedChange(NamedTuple):
    """A change that was made to a kernel, or to one `before` it, and in one sentence what came of it."""

    change: Change
    outcome: str
    before: bool = False


class Suggestion(NamedTuple):
    """Something that the rules can do to a kernel, by a name for this view, and the milliseconds
    predicted for it where that is known."""

    name: str
    action: Action
    predicted: float | None


class Relative(NamedTuple):
    """Another kernel of the run, by the name that prompts know it by; `parent` is such a name too."""

    name: str
    node: Node
    parent: str = ""


class KernelView(NamedTuple):
    """Everything a proposer may know of one kernel.

    `facts` are sentences of our profiler: the bound, the limiting engine, costly source lines, spills;
    `diagnosis` is where the time goes, as data; `brief` is all that is known, as parts of a prompt by
    the names of their slots, and `background` what does not depend on this kernel: the machine, the
    language. `gate` says how results are judged. `goal`
    is the best latency so far in milliseconds, where predictions and measurements are the same, so
    that what is predicted to miss it will. `lineage` leads from the baseline to this kernel, `others`
    are good kernels beside that line. `turn` counts the views of a run,
    `evaluation_budget` has the evaluations of whoever views the kernel; None has no end of them.
    `findings` are what this run's workers found out on whatever kernel, the oldest first, `recalled`
    what earlier runs did that bears on this one, the most relevant first. `known` are the keys of the
    kernels that finished rounds made, `methods` the names that kernels of a model went by there.
    `failures` are the edits by rule that no kernel of this problem came of, `closed` the methods by rule
    that failed again and again for one reason.
    """

    node: Node
    reference: str
    facts: tuple[str, ...] = ()
    gate: str = ""
    tried: tuple[TriedChange, ...] = ()
    experiences: tuple[Experience, ...] = ()
    iteration: int = 0
    goal: float | None = None
    diagnosis: Diagnosis | None = None
    findings: tuple[Finding, ...] = ()
    recalled: tuple[Finding, ...] = ()
    known: frozenset[str] = frozenset()
    brief: Mapping[str, str] = {}
    background: Mapping[str, str] = {}
    suggestions: tuple[Suggestion, ...] = ()
    lineage: tuple[Relative, ...] = ()
    others: tuple[Relative, ...] = ()
    turn: int = 0
    methods: tuple[str, ...] = ()
    evaluation_budget: EvaluationBudget | None = None
    failures: frozenset[SourceEdit] = frozenset()
    closed: frozenset[str] = frozenset()

    def fails_again(self, source: str | None) -> bool:
        """Whether a kernel made of this one is what failed before on another: the same lines go and
        come, and what those stand on has not changed."""
        if source is None or not self.failures:
            return False
        made = {edit_of(self.node.source, source, whole) for whole in (False, True)}
        return bool(made & self.failures)

    @property
    def service_name(self) -> str:
        """The kernel's name, unique in a run."""
        return self.node.name

    @property
    def kernel(self) -> str:
        """Its text."""
        return self.node.source

    @property
    def profile(self) -> Profile | None:
        """Its measured profile."""
        return self.node.profile


class PlanDraft(NamedTuple):
    """A change to be made, or None and the reason why there is none. `best` is the fastest correct kernel
    that was tried out on the way.

    `failed` tells a proposer that could not answer from one that has nothing to propose.
    """

    change: Change | None
    reasoning: str = ""
    reason: str = ""
    failed: bool = False
    best: str | None = None


class Draft(NamedTuple):
    """Source that claims to make a change, or None and the reason why there is none.

    `change` says what was really done when that is not the change that was asked for. `checked` are
    the kernels that were tried out on the way, `best` the fastest correct one of them.
    """

    source: str | None
    reason: str = ""
    failed: bool = False
    change: Change | None = None
    checked: tuple[str, ...] = ()
    best: str | None = None


class Failure(NamedTuple):
    """A draft that did not pass, with the message of what refused it; `round` counts from 1."""

    source: str | None
    error: str
    round: int


class SlowFastPair(NamedTuple):
    """Two verified kernels for one problem, as an experience that says nothing yet; what made the one of
    the other, and what limits each of them, in lines."""

    experience: Experience
    plan: str = ""
    iteration: int = 0
    slow_profile: str = ""
    fast_profile: str = ""

    def learned(self, title: str, summary: str | None = None, raw: str = "") -> Experience:
        """The experience with what a summarizer says; no summary where it found nothing to learn."""
        update = {"title": title, "summary": summary, "raw_response": raw}
        return self.experience.model_copy(update=update)


class Plans(Protocol):
    """Says what to change. Having no plan is an answer, not an exception."""

    tries: int
    """How many kernels it may have judged on the way to one answer."""

    async def plan(self, view: KernelView, draw: int, draws: int) -> PlanDraft:
        """The plan of draw number `draw` out of `draws`."""


class Implements(Protocol):
    """Makes a change, and repairs what it made. Having no source is an answer."""

    tries: int
    """How many kernels it may have judged on the way to one answer."""

    async def implement(self, view: KernelView, change: Change, draw: int, sample: int) -> Draft:
        """Implementation number `sample` of `change`, which came from draw number `draw`."""

    async def repair(
        self, view: KernelView, change: Change, draw: int, sample: int, failure: Failure
    ) -> Draft:
        """A mended version of `failure.source`."""


class Summarizes(Protocol):
    """Says what made a kernel faster."""

    async def summarize(self, pair: SlowFastPair) -> Experience:
        """`pair` with what made the difference between its two kernels."""


class Brief(NamedTuple):
    """What a step is asked for: a faster kernel than the one in `view`, by relieving `bottleneck`, the
    one of rank `rank` (from 1) among `bottlenecks`.

    `worker` tells the steps of one round apart. Times are milliseconds; `eager` is infinite where
    there is no such baseline. `methods` are the canonical names of what may relieve the bottleneck.
    """

    view: KernelView
    worker: int
    bottleneck: Bottleneck
    bottlenecks: tuple[Bottleneck, ...]
    rank: int = 1
    best: float | None = None
    eager: float = inf
    methods: tuple[str, ...] = ()


class GeneratedKernel(NamedTuple):
    """A kernel that claims to make `change`, or None and the reason; no change when nothing is left
    to try. `prompt` and `reply` are what passed between us and a model."""

    source: str | None
    change: Change | None = None
    method: str = ""
    reason: str = ""
    failed: bool = False
    prompt: str = ""
    reply: str = ""


class Develops(Protocol):
    """The three questions of one step. Having no answer is an answer, not an exception."""

    async def judge(self, view: KernelView, most: int) -> tuple[Bottleneck, ...]:
        """What limits the kernel, the worst first, at most `most` of distinct resources; none when
        nothing can be said."""

    async def generate(self, brief: Brief) -> GeneratedKernel:
        """A kernel that relieves the bottleneck."""

    async def reflect(
        self, brief: Brief, attempt: Attempt, written: GeneratedKernel
    ) -> Reflexion | None:
        """What the attempt taught; None when the answer could not be read."""


class WrittenKernel(NamedTuple):
    """A kernel that a model wrote, by a method with a name of the model's own, and what it did in words."""

    method: str
    detail: str
    code: str

    def plan(self, method: str) -> Plan:
        """The kernel as a change, by its method's name in the catalog; `Plan.kernel` reads it."""
        detail = " ".join(self.detail.split())[:LONGEST_DETAIL]
        text = f"{method}: {detail}\n\n{quote(self.code, 'python')}\n"
        return Plan(sentence=f"{method}: {detail}", text=text, method=method)


class Listed(NamedTuple):
    """The candidates of one answer, and why there are no others, or none."""

    candidates: tuple[WrittenKernel, ...] = ()
    reason: str = ""


class Proposed(NamedTuple):
    """A configuration, or why there is none."""

    values: Configuration | None
    reason: str = ""


class Proposer(NamedTuple):
    """The roles of one run; each may be a model or the offline rules. The rules develop where there is
    no `developer`, alone say what can be done where there is no `lister`, and set knobs where there is
    no `expert`. Where there is an `agent` it does what planner and executor do for a beam."""

    planner: Plans
    executor: Implements
    summarizer: Summarizes
    developer: Develops | None = None
    lister: Lister | None = None
    expert: ExpertModel | None = None
    agent: Agent | None = None
