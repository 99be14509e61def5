"""The function tools of an executor that tries its kernel out before it answers."""

from __future__ import annotations

from accelopt.agents.calls import Tool
from accelopt.agents.executor import Toolbox
from accelopt.agents.proposer import KernelView
from accelopt.evaluation import Status
from accelopt.nodes import Node
from accelopt.stages.evaluations import Evaluations


def toolbox_for(evaluations: Evaluations, limit: int) -> Toolbox | None:
    """Tools over `evaluations`, at most `limit` calls an answer; None when `limit` is 0."""
    if not limit:
        return None
    language = evaluations.language

    def tools(view: KernelView) -> tuple[Tool, ...]:
        async def check(source: str) -> str:
            evaluation = await evaluations.evaluate(view.node.case, language.complete(source))
            if evaluation.status is Status.CORRECT:
                return "correct"
            return f"{evaluation.status.value}: {evaluation.message}"[:4000]

        async def profile(source: str) -> str:
            completed = language.complete(source)
            evaluation = await evaluations.evaluate(view.node.case, completed)
            if evaluation.profile is None:
                return f"not timed, {evaluation.status.value}: {evaluation.message}"[:4000]
            timed = Node(view.node.case, completed, evaluation, view.node)
            explanation = await language.explain(timed)
            return "\n".join(explanation.facts)

        async def look_up(name: str) -> str:
            return language.look_up(name)

        return (
            Tool(
                "check_kernel",
                "Compile a kernel and compare it with the reference.",
                "source",
                check,
            ),
            Tool(
                "profile_kernel",
                "Time a correct kernel; says where its time goes.",
                "source",
                profile,
            ),
            Tool(
                "look_up",
                "What one name of the kernel language does, with its limits.",
                "name",
                look_up,
            ),
        )

    return Toolbox(tools, limit)
