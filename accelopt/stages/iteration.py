"""The steps of one iteration of the loop, over the stage functions that the scripts call too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt.agents.executor import UNANSWERED
from accelopt.agents.proposer import KernelView, PlanDraft, Proposer
from accelopt.errors import AcceloptError
from accelopt.evaluation import Confirmation, to_json
from accelopt.kernels.language import Explanation
from accelopt.published import Candidate, Experience, SampleResult, ServiceResult
from accelopt.search.memory import MemorySettings
from accelopt.search.selection import PARENT, Selected, Selection, select_elitist
from accelopt.stages.execute import ExecutorSettings, Workplace, carry_out
from accelopt.stages.learn import accumulate, choose_rewrites, summarize_rewrites
from accelopt.stages.plan import view_all
from accelopt.stages.profile import Profiled, profile_candidates
from accelopt.stages.select import SELECTIONS, write_candidate
from accelopt.stages.together import together
from accelopt.stages.workshop import Workshop
from accelopt.store import content_key

KIND = "iteration"


class Settings(NamedTuple):
    """T iterations of a beam of B kernels, N plans for each, K samples a plan, F repair rounds."""

    iterations: int = 16
    beam: int = 6
    plans: int = 12
    samples: int = 2
    fixer_steps: int = 2
    selection: str = "elitist"
    memory: MemorySettings = MemorySettings()


class Watcher(NamedTuple):
    """Who hears of progress: each call names the case it is about."""

    planned: Callable[[str, int, PlanDraft], None] = lambda *_: None
    sampled: Callable[[str, int, SampleResult], None] = lambda *_: None
    measured: Callable[[str, Profiled], None] = lambda *_: None
    settled: Callable[[Outcome], None] = lambda *_: None


class Run(NamedTuple):
    """One run: its tools, who proposes, its settings, its folder, and who watches."""

    workshop: Workshop
    proposer: Proposer
    settings: Settings
    folder: Path
    watcher: Watcher = Watcher()

    @property
    def selection(self) -> Selection:
        """The rule by which a beam is chosen."""
        return SELECTIONS[self.settings.selection]

    def folder_of(self, case_name: str, iteration: int) -> Path:
        """Where the files of one iteration lie."""
        return self.folder / case_name / f"iteration_{iteration}"


class Iteration(NamedTuple):
    """What one iteration saw, made and learned."""

    number: int
    views: Sequence[KernelView]
    results: Sequence[ServiceResult]
    experiences: Sequence[Experience]


class Change(NamedTuple):
    """One step from a kernel to its child. `latency` in ms is the child's."""

    plan: str
    latency: float


class Outcome(NamedTuple):
    """How one problem ended. `best` is the start when nothing faster was found.

    `confirmation` is a second measurement of both in turns; None where there is nothing to confirm.
    `samples` counts those that were made, `correct` those that passed the referee.
    """

    start: Candidate
    best: Candidate | None = None
    source: str = ""
    changes: tuple[Change, ...] = ()
    confirmation: Confirmation | None = None
    before: Explanation = Explanation()
    after: Explanation = Explanation()
    samples: int = 0
    correct: int = 0
    failure: str = ""

    @property
    def speedup(self) -> float | None:
        """Baseline latency over best latency."""
        if self.start.profile is None or self.best is None or self.best.profile is None:
            return None
        return self.start.profile.latency / self.best.profile.latency


async def measure(candidate: Candidate, run: Run) -> Profiled:
    """`candidate` with the profile of its own kernel."""
    [profiled] = await profile_candidates([candidate], run.workshop.evaluations)
    run.watcher.measured(candidate.case_name, profiled)
    return profiled


def starting_point(baseline: Candidate, run: Run) -> Selected:
    """The baseline as the only member of the first beam."""
    backend = run.workshop.backend
    assert baseline.profile is not None
    return Selected(
        case_name=baseline.case_name,
        problem=baseline.problem,
        values=to_json(baseline.values),
        body=backend.complete(backend.source(baseline)),
        spec_code=backend.reference(baseline),
        latency=baseline.profile.latency,
        parent=baseline.service_name,
        plan_id=PARENT,
    )


