"""The function tools of planners and executors: they try kernels out, and ask, before they answer."""

from __future__ import annotations

from dataclasses import replace

from accelopt.agents.analysis import Contexts, tools_for
from accelopt.agents.calls import Tool
from accelopt.agents.model_tools import KEPT, CheckedKernel, Toolbox, ToolNote, ToolSession
from accelopt.agents.offline import OfflineProposer
from accelopt.agents.planner import suggestion_list
from accelopt.agents.proposer import KernelView
from accelopt.evaluation import Status
from accelopt.kernels.gpu.compiler_output import Compiles
from accelopt.kernels.language import Language
from accelopt.nodes import Node
from accelopt.stages.evaluations import Evaluations, TimeIsOver
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
        "the time of the kernel you were given if source lines took less of theirs: "
        "`lines 12 14 x 0.5`, or `lines 12 x 0` for nothing",
    ),
    ToolNote("look_up", "name", "what one call of the kernel language does, with its limits"),
    ToolNote("rules", "source", "what rewrites by rule can do to a kernel, with predicted times"),
)


def toolbox_for(evaluations: Evaluations, offline: OfflineProposer, limit: int) -> Toolbox | None:
    """Tools over `evaluations`, at most `limit` calls an answer; None when `limit` is 0."""
    if not limit:
        return None

    def opened(view: KernelView) -> ToolSession:
        kernel_tools = _KernelTools(view, evaluations, offline)
        calls = (
            kernel_tools.check,
            kernel_tools.profile,
            kernel_tools.what_if,
            kernel_tools.look_up,
            kernel_tools.rules,
        )
        tools = [
            Tool(told.name, told.description, told.argument, call)
            for told, call in zip(TOLD, calls, strict=True)
        ]
        kernel_tools.session.tools = tuple(tools)
        return kernel_tools.session

    return Toolbox(opened, limit, TOLD)


async def analysis_tools(view: KernelView, language: Language) -> tuple[Tool, ...]:
    """Functions about the kernel in view: from its PTX and counters, or from the simulated core."""
    if isinstance(language, Compiles):
        return tools_for(Contexts.of_gpu(await language.compiler_output(view.node)))
    return tools_for(Contexts.of_simulation(view))


class _KernelTools:
    """The tools of one conversation about one kernel."""

    def __init__(
        self, view: KernelView, evaluations: Evaluations, offline: OfflineProposer
    ) -> None:
        self.view = view
        self.evaluations = evaluations
        self.language = evaluations.language
        self.offline = offline
        self.session = ToolSession()

    async def check(self, source: str) -> str:
        """The verdict, with the time of a correct kernel."""
        node = await self._judged(source)
        if node is None:
            return NONE_LEFT
        if node.evaluation.status is not Status.CORRECT:
            return (await error_text(node, self.language))[:LONGEST]
        return f"correct, {node.latency:.4g} ms, {node.speedup or 0:.3f} times as fast as the kernel given"

    async def profile(self, source: str) -> str:
        """What limits a kernel; its fault where it is not correct."""
        node = await self._judged(source)
        if node is None:
            return NONE_LEFT
        if node.profile is None:
            return f"not timed. {await error_text(node, self.language)}"[:LONGEST]
        brief = await self.language.brief(node)
        parts = [brief[name] for name in ("limits", "lines", "prices") if brief.get(name)]
        return "\n\n".join(parts or (await self.language.explain(node)).facts)[:LONGEST]

    async def what_if(self, question: str) -> str:
        """The time of the kernel in view if some of its lines took another."""
        return await self.language.what_if(self.view.node, question)

    async def look_up(self, name: str) -> str:
        """Documentation of one name."""
        return self.language.look_up(name, self.view.kernel)

    async def rules(self, source: str) -> str:
        """What rules offer for a kernel."""
        node = replace(self.view.node, source=self._complete(source))
        offered = await self.offline.suggestions(node, MOST_RULES)
        return suggestion_list(offered) or "No rule applies to this kernel."

    def _complete(self, source: str) -> str:
        return self.language.complete(source, self.view.kernel)

    async def _judged(self, source: str) -> Node | None:
        """The kernel with its verdict; None where no evaluation is left for it, or no time."""
        case, completed = self.view.node.case, self._complete(source)
        budget = self.view.evaluation_budget
        if budget and not budget.pay(self.language.evaluation_key(case, completed), KEPT):
            return None
        try:
            evaluation = await self.evaluations.evaluate(case, completed)
        except TimeIsOver:
            return None
        node = Node(case, completed, evaluation, self.view.node)
        if completed not in self.session.sources:
            self.session.checked.append(CheckedKernel(completed, node.latency))
        return node
