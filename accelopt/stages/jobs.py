"""Doing one job of a strategy: listing what can be done, one change, or plans and their samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from importlib import import_module
from math import inf
from typing import Any, NamedTuple

from accelopt.agents.budget import Purse
from accelopt.agents.candidates import code_of
from accelopt.agents.executor import UNANSWERED
from accelopt.agents.proposer import Configures, KernelView, PlanDraft
from accelopt.errors import AcceloptError
from accelopt.evaluation import Diagnosis
from accelopt.findings import Finding
from accelopt.kernels.language import Configured
from accelopt.kernels.methods import methods_of, what_it_does
from accelopt.nodes import (
    CANDIDATES,
    METHODS_ALONE,
    Action,
    Job,
    KnobSetting,
    Node,
    Plan,
    Result,
    Want,
)
from accelopt.published import Experience, plan_id
from accelopt.search.graph import EXPECTED, LITTLE
from accelopt.search.methods import Learned
from accelopt.space import sentence
from accelopt.stages.candidates import list_candidates
from accelopt.stages.execute import ExecutorSettings, Workplace, carry_out, judge, make_sample
from accelopt.stages.plan import view_kernel
from accelopt.stages.run import Run
from accelopt.stages.together import together
from accelopt.stages.toolbox import KEPT
from accelopt.store import content_key

KIND = "result"
WORKFLOWS = {"machine": "accelopt.fsm.worker.worker_fsm:develop"}
"""Who develops a kernel, besides `plans`, by the name in a job."""


FAILED_BEFORE = "the same edit failed before, on a kernel that was the same there"

Work = Callable[[Job, KernelView, Run], Awaitable[Result]]


class Knowledge(NamedTuple):
    """What finished rounds left for the jobs that are asked for next, and `earlier` runs; `learned` is
    what methods brought in other searches."""

    results: tuple[Result, ...] = ()
    experiences: tuple[Experience, ...] = ()
    earlier: tuple[Finding, ...] = ()
    learned: Learned = Learned()

    def with_more(self, experiences: Sequence[Experience], earlier: Sequence[Finding]) -> Knowledge:
        """The same, and what else is known from elsewhere."""
        return self._replace(
            experiences=(*self.experiences, *experiences), earlier=(*self.earlier, *earlier)
        )


NOTHING_KNOWN = Knowledge()


async def perform(
    job: Job, run: Run, knowledge: Knowledge, judged: frozenset[str], work: Work | None = None
) -> Result:
    """What comes of `job`; from the journal when its round was finished before.

    `judged` are the evaluations that were paid for when the job began. `work` does the job in place
    of who does such jobs.
    """
    kept = run.workshop.journal.find(KIND, _key(job, run))
    if kept is not None:
        result = Result.of(job, kept)
        for node in result.nodes:
            run.watcher.sampled(node.case.case_name, job.round, node)
        return result
    purse = Purse(job.limit, judged)
    view = (await _view(job, run, knowledge))._replace(purse=purse)
    result = await (work or _work_on(job))(job, view, run)
    told = dict.fromkeys([*_judged(result.nodes, run), *sorted(purse.bought)])
    return result._replace(judged=tuple(told))


def _work_on(job: Job) -> Work:
    if job.want is Want.DEVELOP and job.workflow in WORKFLOWS:
        module, _, name = WORKFLOWS[job.workflow].partition(":")
        work: Work = getattr(import_module(module), name)
        return work
    return {
        Want.SPACE: _space,
        Want.ACTIONS: _actions,
        Want.BUILD: _build,
        Want.DEVELOP: _develop,
    }[job.want]


def keep(results: Sequence[Result], run: Run) -> None:
    """Put the results of a finished round into the journal, failed calls included."""
    journal = run.workshop.journal
    for result in results:
        if journal.find(KIND, _key(result.job, run)) is None:
            journal.append(KIND, _key(result.job, run), result.record())


def most_of(job: Job, run: Run) -> int:
    """The evaluations that a job can use."""
    attempts = 1 + run.settings.fixer_steps
    tries = run.settings.plans * run.proposer.planner.tries
    if job.want is Want.SPACE:
        return 0
    if job.want is Want.ACTIONS:
        return tries + KEPT if tries and job.focus not in (METHODS_ALONE, CANDIDATES) else 0
    if job.want is Want.BUILD:
        return 1 if job.action is not None and _made_already(job.action) else _most_of_sample(run)
    if job.workflow in WORKFLOWS:
        return attempts
    return tries + run.settings.plans * run.settings.samples * _most_of_sample(run)


def _most_of_sample(run: Run) -> int:
    """The evaluations that one sample can use: with what its author tries out, and its repairs."""
    return (1 + run.settings.fixer_steps) * (1 + run.proposer.executor.tries)


def refuse_silence(results: Sequence[Result]) -> None:
    """An endpoint that answered nothing at all is a sentence for the user, not a result."""
    asked = sum(result.asked for result in results)
    failed = [reason for result in results for reason in result.unanswered]
    if asked and len(failed) == asked:
        raise AcceloptError(f"the model answered none of {asked} calls: {failed[-1]}")
    nodes = [node for result in results for node in result.nodes]
    if nodes and all(node.evaluation.message.startswith(UNANSWERED) for node in nodes):
        raise AcceloptError(
            f"the executor's model answered none of {len(nodes)} calls: "
            f"{nodes[-1].evaluation.message}"
        )


def _key(job: Job, run: Run) -> str:
    """Equal when the same is asked again and would be judged by the same code."""
    language = run.workshop.language
    return content_key(
        f"{job.number}/{job.round}/{job.want.value}/{job.limit}/{job.node.name}/{job.focus}"
        f"/{job.workflow}",
        job.action.model_dump_json() if job.action else "",
        language.evaluation_key(job.node.case, job.node.source),
    )


async def _view(job: Job, run: Run, knowledge: Knowledge) -> KernelView:
    return await view_kernel(
        job.node,
        run.workshop.language,
        history=knowledge.results,
        experiences=knowledge.experiences,
        earlier=knowledge.earlier,
        iteration=job.round,
        goal=job.goal,
        turn=job.number,
        rules=run.workshop.offline if _is_read(job, run) else None,
        looked_into=job.action is None or not _made_already(job.action),
    )


def _is_read(job: Job, run: Run) -> bool:
    """Whether a model will read the view of the job's kernel."""
    offline = run.workshop.offline
    by_rule = run.proposer.planner is offline and run.proposer.executor is offline
    planned = job.action is None or isinstance(job.action.change, Plan)
    return not by_rule and job.want is not Want.SPACE and planned


