"""Making changes: a sample is written, evaluated the moment it arrives, and repaired."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from accelopt.agents.budget import EvaluationBudget
from accelopt.agents.executor import NO_BLOCK
from accelopt.agents.proposer import Draft, Failure, Implements, KernelView
from accelopt.concurrency import contained, run_together
from accelopt.evaluation import Evaluation, Status
from accelopt.nodes import Chain, Change, Node, Plan
from accelopt.script_file_columns import plan_id
from accelopt.stages.evaluations import Evaluations
from accelopt.stages.failure_text import error_text

NONE_LEFT = "no evaluation is left for this kernel"
NOTHING_FOR_IT = "its author found nothing that it could be carried out on"
REPAIRABLE = frozenset(
    {
        Status.REFUSED,
        Status.COMPILE_ERROR,
        Status.RUN_ERROR,
        Status.WRONG_SHAPE,
        Status.WRONG_DTYPE,
        Status.WRONG_NUMBERS,
        Status.TIMEOUT,
        Status.CRASH,
        Status.MISSING,
    }
)


class ExecutorSettings(NamedTuple):
    """K samples a plan, and up to F repair rounds for each."""

    num_samples: int = 4
    fixer_steps: int = 2


class Workplace(NamedTuple):
    """What making a change needs. `told` hears of every finished sample; `evaluation_budget` pays, where evaluations
    are counted."""

    executor: Implements
    evaluations: Evaluations
    settings: ExecutorSettings
    told: Callable[[Node], None] = lambda _: None
    evaluation_budget: EvaluationBudget | None = None


async def carry_out(
    view: KernelView, change: Change, draw: int, workplace: Workplace, count: int | None = None
) -> list[Node]:
    """So many samples of one change, or those that can differ, made and evaluated concurrently."""
    if count is None:
        count = different_samples(change, workplace.settings.num_samples)
    return await run_together(
        make_sample(view, change, draw, sample, workplace) for sample in range(count)
    )


def different_samples(change: Change, most: int) -> int:
    """The samples of a change that can differ: of one by rule those with fewer of its steps."""
    steps = change.steps if isinstance(change, Chain) else (change,)
    return min(most, len(steps)) if not any(isinstance(s, Plan) for s in steps) else most


async def make_sample(
    view: KernelView, change: Change, draw: int, sample: int, workplace: Workplace
) -> Node:
    """One sample with its verdict: written, judged, and repaired up to `fixer_steps` times, as long as
    an evaluation is left for the repair."""
    executor = workplace.executor
    written = executor.implement(view, change, draw, sample)
    draft = await contained(written, "writing a kernel", lambda said: Draft(None, said))
    label = plan_id(draw, sample)
    made = draft.change or change
    refused = isinstance(change, Plan) and change.optional and draft.reason == NO_BLOCK
    reason = NOTHING_FOR_IT if refused else draft.reason
    node = await judge(view.node, made, label, draft.source, workplace, reason)
    failed = await _tried_out(draft, node, workplace)
    if draft.best is not None:
        node = await _faster(node, draft.best, workplace)
    for number in range(1, 0 if refused else workplace.settings.fixer_steps + 1):
        spent = workplace.evaluation_budget is not None and workplace.evaluation_budget.left < 1
        if node.evaluation.status not in REPAIRABLE or spent:
            break
        error = await error_text(node, workplace.evaluations.language)
        failure = Failure(node.source or None, error, number)
        mended = executor.repair(view, change, draw, sample, failure)
        repaired = await contained(mended, "repairing a kernel", lambda said: Draft(None, said))
        if repaired.source is None and not node.missing:
            break  # the error of the kernel that exists says more than the missing repair
        failed.append(node)
        again = repaired.change or change
        node = await judge(view.node, again, label, repaired.source, workplace, repaired.reason)
        failed += await _tried_out(repaired, node, workplace)
        if repaired.best is not None:
            node = await _faster(node, repaired.best, workplace)
    node = replace(node, failed=tuple(failed))
    workplace.told(node)
    return node


async def judge(
    parent: Node,
    change: Change,
    label: str,
    source: str | None,
    workplace: Workplace,
    reason: str = "",
) -> Node:
    """The kernel that `source` is, with its verdict; without one, the reason why."""
    if source is None:
        evaluation = Evaluation(status=Status.MISSING, message=reason)
        return Node(parent.case, "", evaluation, parent, change, label)
    language = workplace.evaluations.language
    source = language.complete(source, parent.source)
    if workplace.evaluation_budget and not workplace.evaluation_budget.pay(
        language.evaluation_key(parent.case, source)
    ):
        evaluation = Evaluation(status=Status.MISSING, message=NONE_LEFT)
        return Node(parent.case, "", evaluation, parent, change, label)
    evaluation = await workplace.evaluations.evaluate(parent.case, source)
    return Node(parent.case, source, evaluation, parent, change, label)


async def _tried_out(draft: Draft, final: Node, workplace: Workplace) -> list[Node]:
    """The kernels that were checked on the way to the final one, with the verdicts they got."""
    language = workplace.evaluations.language
    assert final.parent is not None
    parent, label = final.parent, final.label
    distinct = dict.fromkeys(language.complete(made, parent.source) for made in draft.checked)
    distinct.pop(final.source, None)
    change = final.change or Plan(sentence="tried out")
    return [await judge(parent, change, label, source, workplace) for source in distinct]


async def _faster(final: Node, best: str, workplace: Workplace) -> Node:
    """The final kernel, or the best that was checked on the way where that is faster."""
    assert final.parent is not None and final.change is not None
    checked = await judge(final.parent, final.change, final.label, best, workplace)
    return min(final, checked, key=lambda node: inf if node.latency is None else node.latency)


async def carry_out_all(
    views: Sequence[KernelView],
    plans: Mapping[str, Sequence[Change]],
    workplace: Workplace,
    verifications: Evaluations,
) -> list[list[Node]]:
    """Every sample of every plan of every viewed kernel, all of them concurrently, as the published
    tables have them; `plans` by service name.

    The fastest of each kernel passes `verifications` too. A kernel without plans gets one sample
    without a body, so that later stages still know of it.
    """

    async def of_kernel(view: KernelView) -> list[Node]:
        changes = plans.get(view.service_name, [])
        made = await run_together(
            carry_out(view, change, i, workplace, workplace.settings.num_samples)
            for i, change in enumerate(changes)
        )
        nodes = [node for samples in made for node in samples]
        return await verify_fastest(nodes or [_unplanned(view.node)], verifications)

    return await run_together(of_kernel(view) for view in views)


async def verify_fastest(nodes: Sequence[Node], verifications: Evaluations) -> list[Node]:
    """The nodes, where the fastest one that is faster than its parent has passed everything.

    Screening may let a wrong kernel through; it must not come out first. Those in front that fail
    get the verdict they failed with.
    """
    checked = list(nodes)
    faster = [at for at, node in enumerate(nodes) if (node.speedup or 0.0) > 1.0]
    for at in sorted(faster, key=lambda at: nodes[at].latency or 0.0):
        evaluation = await verifications.evaluate(nodes[at].case, nodes[at].source)
        if evaluation.status is Status.CORRECT:
            break
        checked[at] = replace(nodes[at], evaluation=evaluation)
    return checked


def _unplanned(parent: Node) -> Node:
    """What stands for a kernel for which nothing was planned."""
    reason = "no plan was drawn for this kernel"
    evaluation = Evaluation(status=Status.MISSING, message=reason)
    return Node(parent.case, "", evaluation, parent, None, plan_id(0, 0))
