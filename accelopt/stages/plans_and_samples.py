"""Developing a kernel by plans: each is drawn, and its samples are made as soon as it is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from accelopt.agents.model_tools import KEPT
from accelopt.agents.proposer import KernelView, PlanDraft
from accelopt.concurrency import contained, run_together
from accelopt.nodes import Job, Node, Plan, Result
from accelopt.script_file_columns import plan_id
from accelopt.stages.samples import (
    ExecutorSettings,
    Workplace,
    carry_out,
    different_samples,
    judge,
    make_sample,
)

if TYPE_CHECKING:
    from accelopt.stages.run import Run


def most_of_plans(run: Run) -> int:
    """The evaluations that developing a kernel can use: what planners try out, and all samples."""
    tries = run.settings.plans * run.proposer.planner.tries
    return tries + run.settings.plans * run.settings.samples * most_of_sample(run)


def most_of_sample(run: Run) -> int:
    """The evaluations that one sample can use: with what its author tries out, and its repairs."""
    return (1 + run.settings.fixer_steps) * (1 + run.proposer.executor.tries)


async def develop(job: Job, view: KernelView, run: Run) -> Result:
    """Plans, drawn concurrently, and the samples of each as soon as it is there."""
    workplace, plans = workplace_of(view, run), range(run.settings.plans)
    if job.limit is not None and job.limit < most_of_plans(run):
        drafts = await drafts_of(view, run)
        nodes = await _within_limit(view, drafts, workplace, run)
        return with_remarks(Result(job, nodes=tuple(nodes)), drafts)

    async def draw(number: int) -> tuple[PlanDraft, list[Node]]:
        draft = await _draft(number, view, run)
        tried = await _tried_out(view, draft, number, workplace)
        if draft.change is None:
            return draft, tried
        return draft, [*await carry_out(view, draft.change, number, workplace), *tried]

    drawn = await run_together([*map(draw, plans), *_rules_pass(job, view, workplace, run)])
    made = Result(job, nodes=tuple(node for _, nodes in drawn for node in nodes))
    return with_remarks(made, [draft for draft, _ in drawn][: len(plans)])


def _rules_pass(
    job: Job, view: KernelView, workplace: Workplace, run: Run
) -> list[Coroutine[Any, Any, tuple[PlanDraft, list[Node]]]]:
    """Beside the plans of a model, the change by rule that promises most: what an expert leaves, a rule
    may still find, and it costs one evaluation. None where the rules plan anyway."""
    offline = run.workshop.offline
    if run.proposer.planner is offline or job.limit is not None:
        return []

    async def work() -> tuple[PlanDraft, list[Node]]:
        planned = offline.plan(view, 0, 1)
        draft = await contained(planned, "planning", lambda said: PlanDraft(None, reason=said))
        if draft.change is None:
            return draft, []
        settings = ExecutorSettings(1, 0)
        place = workplace._replace(executor=offline, settings=settings)
        return draft, await carry_out(view, draft.change, run.settings.plans, place)

    return [work()]


async def _within_limit(
    view: KernelView, drafts: Sequence[PlanDraft], workplace: Workplace, run: Run
) -> list[Node]:
    """The samples of lowest rank until the budget is spent: at a time as many as it surely pays for,
    else one, so that none takes from another and the order of their ends decides nothing."""
    budget, nodes = view.evaluation_budget, list[Node]()
    assert budget is not None
    for draw, draft in enumerate(drafts):
        nodes += await _tried_out(view, draft, draw, workplace)
    ranks = deque(
        (draft.change, draw, sample)
        for draw, draft in enumerate(drafts)
        if draft.change is not None
        for sample in range(different_samples(draft.change, run.settings.samples))
    )
    while ranks and budget.left >= 1:
        many = _at_once(budget.left, most_of_sample(run), len(ranks))
        batch = [ranks.popleft() for _ in range(many)]
        nodes += await run_together(make_sample(view, *rank, workplace) for rank in batch)
    return nodes


def _at_once(left: float, each: int, most: int) -> int:
    """How many things that may cost `each` can go on at a time with `left` to pay for them; at least 1."""
    return max(1, int(min(most, left // each))) if each else most


async def drafts_of(view: KernelView, run: Run) -> list[PlanDraft]:
    """The answers of the planner, at a time as many as the budget surely pays for."""
    drafts: list[PlanDraft] = []
    while len(drafts) < run.settings.plans:
        left = view.evaluation_budget.left - KEPT if view.evaluation_budget else inf
        open_ = run.settings.plans - len(drafts)
        many = _at_once(left, run.proposer.planner.tries, open_)
        begun = len(drafts)
        drafts += await run_together(_draft(begun + number, view, run) for number in range(many))
    return drafts


async def _tried_out(
    view: KernelView, draft: PlanDraft, draw: int, workplace: Workplace
) -> list[Node]:
    """The kernel that a planner tried out and found faster: nothing that was paid for is lost."""
    if draft.best is None:
        return []
    change = draft.change or Plan(sentence="what the planner tried out")
    label = plan_id(draw, workplace.settings.num_samples)
    node = await judge(view.node, change, label, draft.best, workplace)
    if (node.speedup or 0.0) <= 1.0:
        return []
    workplace.told(node)
    return [node]


async def _draft(number: int, view: KernelView, run: Run) -> PlanDraft:
    planned = run.proposer.planner.plan(view, number, run.settings.plans)
    draft = await contained(planned, "planning", lambda said: PlanDraft(None, reason=said))
    run.watcher.planned(view.node.case.case_name, view.iteration, draft)
    return draft


def with_remarks(result: Result, drafts: Sequence[PlanDraft]) -> Result:
    """The result, and why some of the drafts are no plans."""
    return result._replace(
        remarks=tuple(draft.reason for draft in drafts if draft.change is None),
        asked=len(drafts),
        unanswered=tuple(draft.reason for draft in drafts if draft.failed),
    )


def workplace_of(view: KernelView, run: Run) -> Workplace:
    """What making changes to the viewed kernel needs."""
    case, round_ = view.node.case.case_name, view.iteration
    return Workplace(
        run.proposer.executor,
        run.workshop.evaluations,
        ExecutorSettings(run.settings.samples, run.settings.fixer_steps),
        lambda node: run.watcher.sampled(case, round_, node),
        view.evaluation_budget,
    )
