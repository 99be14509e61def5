"""Doing one job of a strategy: listing what can be done, one change, or a workflow of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

from accelopt.agents.budget import EvaluationBudget
from accelopt.agents.calls import UNANSWERED
from accelopt.agents.knob_expert_model import ExpertModel
from accelopt.agents.model_tools import KEPT
from accelopt.agents.proposer import KernelView, Proposer
from accelopt.evaluation import Diagnosis
from accelopt.experience import Finding
from accelopt.kernel_source import fingerprint
from accelopt.kernels.language import Configured
from accelopt.kernels.moves import methods_of, what_it_does
from accelopt.knob_space import sentence
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
from accelopt.script_file_columns import Experience, plan_id
from accelopt.search.method_catalog import LabelledStep, Learned
from accelopt.search.search_graph import EXPECTED, LITTLE
from accelopt.stages.experience import catalog_of
from accelopt.stages.planning import view_kernel
from accelopt.stages.plans_and_samples import (
    develop,
    drafts_of,
    most_of_plans,
    most_of_sample,
    with_remarks,
    workplace_of,
)
from accelopt.stages.run import Run
from accelopt.stages.samples import judge, make_sample
from accelopt.store import content_key


async def list_candidates(
    job: Job, view: KernelView, run: Run, offered: Sequence[Action]
) -> Result:
    """What a model lists and what the rules have `offered`; the rules' alone where it does not answer."""
    lister, catalog = run.proposer.lister, catalog_of(run.workshop, job.node.case)
    assert lister is not None
    for name in view.methods:
        catalog.add(name)
    language = run.workshop.language
    kinds = methods_of(language.name)
    names = {
        name: what_it_does(name, language.name) if name in kinds else "" for name in catalog.names
    }
    found = await lister.candidates(view, run.settings.plans, names)
    said = await lister.relabel(view, names, found.candidates) if found.candidates else ""
    named = catalog.relabel(
        [LabelledStep(one.method, one.detail) for one in found.candidates], said
    )
    complete = language.complete
    written = [
        Action(
            change=one.plan(method),
            method=method,
            touches=kinds[method].touches if method in kinds else (),
            key=fingerprint(complete(one.code)),
        )
        for one, (method, _) in zip(found.candidates, named, strict=True)
        if method
    ]
    return Result(
        job,
        (*written, *offered),
        diagnosis=view.diagnosis,
        remarks=(found.reason,) if found.reason else (),
        asked=1,
        unanswered=() if found.candidates else (found.reason,),
    )


KIND = "result"
WORKFLOWS = {
    "machine": "accelopt.fsm.worker.worker_fsm:develop",
    "agent": "accelopt.bench.agent_loop:develop",
}
"""Who develops a kernel, besides `plans`, by the name in a job."""

FAILED_BEFORE = "the same edit failed before, on a kernel that was the same there"

Work = Callable[[Job, KernelView, Run], Awaitable[Result]]


class Knowledge(NamedTuple):
    """What finished rounds left for the jobs that are asked for next, and `earlier` runs; `learned` is
    what methods brought in other searches. `told` are results of the round under way, of which models
    hear."""

    results: tuple[Result, ...] = ()
    told: tuple[Result, ...] = ()
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
    budget = EvaluationBudget(job.limit, judged)
    view = (await _view(job, run, knowledge))._replace(evaluation_budget=budget)
    result = await (work or _work_on(job, run))(job, view, run)
    told = dict.fromkeys([*_judged(result.nodes, run), *sorted(budget.bought)])
    return result._replace(judged=tuple(told))


def _work_on(job: Job, run: Run) -> Work:
    workflow = _workflow(job, run)
    if job.want is Want.DEVELOP and workflow in WORKFLOWS:
        module, _, name = WORKFLOWS[workflow].partition(":")
        work: Work = getattr(import_module(module), name)
        return work
    return {
        Want.SPACE: _space,
        Want.ACTIONS: _actions,
        Want.BUILD: _build,
        Want.DEVELOP: develop,
    }[job.want]


def _workflow(job: Job, run: Run) -> str:
    """Who develops the job's kernel: an agent in place of planner and executor, where there is one."""
    return "agent" if job.workflow == "plans" and run.proposer.agent else job.workflow


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
        return 1 if job.action is not None and _made_already(job.action) else most_of_sample(run)
    if run.proposer.agent and _workflow(job, run) == "agent":
        return run.proposer.agent.budget.evaluations
    if job.workflow in WORKFLOWS:
        return attempts
    return most_of_plans(run)


def silence(results: Sequence[Result], run: Run) -> str:
    """What to say of a model that answered nothing at all of a round; empty where one answered, or none
    was asked."""
    if run.proposer == by_rule(run).proposer:
        return ""
    asked = sum(result.asked for result in results)
    failed = [reason for result in results for reason in result.unanswered]
    if asked and len(failed) == asked:
        return f"the model answered none of {asked} calls: {failed[-1]}"
    nodes = [node for result in results for node in result.nodes]
    by_model = [node for node in nodes if isinstance(node.change, Plan)]
    if by_model and all(node.evaluation.message.startswith(UNANSWERED) for node in by_model):
        said = by_model[-1].evaluation.message
        return f"the executor's model answered none of {len(by_model)} calls: {said}"
    return ""


