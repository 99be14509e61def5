"""The folders of finished shell loops as a story, a table of results, and the best kernels."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.kernel_source import fingerprint
from accelopt.kernels.gpu.cases import source_of
from accelopt.kernels.nki.benchmark import relative_tolerance
from accelopt.report.page import versions
from accelopt.report.story import ProblemStory, Story, StoryStep
from accelopt.script_file_columns import SampleResult
from accelopt.stages.candidate_files import write_winner
from accelopt.stages.record_files import (
    read_candidate_table,
    read_candidates,
    read_executor_results,
    write_table,
)
from accelopt.stages.roofline_standings import bound_of
from accelopt.store import read_text, write_atomically

ROLES = ("planner", "executor", "summarizer")
FIRST = "first"  # the folder of the first iteration
TOLERANCE = "rel_tol.txt"  # of a loop's problem; a solution on a GPU has those of its definition
LOG = "log.txt"  # finished iterations, one a line


def prepare_loops(folder: Path, model_config: Path) -> list[Path]:
    """A folder for each profiled problem of `folder`, with the model configuration of every role.

    What is there already stays. Problems whose baseline fails get none. Raises ConfigError when no
    problem is left.
    """
    table = folder / "profile_results.csv"
    loops = []
    for row, candidate in zip(read_candidate_table(table), read_candidates(table), strict=True):
        if candidate.profile is None:
            continue
        loop = folder / candidate.case.service_name
        for role in ROLES:
            place = loop / "configs" / f"{role}_config.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(model_config, place)
        write_table(loop / FIRST / "candidates" / "profile_results.csv", [row], list(row))
        write_atomically(loop / TOLERANCE, f"{relative_tolerance(candidate.case.problem):g}\n")
        loops.append(loop)
    if not loops:
        raise ConfigError(f"no baseline in {table} is correct: there is nothing to start from")
    return loops


def loops_in(folder: Path) -> list[Path]:
    """The folders of the loops in `folder`. Raises ConfigError when there is none."""
    loops = sorted(place.parent for place in folder.glob(f"*/{TOLERANCE}"))
    if not loops:
        raise ConfigError(f"there are no loops in {folder}")
    return loops


def tell_loops(folder: Path) -> Story:
    """The story of all loops in `folder`, in their order; each loop gets `best.py` and `best.diff`."""
    problems = [_problem(loop) for loop in loops_in(folder)]
    first = read_candidates(folder / "profile_results.csv")[0].profile
    device = first.device if first else ""
    return Story(name=folder.name, device=device, versions=versions(), problems=tuple(problems))


def _problem(loop: Path) -> ProblemStory:
    [start] = read_candidates(loop / FIRST / "candidates" / "profile_results.csv")
    source = source_of(start.case)
    baseline = start.profile.latency if start.profile else None
    first = StoryStep(key=fingerprint(source), status="correct", latency=baseline, source=source)
    steps = [first, *_steps(loop, first)]
    timed = [step for step in steps if step.latency is not None]
    best = min(timed, key=lambda step: step.latency or 0.0, default=first)
    write_winner(loop, best.source, source, start.case.kernel)
    limit = bound_of(start)
    before, after = (
        limit.least.fraction(step.latency) if limit and step.latency else None
        for step in (first, best)
    )
    return ProblemStory(
        name=start.case.case_name, baseline=baseline, best=best.latency,
        before=before, after=after if best is not first else None,
        changes=tuple(step.sentence for step in _path(best, steps)),
        start_source=source, best_source=best.source, steps=tuple(steps),
    )  # fmt: skip


def _steps(loop: Path, first: StoryStep) -> Iterator[StoryStep]:
    """All samples in the order of iterations and plans; a kernel counts once."""
    seen, number = {first.key}, 0
    log = loop / LOG
    for name in read_text(log).split() if log.is_file() else ():
        for result in read_executor_results(loop / name / "executor_results.json"):
            for sample in result.samples.values():
                step = _step(sample, number + 1)
                if step is not None and step.key not in seen:
                    seen.add(step.key)
                    number += 1
                    yield step


def _step(sample: SampleResult, number: int) -> StoryStep | None:
    if not sample.body:
        return None
    failed = sample.error if isinstance(sample.error, str) else "; ".join(sample.error or ())
    status = sample.status.value if sample.status else "failed"
    return StoryStep(
        key=fingerprint(sample.body),
        parent=fingerprint(sample.baseline or ""),
        sentence=sample.plan or "",
        status="correct" if sample.succeeded else status,
        message=failed,
        latency=sample.latency if sample.succeeded else None,
        number=number,
        source=sample.body,
    )


def _path(best: StoryStep, steps: Sequence[StoryStep]) -> list[StoryStep]:
    """The steps from the start to `best`."""
    known = {step.key: step for step in steps}
    path: list[StoryStep] = []
    at: StoryStep | None = best
    while at is not None and at not in path and at.parent:
        path.append(at)
        at = known.get(at.parent)
    return path[::-1]
