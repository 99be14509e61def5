"""Planning: from a kernel to the changes that may make it faster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import inf

from accelopt.agents.offline import OfflineProposer
from accelopt.agents.prompts import quote_words
from accelopt.agents.proposer import KernelView, PlanDraft, Plans, Relative, TriedChange
from accelopt.concurrency import in_thread, run_together
from accelopt.evaluation import NO_VERDICTS
from accelopt.experience import Finding, recall
from accelopt.kernel_source import SourceEdit, edit_of
from accelopt.kernels.language import Explanation, Language
from accelopt.nodes import Chain, Node, Plan, Result, Rewrite, method_of
from accelopt.script_file_columns import Experience, PlannerResult, plan_text

MOST_SUGGESTED = 5  # changes by rule that a planner is told of
MOST_BESIDE = 8  # changes that came to nothing on kernels beside a line
MOST_OTHERS = 3  # kernels beside a line, from which something may be taken over
GAINED = 1.02  # over its parent, below which a kernel has nothing to take over
CLOSES = 2  # kernels that failed for one reason close a method for the run
NEAR = 1.5  # times a kernel's time, beyond which another is no good example


async def view_kernel(
    node: Node,
    language: Language,
    *,
    history: Sequence[Result] = (),
    told: Sequence[Result] = (),
    experiences: Sequence[Experience] = (),
    earlier: Sequence[Finding] = (),
    iteration: int = 0,
    goal: float | None = None,
    turn: int = 0,
    rules: OfflineProposer | None = None,
    looked_into: bool = True,
) -> KernelView:
    """What a proposer may know of `node`; `history` are earlier results on any kernel, `earlier` what
    other runs found out. With `rules`, for a model that reads it, also what takes longer: all figures,
    what the rules would do, and what was tried by results `told` since. A kernel that is not `looked_into` has no figures at all."""
    explanation = await language.explain(node) if looked_into else Explanation()
    diagnosis = await language.diagnose(node) if looked_into else None
    worst = diagnosis.bottleneck if diagnosis else None
    developments = [result.development for result in history if result.development]
    view = KernelView(
        node=node,
        reference=language.reference(node.case),
        facts=explanation.facts,
        gate=await in_thread(language.gate, node.case),
        tried=tried_on(node, history),
        failures=frozenset(_failures(node, history)),
        closed=frozenset(_closed(history)),
        experiences=tuple(experiences),
        iteration=iteration,
        goal=goal,
        diagnosis=diagnosis,
        methods=_methods_of_models(history),
        known=frozenset(made.key for result in history for made in result.nodes if made.source),
        findings=tuple(told.finding for told in developments if told.finding),
        recalled=recall(
            earlier,
            node.case.problem,
            worst.resource if worst else "",
            worst.methods if worst else (),
        ),
        background=language.background(node.source),
        turn=turn,
    )
    if rules is None:
        return view
    history = (*history, *told)
    family_known = family(node, history)
    line = {id(one) for one in node.lineage()}
    return view._replace(
        tried=(*tried_on(node, history), *tried_beside(node, history)),
        brief=await language.brief(node),
        suggestions=await rules.suggestions(node, MOST_SUGGESTED),
        lineage=tuple(one for one in family_known if id(one.node) in line),
        others=good_others(node, [one for one in family_known if id(one.node) not in line]),
    )


def _closed(history: Sequence[Result]) -> list[str]:
    """The methods by rule of which `CLOSES` kernels failed for one reason, numbers and addresses aside."""
    failed: dict[tuple[str, str, str], set[str]] = {}
    for made in (made for result in history for made in result.nodes):
        verdict = made.evaluation
        judged = made.latency is None and not made.missing and verdict.status not in NO_VERDICTS
        if judged and isinstance(made.change, (Rewrite, Chain)):
            reason = re.sub(r"\w*\d\w*", "", verdict.message)
            failed.setdefault((method_of(made.change), verdict.status, reason), set()).add(made.key)
    return [method for (method, _, _), kernels in failed.items() if len(kernels) >= CLOSES]


def _methods_of_models(history: Sequence[Result]) -> tuple[str, ...]:
    actions = (action for result in history for action in result.actions)
    plans = (action.change for action in actions if isinstance(action.change, Plan))
    return tuple(dict.fromkeys(plan.method for plan in plans if plan.method))


def family(node: Node, history: Sequence[Result]) -> list[Relative]:
    """The kernels of a run by names that stay: K0 for the baseline, then every correct one in the order
    in which they were told, and `node`'s line where the history does not have it."""
    start = [*node.lineage()][-1]
    told = [made for result in history for made in result.nodes if made.latency is not None]
    line = [*node.lineage()][::-1]
    nodes: dict[int, Node] = {id(one): one for one in (start, *told, *line)}
    names = {id(one): f"K{number}" for number, one in enumerate(nodes.values())}
    return [
        Relative(names[id(one)], one, names.get(id(one.parent), "") if one.parent else "")
        for one in nodes.values()
    ]


