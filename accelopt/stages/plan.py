"""Planning: from a kernel to the changes that may make it faster."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.agents.prompts import quote_words
from accelopt.agents.proposer import KernelView, PlanDraft, Plans, Tried
from accelopt.findings import Finding
from accelopt.kernels.language import Language
from accelopt.nodes import Node, Result
from accelopt.published import Experience, PlannerResult, plan_text
from accelopt.search.recall import recall
from accelopt.stages.together import together


async def view_kernel(
    node: Node,
    language: Language,
    *,
    history: Sequence[Result] = (),
    experiences: Sequence[Experience] = (),
    earlier: Sequence[Finding] = (),
    iteration: int = 0,
    goal: float | None = None,
) -> KernelView:
    """What a proposer may know of `node`; `history` are earlier results on any kernel, `earlier` what
    other runs found out."""
    explanation = await language.explain(node)
    diagnosis = await language.diagnose(node)
    worst = diagnosis.bottleneck if diagnosis else None
    developments = [result.development for result in history if result.development]
    return KernelView(
        node=node,
        reference=language.reference(node.case),
        facts=explanation.facts,
        gate=language.gate(node.case),
        tried=tried_on(node, history),
        experiences=tuple(experiences),
        iteration=iteration,
        goal=goal,
        diagnosis=diagnosis,
        known=frozenset(made.key for result in history for made in result.nodes if made.source),
        findings=tuple(told.finding for told in developments if told.finding),
        recalled=recall(
            earlier,
            node.case.problem,
            worst.resource if worst else "",
            worst.methods if worst else (),
        ),
    )


async def view_all(
    nodes: Sequence[Node], language: Language, history: Sequence[Result] = ()
) -> list[KernelView]:
    """What a proposer may know of the kernels of a table, which start from nowhere, in order."""
    fastest = {name: goal([n for n in nodes if n.case.case_name == name]) for name in
               {node.case.case_name for node in nodes}}  # fmt: skip
    return await together(
        view_kernel(node, language, history=history, goal=fastest[node.case.case_name])
        for node in nodes
    )


def goal(nodes: Sequence[Node]) -> float | None:
    """The milliseconds that a change must promise less than: the fastest kernel's.

    Only where profiles are simulated, as predictions are; a device may well disagree with them.
    """
    profiles = [node.profile for node in nodes if node.profile and node.profile.simulated]
    return min((profile.latency for profile in profiles), default=None)


async def draw_plans(
    views: Sequence[KernelView], planner: Plans, breadth: int
) -> list[PlannerResult]:
    """`breadth` plans for each view, drawn concurrently; draws without a plan are left out."""
    drafts = await together(
        planner.plan(view, draw, breadth) for view in views for draw in range(breadth)
    )
    return [
        planner_result(view, drafts[at * breadth : (at + 1) * breadth])
        for at, view in enumerate(views)
    ]


def planner_result(view: KernelView, drafts: Sequence[PlanDraft]) -> PlannerResult:
    """The plans among `drafts`, as the planner's output lists them."""
    drawn = [(draft.change, draft.reasoning) for draft in drafts if draft.change]
    return PlannerResult(
        service_name=view.service_name,
        reasonings=[reasoning for _, reasoning in drawn],
        plans=[plan_text(change) for change, _ in drawn],
    )


def tried_on(node: Node, history: Sequence[Result]) -> tuple[Tried, ...]:
    """Changes already made to this very kernel, each with its best outcome."""
    tried: dict[str, list[Node]] = {}
    for result in history:
        for made in result.nodes:
            if made.change and not made.missing and result.job.node.key == node.key:
                tried.setdefault(made.change.sentence, []).append(made)
    return tuple(Tried(made[0].change, outcome(made)) for made in tried.values() if made[0].change)


def outcome(nodes: Sequence[Node]) -> str:
    """In one sentence, what came of the samples of one plan."""
    speedups = [node.speedup for node in nodes if node.speedup is not None]
    if speedups:
        return f"best of {len(nodes)}: {max(speedups):.3f} times as fast"
    evaluation = nodes[0].evaluation
    text = evaluation.message or evaluation.status.value
    return f"failed {len(nodes)} times: {quote_words(text, 200)}"