async def _space(job: Job, view: KernelView, run: Run) -> Result:
    """The knobs of the kernel."""
    space = await run.workshop.language.space(job.node)
    return Result(job, diagnosis=view.diagnosis, space=space)


async def _actions(job: Job, view: KernelView, run: Run) -> Result:
    """What the language offers, and the plans of a model."""
    found = await run.workshop.offline.offered(job.node, job.focus)
    offered = [
        action
        for action in found
        if expected_of(action) >= run.settings.least_gain and not view.fails_again(action.source)
    ]
    diagnosis = view.diagnosis
    if run.proposer.planner is run.workshop.offline:
        return Result(job, tuple(offered), diagnosis=diagnosis)
    if job.focus == CANDIDATES and run.proposer.lists is not None:
        return await list_candidates(job, view, run, offered)
    if job.focus in (METHODS_ALONE, CANDIDATES) and diagnosis is not None:
        named = by_method(run.workshop.language.name, offered, diagnosis)
        return Result(job, (*offered, *named), diagnosis=diagnosis)
    drafts = await _drafts(view, run)
    plans = [Action(change=d.change, method="plan") for d in drafts if d.change is not None]
    return _with_remarks(Result(job, (*plans, *offered), diagnosis=diagnosis), drafts)


def expected_of(action: Action) -> float:
    """The share of the time that an action may save: by its own promise, or by its method's."""
    return max(action.promise, EXPECTED.get(action.method, LITTLE))