async def view_beam(
    beam: Sequence[Selected],
    history: Sequence[Iteration],
    experiences: Sequence[Experience],
    number: int,
    run: Run,
) -> list[KernelView]:
    """Each kernel of the beam with all that a proposer may know of it."""
    results = [result for iteration in history for result in iteration.results]
    candidates = [await materialize(selected, number, run) for selected in beam]
    return await view_all(
        candidates,
        run.workshop.backend,
        history=results,
        experiences=experiences,
        iteration=number,
    )


async def materialize(selected: Selected, number: int, run: Run) -> Candidate:
    """`selected` as files and a profiled candidate; its evaluation is in the journal already."""
    folder = run.folder_of(selected.case_name, number) / "candidates"
    candidate = write_candidate(selected, folder)
    evaluation = await run.workshop.evaluations.evaluate(candidate, selected.body)
    return candidate.model_copy(update={"profile": evaluation.profile})


async def expand(views: Sequence[KernelView], run: Run) -> list[ServiceResult]:
    """Plans, samples and evaluations of one iteration, each begun as soon as it can be.

    A finished iteration is in the journal as a whole, failed calls included, and is not done
    again. Raises AcceloptError when the endpoint answered no call at all.
    """
    journal, key = run.workshop.journal, _iteration_key(views, run)
    kept = journal.find(KIND, key)
    if kept is not None:
        records = kept["results"]
        assert isinstance(records, list)
        finished = [ServiceResult.from_record(record) for record in records]
        for result in finished:
            for sample in result.samples.values():
                run.watcher.sampled(result.case_name, views[0].iteration, sample)
        return finished
    expanded = await together(_expand_one(view, run) for view in views)
    results = [result for result, _ in expanded]
    _refuse_silence(results, [draft for _, drafts in expanded for draft in drafts], run)
    if not run.workshop.ledger.exhausted:
        journal.append(KIND, key, {"results": [result.to_record() for result in results]})
    return results


def _iteration_key(views: Sequence[KernelView], run: Run) -> str:
    """Equal when the same kernels are expanded again and would be judged by the same code."""
    backend = run.workshop.backend
    judged = [backend.evaluation_key(view.candidate, view.kernel) for view in views]
    return content_key(*(f"{view.iteration}/{view.service_name}" for view in views), *judged)


async def _expand_one(view: KernelView, run: Run) -> tuple[ServiceResult, list[PlanDraft]]:
    """One kernel: its plans concurrently, the samples of each as soon as the plan is there."""
    case, settings = view.candidate.case_name, run.settings
    workplace = Workplace(
        run.proposer.executor,
        run.workshop.evaluations,
        run.workshop.backend,
        ExecutorSettings(settings.samples, settings.fixer_steps),
        lambda _, sample: run.watcher.sampled(case, view.iteration, sample),
    )

    async def draw(number: int) -> tuple[PlanDraft, dict[str, SampleResult]]:
        draft = await run.proposer.planner.plan(view, number, settings.plans)
        run.watcher.planned(case, view.iteration, draft)
        if draft.text is None:
            return draft, {}
        return draft, await carry_out(view, draft.text, number, workplace)

    drawn = await together(draw(number) for number in range(settings.plans))
    samples = {key: sample for _, of_plan in drawn for key, sample in of_plan.items()}
    drafts = [draft for draft, _ in drawn]
    return ServiceResult(view.service_name, case, samples), drafts


def _refuse_silence(
    results: Sequence[ServiceResult], drafts: Sequence[PlanDraft], run: Run
) -> None:
    """An endpoint that answered nothing at all is a sentence for the user, not a result."""
    if run.workshop.ledger.exhausted:
        return
    failed = [draft.reason for draft in drafts if draft.failed]
    if drafts and len(failed) == len(drafts):
        raise AcceloptError(
            f"the planner's model answered none of {len(drafts)} calls: {failed[-1]}"
        )
    reasons = [s.reason or "" for result in results for s in result.samples.values()]
    if reasons and all(reason.startswith(UNANSWERED) for reason in reasons):
        raise AcceloptError(
            f"the executor's model answered none of {len(reasons)} calls: {reasons[-1]}"
        )


