"""Profiling: every row of a table gets the profile of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt.concurrency import run_together
from accelopt.evaluation import Evaluation, Profile, to_json
from accelopt.kernels.language import Language
from accelopt.nodes import Node
from accelopt.script_file_columns import CandidateRow
from accelopt.stages.evaluations import Evaluations
from accelopt.stages.record_files import read_candidates


class Profiled(NamedTuple):
    """A candidate with the verdict on its own kernel."""

    candidate: CandidateRow
    evaluation: Evaluation

    @property
    def column(self) -> str:
        """The `profile` column: metadata as JSON, an error under its published key."""
        return to_json(self.evaluation.to_metadata())


async def profile_candidates(
    candidates: Sequence[CandidateRow],
    evaluations: Evaluations,
    told: Callable[[Profiled], None] = lambda _: None,
) -> list[Profiled]:
    """The candidates with their profiles, in order; `told` hears of each as it is finished."""

    async def one(candidate: CandidateRow) -> Profiled:
        language, case = evaluations.language, candidate.case
        evaluation = await evaluations.evaluate(case, language.complete(language.source(case)))
        done = Profiled(candidate._replace(profile=evaluation.profile), evaluation)
        told(done)
        return done

    return await run_together(one(candidate) for candidate in candidates)


async def with_profiles(
    table: Path,
    evaluations: Evaluations,
    say: Callable[[str], None],
    wanted: Collection[str],
) -> list[CandidateRow]:
    """The candidates of `table` named in `wanted`, each with a profile of its kernel.

    A missing profile is taken from the `profile_results.csv` beside the table when it has one for
    the same service and kernel, else measured. Candidates without plans, and those whose own
    kernel fails, are left out with a sentence.
    """
    candidates = read_candidates(table)
    known = _profiles_beside(table) if any(c.profile is None for c in candidates) else {}
    idle = [c for c in candidates if c.case.service_name not in wanted]
    if idle:
        say(
            f"no plans for {len(idle)} of {len(candidates)} candidates, as {idle[0].case.service_name}"
        )
    busy = [
        c._replace(profile=c.profile or known.get((c.case.service_name, c.case.kernel)))
        for c in candidates
        if c.case.service_name in wanted
    ]
    missing = [candidate for candidate in busy if candidate.profile is None]
    measured = {
        done.candidate.case.service_name: done
        for done in await profile_candidates(missing, evaluations)
    }
    for done in measured.values():
        if done.candidate.profile is None:
            say(f"{done.candidate.case.service_name} fails itself: {done.evaluation.message}")
    updated = [
        measured[c.case.service_name].candidate if c.case.service_name in measured else c
        for c in busy
    ]
    return [candidate for candidate in updated if candidate.profile is not None]


def nodes_of(candidates: Sequence[CandidateRow], language: Language) -> list[Node]:
    """The kernels that rows stand for, with the texts of their files."""
    return [candidate.node(language.source(candidate.case)) for candidate in candidates]


def _profiles_beside(table: Path) -> dict[tuple[str, str], Profile]:
    beside = table.parent / "profile_results.csv"
    if beside == table or not beside.is_file():
        return {}
    return {
        (c.case.service_name, c.case.kernel): c.profile
        for c in read_candidates(beside)
        if c.profile
    }
