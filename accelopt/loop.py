"""The whole program in one screen: plan, implement, evaluate, select, learn, again.

    kernel ▸ plans ▸ samples ▸ evaluations ▸ selection ▸ kernels of the next iteration
                                    └▸ slow and fast pairs ▸ experiences ▸ planner

Every model answer and every evaluation is in the run's journal before it is used, and nothing
else decides what happens next; so running again after a kill repeats the same steps without
paying for them twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.published import Candidate, Experience
from accelopt.search.beam import Beam
from accelopt.stages import project
from accelopt.stages.iteration import (
    Iteration,
    Outcome,
    Run,
    expand,
    learn,
    measure,
    settle,
    starting_point,
    view_beam,
)
from accelopt.stages.together import together


async def optimize(start: Candidate, run: Run, experiences: Sequence[Experience] = ()) -> Outcome:
    """The fastest kernel found for one problem, starting from `start`."""
    baseline = await measure(start, run)
    if baseline.candidate.profile is None:
        return Outcome(baseline.candidate, failure=baseline.evaluation.message)
    strategy = Beam(starting_point(baseline.candidate, run), run.settings.beam, run.selection)
    history: list[Iteration] = []
    for number in range(1, run.settings.iterations + 1):
        views = await view_beam(strategy.ask(), history, experiences, number, run)
        results = await expand(views, run)  # plan ▸ implement ▸ evaluate ▸ repair, overlapped
        strategy.tell(results)
        experiences = await learn(results, experiences, number, run)
        history.append(Iteration(number, views, results, experiences))
        project.write_iteration(history[-1], strategy.ask(), run)
        if run.workshop.ledger.exhausted or not any(result.samples for result in results):
            break
    return await settle(baseline.candidate, strategy.best, history, run)


async def optimize_all(
    starts: Sequence[Candidate], run: Run, experiences: Sequence[Experience] = ()
) -> list[Outcome]:
    """Several problems side by side, sharing workers and endpoints."""
    outcomes = await together(optimize(start, run, experiences) for start in starts)
    project.write_outcomes(outcomes, run)
    return outcomes