async def learn(
    results: Sequence[ServiceResult],
    experiences: Sequence[Experience],
    number: int,
    run: Run,
) -> list[Experience]:
    """The experiences with those of this iteration in front."""
    rewrites = choose_rewrites(results, run.settings.memory)
    origin = f"{results[0].case_name}, iteration {number}" if results else ""
    new = await summarize_rewrites(
        rewrites, run.proposer.summarizer, iteration=number, origin=origin
    )
    return accumulate(new, experiences, run.settings.memory.exp_n)


async def settle(
    start: Candidate, fastest: Selected, history: Sequence[Iteration], run: Run
) -> Outcome:
    """The outcome of a search: the best kernel that passes every check, with the steps to it."""
    backend = run.workshop.backend
    best, failure = await _first_verified(start, finalists(fastest, history), run)
    if best is None:
        return Outcome(start, failure=failure)
    candidate = await materialize(best, len(history) + 1, run)
    samples = [s for i in history for r in i.results for s in r.samples.values()]
    outcome = Outcome(
        start=start,
        best=candidate,
        source=best.body,
        changes=lineage(best.body, start, history, run),
        confirmation=await _confirm(start, best, run),
        before=await backend.explain(start, backend.source(start)),
        after=await backend.explain(candidate, best.body),
        samples=len(samples),
        correct=sum(sample.succeeded for sample in samples),
    )
    run.watcher.settled(outcome)
    return outcome


def finalists(fastest: Selected, history: Sequence[Iteration]) -> list[Selected]:
    """The fastest kernel, then every other correct one and the start, by latency."""
    results = [result for iteration in history for result in iteration.results]
    others = select_elitist(results, topk=1 + 2 * sum(len(result.samples) for result in results))
    return [fastest, *(selected for selected in others if selected.body != fastest.body)]


async def _first_verified(
    start: Candidate, candidates: Sequence[Selected], run: Run
) -> tuple[Selected | None, str]:
    """The first that passes with full scrutiny, or None and why the last one does not."""
    failure = ""
    for selected in candidates:
        evaluation = await run.workshop.verifications.evaluate(start, selected.body)
        if evaluation.profile is not None:
            return selected, ""
        failure = evaluation.message
    return None, failure


async def _confirm(start: Candidate, best: Selected, run: Run) -> Confirmation | None:
    """The best kernel against the start once more, kept in the journal like an evaluation."""
    workshop = run.workshop
    parent = workshop.backend.complete(workshop.backend.source(start))
    if best.body == parent:
        return None
    keys = [workshop.backend.evaluation_key(start, source) for source in (best.body, parent)]
    kept = workshop.journal.find("confirmation", content_key(*keys))
    if kept is not None:
        return Confirmation.model_validate(kept)
    confirmation = await workshop.backend.confirm(start, best.body, parent)
    value = confirmation.model_dump(mode="json")
    workshop.journal.append("confirmation", content_key(*keys), value)
    return confirmation


def lineage(
    body: str, start: Candidate, history: Sequence[Iteration], run: Run
) -> tuple[Change, ...]:
    """The plans that led from the start to `body`, first one first."""
    backend = run.workshop.backend
    origin = backend.complete(backend.source(start))
    changes: list[Change] = []
    for iteration in reversed(history):
        made = [s for r in iteration.results for s in r.samples.values() if s.succeeded]
        step = next((sample for sample in made if sample.body == body), None)
        if step is None or step.baseline is None or body == origin:
            continue
        changes.append(Change(step.plan or "", step.latency or 0.0))
        body = step.baseline
    return tuple(reversed(changes))
