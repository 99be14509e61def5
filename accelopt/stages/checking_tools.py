"""The function tools of planners and executors: they try kernels out, and ask, before they answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from accelopt.agents.budget import EvaluationBudget
from accelopt.agents.calls import Tool
from accelopt.agents.model_tools import KEPT, CheckedKernel, Toolbox, ToolNote, ToolSession
from accelopt.agents.offline import OfflineProposer
from accelopt.agents.planner import suggestion_list
from accelopt.agents.proposer import KernelView, Suggestion
from accelopt.evaluation import Status
from accelopt.nodes import Node
from accelopt.stages.deadline import TimeIsOver
from accelopt.stages.evaluations import Evaluations
from accelopt.stages.failure_text import error_text

TOOLS = 6  # calls for one answer, unless the command line says otherwise
NONE_LEFT = "No evaluation is left for trying kernels out: answer with the one that you trust most."
LONGEST = 4000  # characters of a tool's answer
MOST_RULES = 6
TOLD = (
    ToolNote(
        "check_kernel",
        "source",
        "compiles a complete kernel file and compares it with the reference; says what is wrong, or "
        "its time and how many times as fast it is",
    ),
    ToolNote(
        "profile_kernel",
        "source",
        "what limits a correct kernel, what-ifs, its costly lines and the price of its instructions",
    ),
    ToolNote(
        "what_if",
        "question",
        "the time of the kernel you were given if lines, engines, loads or stores took less of theirs, "
        "one by one and all at once: `lines 12 14 x 0.5; vector x 0.8; loads x 0`",
    ),
    ToolNote("look_up", "name", "what one call of the kernel language does, with its limits"),
    ToolNote("rules", "source", "what rewrites by rule can do to a kernel, with predicted times"),
)


def toolbox_for(evaluations: Evaluations, offline: OfflineProposer, limit: int) -> Toolbox | None:
    """Tools over `evaluations`, at most `limit` calls an answer; None when `limit` is 0."""
    if not limit:
        return None

    def opened(view: KernelView) -> ToolSession:
        tools = KernelTools(view.node, evaluations, offline, view.evaluation_budget)
        calls = (tools.check, tools.profile, tools.what_if, tools.look_up, tools.rules)
        tools.session.tools = tuple(
            Tool(told.name, told.description, told.argument, _cut(call))
            for told, call in zip(TOLD, calls, strict=True)
        )
        return tools.session

    return Toolbox(opened, limit, TOLD)


def _cut(call: Callable[[str], Awaitable[str]]) -> Callable[[str], Awaitable[str]]:
    async def cut(argument: str) -> str:
        return (await call(argument))[:LONGEST]

    return cut


class KernelTools:
    """What can be asked of kernels that are made of `node`. `budget` pays for what is judged, of which it
    keeps some for the answer."""

    def __init__(
        self,
        node: Node,
        evaluations: Evaluations,
        offline: OfflineProposer,
        budget: EvaluationBudget | None = None,
        keep: int = KEPT,
    ) -> None:
        self.node = node
        self.evaluations = evaluations
        self.language = evaluations.language
        self.offline = offline
        self.budget = budget
        self.keep = keep
        self.session = ToolSession()

    async def check(self, source: str) -> str:
        """The verdict, with the time of a correct kernel."""
        node = await self.judged(source)
        if node is None:
            return NONE_LEFT
        if node.evaluation.status is not Status.CORRECT:
            return await error_text(node, self.language)
        but = f"; {node.evaluation.message}" if node.evaluation.message else ""
        return f"correct, {node.latency:.4g} ms, {node.speedup or 0:.3f} times as fast as the kernel given{but}"

    async def profile(self, source: str) -> str:
        """What limits a kernel; its fault where it is not correct."""
        node = await self.judged(source)
        if node is None:
            return NONE_LEFT
        if node.profile is None:
            return f"not timed. {await error_text(node, self.language)}"
        brief = await self.language.account(node)
        shown = ("advice", "limits", "engines", "lines", "prices")
        parts = [brief[name] for name in shown if brief.get(name)]
        return "\n\n".join(parts or (await self.language.explain(node)).facts)

    async def what_if(self, question: str) -> str:
        """The time of the kernel given if some of it took less."""
        return await self.language.what_if(self.node, question)

    async def look_up(self, name: str) -> str:
        """Documentation of one name."""
        return self.language.look_up(name, self.node.source)

    async def rules(self, source: str) -> str:
        """What rules offer for a kernel."""
        return suggestion_list(await self.offered(source)) or "No rule promises a faster kernel."

    async def offered(self, source: str) -> tuple[Suggestion, ...]:
        """The rules' first choices for a kernel, of those that are predicted to be faster than it."""
        node = self.as_node(source)
        now = await self.language.predict(node, node.source)
        return await self.offline.suggestions(node, MOST_RULES, now)

    def as_node(self, source: str) -> Node:
        """The kernel `source` in the place of the one given, not judged."""
        source, node = self.complete(source), self.node
        return replace(node, source=source, change=node.change if source == node.source else None)

    def complete(self, source: str) -> str:
        """The text as a file that runs by itself."""
        return self.language.complete(source, self.node.source)

    async def judged(self, source: str) -> Node | None:
        """The kernel with its verdict; None where no evaluation is left for it, or no time."""
        case, completed = self.node.case, self.complete(source)
        key = self.language.evaluation_key(case, completed)
        if self.budget and not self.budget.pay(key, self.keep):
            return None
        try:
            evaluation = await self.evaluations.evaluate(case, completed)
        except TimeIsOver:
            return None
        node = Node(case, completed, evaluation, self.node)
        if completed not in self.session.sources:
            self.session.checked.append(CheckedKernel(completed, node.latency))
        return node