def good_others(node: Node, others: Sequence[Relative]) -> tuple[Relative, ...]:
    """Of the kernels beside a line, those that are faster than what they came from, and not far behind
    `node`, the fastest first; kernels of equal text once."""
    distinct = {one.node.key: one for one in reversed(others) if one.node.key != node.key}
    good = [
        one
        for one in distinct.values()
        if (one.node.speedup or 0.0) >= GAINED
        and (one.node.latency or inf) <= NEAR * (node.latency or 0.0)
    ]
    return tuple(sorted(good, key=lambda one: one.node.latency or inf)[:MOST_OTHERS])


async def view_all(
    nodes: Sequence[Node],
    language: Language,
    history: Sequence[Result] = (),
    rules: OfflineProposer | None = None,
) -> list[KernelView]:
    """What a proposer may know of the kernels of a table, which start from nowhere, in order."""
    fastest = {name: goal([n for n in nodes if n.case.case_name == name]) for name in
               {node.case.case_name for node in nodes}}  # fmt: skip
    return await run_together(
        view_kernel(
            node,
            language,
            history=history,
            goal=fastest[node.case.case_name],
            turn=len(history) + number,
            rules=rules,
        )
        for number, node in enumerate(nodes)
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
    drafts = await run_together(
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


def tried_on(node: Node, history: Sequence[Result]) -> tuple[TriedChange, ...]:
    """Changes already made to this very kernel, each with its best outcome, told apart by their keys;
    then those made to the kernels before it that led nowhere."""
    line = {one.key: generation for generation, one in enumerate(node.lineage())}
    steps = {id(one) for one in node.lineage()}
    tried: dict[tuple[int, str], list[Node]] = {}
    for result in history:
        generation = line.get(result.job.node.key)
        for made in result.nodes:
            if generation is None or made.change is None or made.missing or id(made) in steps:
                continue
            if generation == 0 or (made.speedup or 0.0) <= 1.0:
                tried.setdefault((generation, made.change.key), []).append(made)
    rows = sorted(tried.items(), key=lambda item: item[0][0])
    return tuple(
        TriedChange(
            change,
            outcome(made) + (" (on a kernel before this one)" if generation else ""),
            before=generation > 0,
        )
        for (generation, _), made in rows
        if (change := made[0].change) is not None
    )


def tried_beside(node: Node, history: Sequence[Result]) -> tuple[TriedChange, ...]:
    """What failed or lost on kernels of the same problem beside a line, the latest first: on siblings
    and cousins."""
    line, told = {one.key for one in node.lineage()}, dict[str, TriedChange]()
    for result in reversed(history):
        parent = result.job.node
        if parent.key in line or parent.case.case_name != node.case.case_name:
            continue
        for made in result.nodes:
            if made.change is not None and not made.missing and (made.speedup or 0.0) <= 1.0:
                said = f"{outcome([made])} (on a kernel beside this one)"
                told.setdefault(made.change.key, TriedChange(made.change, said, before=True))
    return tuple(told.values())[:MOST_BESIDE]


OF_THE_WHOLE = ("SBUF", "PSUM")
"""What a failure names that every part of a kernel takes some of."""


def _failures(node: Node, history: Sequence[Result]) -> Iterator[SourceEdit]:
    """The edits by rule that failed on kernels of this problem."""
    for made in (made for result in history for made in result.nodes):
        verdict, before = made.evaluation, made.parent
        by_rule = made.change is not None and not isinstance(made.change, Plan)
        same = by_rule and before is not None and made.case.case_name == node.case.case_name
        if same and made.latency is None and made.source and verdict.status not in NO_VERDICTS:
            assert before is not None
            whole = any(name in verdict.message for name in OF_THE_WHOLE)
            yield edit_of(before.source, made.source, whole)


def outcome(nodes: Sequence[Node]) -> str:
    """In one sentence, what came of the samples of one plan."""
    speedups = [node.speedup for node in nodes if node.speedup is not None]
    if speedups:
        return f"best of {len(nodes)}: {max(speedups):.3f} times as fast"
    evaluation = nodes[0].evaluation
    text = evaluation.message or evaluation.status.value
    return f"failed {len(nodes)} times: {quote_words(text, 200)}"
