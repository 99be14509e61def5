"""One kernel for all shapes that were asked for: a winner that is right and fast at each, or a choice by shape."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelopt.concurrency import run_together
from accelopt.stages.candidate_files import write_kernel
from accelopt.stages.run import OneKernel, Outcome, Run

if TYPE_CHECKING:
    from accelopt.kernels.nki.shape_dispatch import ShapeKernel

SLOWER = 1.05  # times, which the simulated timing does not tell apart
FILE = "best.py"


async def with_one_kernel(outcomes: Sequence[Outcome], run: Run) -> list[Outcome]:
    """The outcomes, with the one kernel of those that are of the same file at several shapes. It is
    written to the run's folder, when the referee has accepted it at each of them."""
    cases = [outcome.start.case for outcome in outcomes]
    if len(outcomes) < 2 or len({case.kernel for case in cases}) > 1:
        return list(outcomes)
    found = await _found(outcomes, run)
    if found.source:
        write_kernel(run.folder / FILE, found.source, cases[0].kernel)
    return [outcome._replace(one_kernel=found) for outcome in outcomes]


async def _found(outcomes: Sequence[Outcome], run: Run) -> OneKernel:
    from accelopt.kernels.nki.shape_dispatch import (
        NotJoined,
        dispatcher,
    )  # only here, as it is rare

    if any(outcome.best is None for outcome in outcomes):
        return OneKernel(refusal="at one of the shapes no kernel is right")
    best = {
        outcome.start.case.case_name: outcome.best.latency for outcome in outcomes if outcome.best
    }
    for outcome in outcomes:
        assert outcome.best is not None
        times = _times(outcome, outcomes)
        if all(
            (times.get(name) or float("inf")) <= (ms or 0) * SLOWER for name, ms in best.items()
        ):
            return OneKernel(outcome.best.source, "one text for all", times)
    ordered = sorted(outcomes, key=lambda o: o.best is None or o.best.source == o.start.source)
    try:
        text = dispatcher([await asyncio.to_thread(_piece, outcome) for outcome in ordered])
    except NotJoined as refusal:
        return OneKernel(refusal=str(refusal))
    verify = run.workshop.verifications.evaluate
    verdicts = await run_together(verify(outcome.start.case, text) for outcome in outcomes)
    times = {}
    for outcome, verdict in zip(outcomes, verdicts, strict=True):
        name = outcome.start.case.case_name
        if verdict.profile is None:
            return OneKernel(
                refusal=f"the file that chooses by shape is refused at {name}: {verdict.message}"
            )
        times[name] = verdict.profile.latency
    return OneKernel(text, "it chooses by shape", times)


def _times(outcome: Outcome, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """What an outcome's best kernel takes in ms, by case, where it is right."""
    assert outcome.best is not None
    if outcome.best.source == outcome.start.source:
        starts = [other.start for other in outcomes]
        return {start.case.case_name: start.latency for start in starts if start.latency}
    there = {e.case.case_name: e.evaluation.profile for e in outcome.elsewhere}
    found = {name: profile.latency for name, profile in there.items() if profile is not None}
    return {outcome.start.case.case_name: outcome.best.latency or 0.0, **found}


def _piece(outcome: Outcome) -> ShapeKernel:
    from accelopt.kernels.nki.requests import made_arguments
    from accelopt.kernels.nki.shape_dispatch import ShapeKernel

    case = outcome.start.case
    assert outcome.best is not None
    label = case.case_name.removeprefix(f"{Path(case.kernel).stem}_")
    label = "".join(c if c.isalnum() else "_" for c in label)
    return ShapeKernel(label, outcome.best.source, made_arguments(Path(case.task)).arguments)