def by_method(language: str, offered: Sequence[Action], diagnosis: Diagnosis) -> list[Action]:
    """An action for every method that relieves what limits a kernel and that no rule offers on it: a
    plan that allows an executor this one method."""
    limited = diagnosis.bottleneck
    if limited is None:
        return []
    why = f"It must relieve {limited.resource}: {limited.reason}."
    known, methods = {action.method for action in offered}, methods_of(language)
    return [
        Action(
            change=Plan(
                sentence=f"Use one method and no other, {name}: {what_it_does(name, language)} {why}"
            ),
            method=name,
            touches=methods[name].touches,
        )
        for name in limited.methods
        if name in methods and name not in known and not methods[name].of_schedules
    ]


async def _build(job: Job, view: KernelView, run: Run) -> Result:
    """One action: its own source, or the executor's, with repairs as far as the limit goes."""
    assert job.action is not None
    change, workplace = job.action.change, _workplace(view, run)
    if isinstance(change, KnobSetting) and job.trials.belief and run.proposer.expert is not None:
        return await _set_by_expert(run.proposer.expert, job, view, run)
    if isinstance(change, Plan) and not _made_already(job.action):
        return Result(job, nodes=(await make_sample(view, change, job.number, 0, workplace),))
    source, reason = await _source_of(job.action, job.node, run)
    if not isinstance(change, KnobSetting) and view.fails_again(source):
        source, reason = None, FAILED_BEFORE
    node = await judge(job.node, change, plan_id(job.number, 0), source, workplace, reason)
    workplace.told(node)
    return Result(job, nodes=(node,))


async def _set_by_expert(expert: Configures, job: Job, view: KernelView, run: Run) -> Result:
    """The knobs as the model of an expert sets them; a reply without a configuration is a remark."""
    language, workplace = run.workshop.language, _workplace(view, run)
    space = await language.space(job.node)
    assert space is not None
    found = await expert.propose(job, space)
    if found.values is None:
        silent = (found.reason,) if found.failed else ()
        return Result(job, remarks=(found.reason,), asked=1, unanswered=silent)
    change = KnobSetting(values=found.values, sentence=sentence(found.values))
    made = await language.configure(job.node, found.values)
    label = plan_id(job.number, 0)
    node = await judge(job.node, change, label, made.source, workplace, made.reason)
    workplace.told(node)
    return Result(job, nodes=(node,), asked=1)


def _made_already(action: Action) -> bool:
    """Whether nobody needs to write its kernel: a rule makes it, or a model did."""
    return not isinstance(action.change, Plan) or bool(action.key)


async def _source_of(action: Action, node: Node, run: Run) -> Configured:
    """The kernel that an action makes, without a model; None and the reason where there is none."""
    if isinstance(action.change, KnobSetting):
        return await run.workshop.language.configure(node, action.change.values)
    if isinstance(action.change, Plan):
        return Configured(code_of(action.change), "the plan has no kernel")
    source = action.source or await run.workshop.offline.source_of(node, action)
    return Configured(source, "the rules do not offer this change any more")


async def _develop(job: Job, view: KernelView, run: Run) -> Result:
    """Plans, drawn concurrently, and the samples of each as soon as it is there."""
    workplace, plans = _workplace(view, run), range(run.settings.plans)
    if job.limit is not None and job.limit < most_of(job, run):
        drafts = await _drafts(view, run)
        nodes = await _within_limit(view, drafts, workplace, run)
        return _with_remarks(Result(job, nodes=tuple(nodes)), drafts)

    async def draw(number: int) -> tuple[PlanDraft, list[Node]]:
        draft = await _draft(number, view, run)
        tried = await _tried_out(view, draft, number, workplace)
        if draft.change is None:
            return draft, tried
        return draft, [*await carry_out(view, draft.change, number, workplace), *tried]

    drawn = await together([*map(draw, plans), *_rules_pass(job, view, workplace, run)])
    made = Result(job, nodes=tuple(node for _, nodes in drawn for node in nodes))
    return _with_remarks(made, [draft for draft, _ in drawn][: len(plans)])


