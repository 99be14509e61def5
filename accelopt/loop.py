"""The whole program in one screen: ask, do, tell, learn, again.

    kernel ▸ job ▸ kernels with their verdicts ▸ told to the strategy ▸ next job
                     └▸ slow and fast pairs ▸ experiences ▸ planner

A strategy is asked for one job at a time; up to `window` are under way, and they are told in the
order of asking, so the same inputs give the same run on any machine. What a model or an evaluation
answered is in the run's journal before it is used, and nothing else decides what happens next: a run
that was interrupted is asked the same again, and answers from the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from accelopt.concurrency import run_together
from accelopt.evaluation import Case
from accelopt.nodes import Node, Result, Want
from accelopt.search.strategy import Learns, Strategy, open_strategy
from accelopt.stages import run_files
from accelopt.stages.baseline_and_winner import (
    confirm_winner,
    measure,
    measure_alternatives,
    try_elsewhere,
)
from accelopt.stages.experience import metrics_of, write_experience
from accelopt.stages.jobs import NOTHING_KNOWN, Knowledge, by_rule, keep, silence
from accelopt.stages.jobs_under_way import JobWindow
from accelopt.stages.learning import learn
from accelopt.stages.one_kernel_for_all_shapes import with_one_kernel
from accelopt.stages.run import Iteration, Outcome, Run


class Search(NamedTuple):
    """How a search went, round by round, and why it did not go on."""

    history: list[Iteration]
    ended: str


async def optimize(case: Case, run: Run, known: Knowledge = NOTHING_KNOWN) -> Outcome:
    """The fastest kernel found for one problem, with what is `known` from earlier runs."""
    if said := run.workshop.language.unread(case):
        run.watcher.reported(case.case_name, said)
    start = await measure(case, run)
    if start.profile is None:
        return Outcome(start, failure=start.evaluation.message)
    await measure_alternatives(case, run)
    warm = await run.workshop.archive.warm_start(start, run.workshop.evaluations)
    run_files.write_best(warm.node, run)
    strategy = open_strategy(warm.node, run.settings, run.seed)
    if isinstance(strategy, Learns):
        strategy.learn(await run.workshop.archive.learned(start, known.learned))
    found = await search(strategy, start, run, known.with_more(warm.experiences, warm.findings))
    return await confirm_winner(start, warm.node, strategy.best, found.history, found.ended, run)


async def optimize_all(
    cases: Sequence[Case], run: Run, known: Knowledge = NOTHING_KNOWN
) -> list[Outcome]:
    """Several problems side by side, sharing workers and endpoints."""
    found = await run_together(optimize(case, run, known) for case in cases)
    outcomes = await with_one_kernel(await try_elsewhere(found, run), run)
    run_files.write_outcomes(outcomes, run)
    await run.workshop.archive.keep()
    return outcomes


async def search(
    strategy: Strategy, start: Node, run: Run, known: Knowledge = NOTHING_KNOWN
) -> Search:
    """Ask ▸ do ▸ tell ▸ learn, until the strategy, the rounds or the budget are at their end."""
    window = JobWindow(start, run)
    history: list[Iteration] = []
    told: list[Result] = []
    ended = "no round was asked for" if run.settings.iterations < 1 else ""
    silent = ""
    try:
        while not (ended := ended or window.why_not):
            while window.open and (job := strategy.ask()) is not None:
                since = (
                    () if job.want is Want.DEVELOP else told
                )  # rounds of those are asked at once
                window.begin(job, known._replace(told=tuple(since)))
            result = await window.oldest()
            if result is None:
                continue
            number, best = strategy.round, strategy.best
            strategy.tell(result)
            told.append(result)
            if run.files is not None:
                run.files.tell(result)
            if strategy.best is not best:
                run_files.write_best(strategy.best, run)
            if strategy.round > number:
                known = await _close_round(number, told, history, known, strategy, run)
                if said := silence(told, run):
                    run = window.run = by_rule(run)
                    silent = f"; {said}: the rules went on alone"
                    run.watcher.reported(start.case.case_name, f"{said}; the rules go on alone")
                told = []
                ended = _end_of_rounds(number, run)
    finally:
        await window.close()
    if told:
        await _close_round(strategy.round, told, history, known, strategy, run)
    ended += silent
    if fault := run.workshop.offline.fault:
        ended += f"; by rule nothing was tried for {fault}"
    run_files.write_state(start.case, strategy, ended, run)
    if run.settings.strategy == "regraph" and history:
        results = [result for round_ in history for result in round_.results]
        run.watcher.reported(start.case.case_name, str(metrics_of(start, results, run)))
    return Search(history, ended)


async def _close_round(
    number: int,
    told: Sequence[Result],
    history: list[Iteration],
    known: Knowledge,
    strategy: Strategy,
    run: Run,
) -> Knowledge:
    """Learn from a round and write its files; what the next one may know."""
    if not (run.workshop.ledger.exhausted or silence(told, run)):
        keep(told, run)  # else a run that is continued asks again
    experiences = await learn(told, known.experiences, number, run)
    history.append(Iteration(number, told, experiences))
    run_files.write_iteration(history, strategy.kept, run)
    run_files.write_state(told[0].job.node.case, strategy, "", run)
    await run.workshop.archive.keep()
    results = (*known.results, *told)
    start = [*told[0].job.node.lineage()][-1]
    write_experience(start, results, run)
    return known._replace(results=results, experiences=tuple(experiences))


def _end_of_rounds(number: int, run: Run) -> str:
    """Why no round follows round `number`; empty when one does."""
    if run.workshop.ledger.exhausted:
        return "the budget of the models is spent"
    return f"{number} rounds are done" if number >= run.settings.iterations else ""
