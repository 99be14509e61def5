"""Profiling: every row of a table gets the profile of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from accelopt.records import Candidate, Evaluation, to_json
from accelopt.stages.evaluations import Evaluations
from accelopt.stages.together import together


class Profiled(NamedTuple):
    """A candidate with the verdict on its own kernel."""

    candidate: Candidate
    evaluation: Evaluation

    @property
    def column(self) -> str:
        """The `profile` column: metadata as JSON, an error under its published key."""
        return to_json(self.evaluation.to_metadata())


async def profile_candidates(
    candidates: Sequence[Candidate],
    evaluations: Evaluations,
    told: Callable[[Profiled], None] = lambda _: None,
) -> list[Profiled]:
    """The candidates with their profiles, in order; `told` hears of each as it is finished."""

    async def one(candidate: Candidate) -> Profiled:
        backend = evaluations.backend
        source = backend.complete(backend.source(candidate))
        evaluation = await evaluations.evaluate(candidate, source)
        done = Profiled(candidate.model_copy(update={"profile": evaluation.profile}), evaluation)
        told(done)
        return done

    return await together(one(candidate) for candidate in candidates)