def by_rule(run: Run) -> Run:
    """The same run, in which the rules do what models did."""
    rules = run.workshop.offline
    return run._replace(proposer=Proposer(rules, rules, rules))


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
        told=knowledge.told,
        experiences=knowledge.experiences,
        earlier=knowledge.earlier,
        iteration=job.round,
        goal=job.goal,
        turn=job.number,
        rules=run.workshop.offline if _is_read(job, run) else None,
        looked_into=job.action is None or not _made_already(job.action) or bool(job.trials.belief),
    )


def _is_read(job: Job, run: Run) -> bool:
    """Whether a model will read the view of the job's kernel."""
    offline = run.workshop.offline
    by_rule = run.proposer.planner is offline and run.proposer.executor is offline
    planned = job.action is None or isinstance(job.action.change, Plan)
    by_expert = bool(job.trials.belief) and run.proposer.expert is not None
    return not by_rule and job.want is not Want.SPACE and (planned or by_expert)


async def _space(job: Job, view: KernelView, run: Run) -> Result:
    """The knobs of the kernel."""
    space = await run.workshop.language.space(job.node)
    return Result(job, diagnosis=view.diagnosis, space=space)


async def _actions(job: Job, view: KernelView, run: Run) -> Result:
    """What the language offers, and the plans of a model."""
    found = await run.workshop.offline.actions_on(job.node, job.focus)
    offered = [
        action
        for action in found
        if expected_of(action) >= run.settings.least_gain and not view.fails_again(action.source)
    ]
    diagnosis = view.diagnosis
    if run.proposer.planner is run.workshop.offline:
        return Result(job, tuple(offered), diagnosis=diagnosis)
    if job.focus == CANDIDATES and run.proposer.lister is not None:
        return await list_candidates(job, view, run, offered)
    if job.focus in (METHODS_ALONE, CANDIDATES) and diagnosis is not None:
        language = run.workshop.language
        useless = await language.useless_methods(job.node)
        named = by_method(language.name, offered, diagnosis, useless)
        return Result(job, (*offered, *named), diagnosis=diagnosis)
    drafts = await drafts_of(view, run)
    plans = [Action(change=d.change, method="plan") for d in drafts if d.change is not None]
    return with_remarks(Result(job, (*plans, *offered), diagnosis=diagnosis), drafts)


def expected_of(action: Action) -> float:
    """The share of the time that an action may save: by its own promise, or by its method's."""
    return max(action.promise, EXPECTED.get(action.method, LITTLE))


def by_method(
    language: str,
    offered: Sequence[Action],
    diagnosis: Diagnosis,
    useless: Collection[str] = (),
) -> list[Action]:
    """An action for every method that relieves what limits a kernel, that no rule offers on it, and that is
    none of the `useless`: a plan that allows an executor this one method."""
    limited = diagnosis.bottleneck
    if limited is None:
        return []
    why = (
        f"It must relieve {limited.resource}: {limited.reason}. Where this kernel has nothing that the method "
        "could be used on, say so in a sentence, without code: that costs no evaluation."
    )
    known, methods = {action.method for action in offered}, methods_of(language)
    return [
        Action(
            change=Plan(
                sentence=f"Use one method and no other, {name}: {what_it_does(name, language)} {why}",
                optional=True,
            ),
            method=name,
            touches=methods[name].touches,
        )
        for name in limited.methods
        if name in methods and name not in {*known, *useless} and not methods[name].of_schedules
    ]


async def _build(job: Job, view: KernelView, run: Run) -> Result:
    """One action: its own source, or the executor's, with repairs as far as the limit goes."""
    assert job.action is not None
    change, workplace = job.action.change, workplace_of(view, run)
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


async def _set_by_expert(expert: ExpertModel, job: Job, view: KernelView, run: Run) -> Result:
    """The knobs as the model of an expert sets them; a reply without a configuration is a remark."""
    language, workplace = run.workshop.language, workplace_of(view, run)
    space = await language.space(job.node)
    assert space is not None
    found = await expert.propose(job, space, view)
    if found.values is None:
        return Result(job, remarks=(found.reason,), asked=1, unanswered=(found.reason,))
    change = KnobSetting(values=found.values, sentence=sentence(space.changes(found.values)))
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
        return Configured(action.change.kernel, "the plan has no kernel")
    source = action.source or await run.workshop.offline.source_of(node, action)
    return Configured(source, f"the rules do not offer this change any more: {action.method}")


def _judged(nodes: Iterable[Node], run: Run) -> Iterator[str]:
    """The evaluations that were asked for, by rank, repaired attempts first."""
    for node in nodes:
        for attempt in (*node.failed, node):
            if not attempt.missing:
                yield run.workshop.language.evaluation_key(attempt.case, attempt.source)