def _rules_pass(
    job: Job, view: KernelView, workplace: Workplace, run: Run
) -> list[Coroutine[Any, Any, tuple[PlanDraft, list[Node]]]]:
    """Beside the plans of a model, the change by rule that promises most: what an expert leaves, a rule
    may still find, and it costs one evaluation. None where the rules plan anyway."""
    offline = run.workshop.offline
    if run.proposer.planner is offline or job.limit is not None:
        return []

    async def work() -> tuple[PlanDraft, list[Node]]:
        draft = await offline.plan(view, 0, 1)
        if draft.change is None:
            return draft, []
        settings = ExecutorSettings(1, 0)
        place = workplace._replace(executor=offline, settings=settings)
        return draft, await carry_out(view, draft.change, run.settings.plans, place)

    return [work()]


async def _within_limit(
    view: KernelView, drafts: Sequence[PlanDraft], workplace: Workplace, run: Run
) -> list[Node]:
    """The samples of lowest rank until the purse is empty: at a time as many as it surely pays for,
    else one, so that none takes from another and the order of their ends decides nothing."""
    purse, nodes = view.purse, list[Node]()
    assert purse is not None
    for draw, draft in enumerate(drafts):
        nodes += await _tried_out(view, draft, draw, workplace)
    ranks = deque(
        (draft.change, draw, sample)
        for draw, draft in enumerate(drafts)
        for sample in range(run.settings.samples)
        if draft.change is not None
    )
    while ranks and purse.left >= 1:
        many = _at_once(purse.left, _most_of_sample(run), len(ranks))
        batch = [ranks.popleft() for _ in range(many)]
        nodes += await together(make_sample(view, *rank, workplace) for rank in batch)
    return nodes


def _at_once(left: float, each: int, most: int) -> int:
    """How many things that may cost `each` can go on at a time with `left` to pay for them; at least 1."""
    return max(1, int(min(most, left // each))) if each else most


async def _drafts(view: KernelView, run: Run) -> list[PlanDraft]:
    """The answers of the planner, at a time as many as the purse surely pays for."""
    drafts: list[PlanDraft] = []
    while len(drafts) < run.settings.plans:
        left = view.purse.left - KEPT if view.purse else inf
        open_ = run.settings.plans - len(drafts)
        many = _at_once(left, run.proposer.planner.tries, open_)
        begun = len(drafts)
        drafts += await together(_draft(begun + number, view, run) for number in range(many))
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
    draft = await run.proposer.planner.plan(view, number, run.settings.plans)
    run.watcher.planned(view.node.case.case_name, view.iteration, draft)
    return draft


def _with_remarks(result: Result, drafts: Sequence[PlanDraft]) -> Result:
    return result._replace(
        remarks=tuple(draft.reason for draft in drafts if draft.change is None),
        asked=len(drafts),
        unanswered=tuple(draft.reason for draft in drafts if draft.failed),
    )


def _workplace(view: KernelView, run: Run) -> Workplace:
    case, round_ = view.node.case.case_name, view.iteration
    return Workplace(
        run.proposer.executor,
        run.workshop.evaluations,
        ExecutorSettings(run.settings.samples, run.settings.fixer_steps),
        lambda node: run.watcher.sampled(case, round_, node),
        view.purse,
    )


def _judged(nodes: Iterable[Node], run: Run) -> Iterator[str]:
    """The evaluations that were asked for, by rank, repaired attempts first."""
    for node in nodes:
        for attempt in (*node.failed, node):
            if not attempt.missing:
                yield run.workshop.language.evaluation_key(attempt.case, attempt.source)
