"""The two ends of a search: the baseline's verdict, and the best kernel that passes every check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from accelopt.concurrency import run_together
from accelopt.evaluation import Case, Confirmation, Evaluation, Status, exactness_words
from accelopt.nodes import Node
from accelopt.stages import run_files
from accelopt.stages.planning import view_kernel
from accelopt.stages.run import Elsewhere, Iteration, Outcome, Run, times_of
from accelopt.stages.samples import ExecutorSettings, Workplace, carry_out
from accelopt.store import content_key

KIND, ALTERNATIVES = "confirmation", "alternatives"
MOST_POLISHED = 3  # changes by rule upon the winner of a search by models


async def measure(case: Case, run: Run) -> Node:
    """The case's own kernel with its verdict."""
    language = run.workshop.language
    source = language.complete(language.source(case))
    node = Node(case, source, await run.workshop.evaluations.evaluate(case, source))
    run.workshop.archive.begin(node, language)
    if run.files is not None:
        await run.files.begin(node, language)
    run.watcher.measured(node)
    return node


async def measure_alternatives(case: Case, run: Run) -> Mapping[str, float]:
    """What others take for the problem, in milliseconds by name: measured once a run."""
    language, journal = run.workshop.language, run.workshop.journal
    key = content_key(case.case_name, language.reference(case))
    kept = journal.find(ALTERNATIVES, key)
    if kept is None:
        kept = {**await language.alternatives(case)}
        if kept:
            journal.append(ALTERNATIVES, key, kept)
            run.watcher.reported(case.case_name, f"the same problem by others: {times_of(kept)}")
    return {name: float(str(ms)) for name, ms in kept.items()}


async def confirm_winner(
    start: Node, begun: Node, fastest: Node, history: Sequence[Iteration], ended: str, run: Run
) -> Outcome:
    """The outcome of a search that began from `begun`, the start itself or a kernel known before: the
    best kernel that passes every check, with the steps to it."""
    language = run.workshop.language
    polished = await polish(fastest, run)
    first = polished[-1] if polished else fastest
    ranked = finalists(start, first, history, polished)
    best, verdict = await first_verified(ranked, run)
    if best is None:
        return Outcome(start, failure=verdict.message, ended=ended)
    run_files.write_kernels([best], (), len(history) + 1, run)
    results = [result for round_ in history for result in round_.results]
    made = [] if begun is start else [begun]
    made += [*(node for result in results for node in result.nodes), *polished]
    outcome = Outcome(
        start=start,
        best=best,
        confirmation=await _confirm(start, best, run),
        before=await language.explain(start),
        after=await language.explain(best),
        nodes=tuple(made),
        developments=tuple((r.job, r.development) for r in results if r.development),
        holds_for=verdict.holds_for,
        exactness=exactness_words(verdict.exactness, start.evaluation.exactness),
        ended=ended,
        turned_down=_turned_down(ranked.index(best)) if best is start else "",
        alternatives=await measure_alternatives(start.case, run),
    )
    run.watcher.finished(outcome)
    return outcome


async def polish(fastest: Node, run: Run) -> list[Node]:
    """Kernels that the rules make of what a model found, each faster than the one before: a pass of
    the rules that the last round's winner has not had. None where the rules planned anyway, where evaluations
    are counted, or where knobs alone were to be set."""
    workshop, offline = run.workshop, run.workshop.offline
    if run.proposer.planner is offline or run.settings.evaluations is not None:
        return []
    if run.settings.strategy == "experts":
        return []
    place = Workplace(offline, workshop.evaluations, ExecutorSettings(1, 0))
    better: list[Node] = []
    for _ in range(MOST_POLISHED):
        now = better[-1] if better else fastest
        simulated = now.profile is not None and now.profile.simulated
        goal = now.latency if simulated else None
        view = await view_kernel(now, workshop.language, goal=goal)
        draft = await offline.plan(view, 0, 1)
        if draft.change is None:
            break
        (node,) = await carry_out(view, draft.change, 0, place)
        if node.latency is None or node.latency >= (now.latency or inf):
            break
        better.append(node)
    return better


def finalists(
    start: Node, fastest: Node, history: Sequence[Iteration], more: Sequence[Node] = ()
) -> list[Node]:
    """The fastest kernel, then every other correct one and the start, by latency."""
    made = (node for round_ in history for result in round_.results for node in result.nodes)
    others = [node for node in (*made, *more, start) if node.latency is not None]
    distinct = {fastest.key: fastest}
    for node in sorted(others, key=lambda node: node.latency or 0.0):
        distinct.setdefault(node.key, node)
    return list(distinct.values())


def _turned_down(count: int) -> str:
    if not count:
        return ""
    many = f"{count} faster kernels do" if count > 1 else "a faster kernel does"
    return f"{many} not pass all that the referee asks of a winner"


async def first_verified(nodes: Sequence[Node], run: Run) -> tuple[Node | None, Evaluation]:
    """The first that passes with full scrutiny, or None; with the verdict on it, or on the last. A start
    that was let in with a warning does not pass."""
    verdict = Evaluation(status=Status.MISSING, message="there is no kernel to verify")
    for node in nodes:
        run.watcher.verifying(node)
        verdict = await run.workshop.verifications.evaluate(node.case, node.source)
        if verdict.profile is not None and not verdict.message:
            return node, verdict
        run.watcher.turned_down(node, verdict)
    return None, verdict


async def try_elsewhere(outcomes: Sequence[Outcome], run: Run) -> list[Outcome]:
    """The outcomes, with how the best kernel of each does on the other cases of the same kernel."""

    async def tried(outcome: Outcome) -> Outcome:
        best, own = outcome.best, outcome.start.case
        if best is None or best.source == outcome.start.source:
            return outcome
        others = [o.start.case for o in outcomes if o.start.case.kernel == own.kernel]
        verify = run.workshop.verifications.evaluate
        found = [Elsewhere(c, await verify(c, best.source)) for c in others if c.task != own.task]
        return outcome._replace(elsewhere=tuple(found))

    return await run_together(map(tried, outcomes))


async def _confirm(start: Node, best: Node, run: Run) -> Confirmation | None:
    """The best kernel against the start once more, kept in the journal like an evaluation."""
    if best.source == start.source:
        return None
    language, journal = run.workshop.language, run.workshop.journal
    keys = [language.evaluation_key(start.case, node.source) for node in (best, start)]
    kept = journal.find(KIND, content_key(*keys))
    if kept is not None:
        return Confirmation.model_validate(kept)
    confirmation = await language.confirm(start.case, best.source, start.source)
    journal.append(KIND, content_key(*keys), confirmation.model_dump(mode="json"))
    return confirmation
