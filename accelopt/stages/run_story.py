"""A finished run as a story: what was tried on each problem, and portraits of its start and winner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap
from pathlib import Path

from accelopt.agents.experience_text import outcome_text
from accelopt.experience import Development
from accelopt.kernels.nki.devices.simulated import WARM
from accelopt.nodes import Job, Node
from accelopt.report.diffs import patch_of
from accelopt.report.kernel_summary import Portrayed
from accelopt.report.page import versions
from accelopt.report.story import ProblemResult, ProblemStory, Story, StoryStep, WorkerStory
from accelopt.sandbox.workers import Call, Fault, perform
from accelopt.stages.run import Outcome, Run, at_other_shapes
from accelopt.time_limits import PORTRAIT_SECONDS

PORTRAIT = "accelopt.report.kernel_summary:portrait_job"
PORTRAIT_BYTES = 8 << 30
DIFF, DIFFS = 4_000, 24_000  # characters of a failed kernel's diff, and of all of a problem's


def story_of(
    outcomes: Sequence[Outcome],
    run: Run,
    device: str,
    settings: Mapping[str, object],
    judged_after: Mapping[str, float],
) -> Story:
    """The story of a run. `judged_after` are seconds after its begin at which kernels were judged."""
    spent = run.workshop.ledger.total
    return Story(
        name=run.folder.name,
        device=device,
        seconds=max(judged_after.values(), default=0.0),
        settings={name: str(value) for name, value in settings.items()},
        versions=versions(),
        spending={
            "calls": spent.calls,
            "tokens": spent.input_tokens + spent.output_tokens,
            "dollars": spent.money,
        },
        problems=tuple(_problem(outcome, run, judged_after) for outcome in outcomes),
    )


def result_of(outcome: Outcome) -> ProblemResult:
    """What came of one problem, as reports and tables tell it."""
    start, best, confirmation = outcome.start, outcome.best, outcome.confirmation
    return ProblemResult(
        name=start.case.case_name,
        baseline=start.latency,
        best=best.latency if best else None,
        before=outcome.before.percent_of_peak,
        after=outcome.after.percent_of_peak if best and best.source != start.source else None,
        confirmed=confirmation is None or confirmation.confirmed,
        resolved=outcome.resolved,
        between=confirmation.between if confirmation else None,
        depends_on=confirmation.depends_on if confirmation else (),
        failure=outcome.failure or outcome.turned_down,
        holds_for=outcome.holds_for,
        exactness=outcome.exactness,
        beside=outcome.beside,
        elsewhere=tuple(map(at_other_shapes, outcome.elsewhere)),
        changes=tuple(outcome.changes),
    )


def _problem(outcome: Outcome, run: Run, judged_after: Mapping[str, float]) -> ProblemStory:
    start, best = outcome.start, outcome.best
    folder = run.folder / start.case.case_name
    changed = best is not None and best.source != start.source
    winner = folder / "best.py" if changed else Path(start.case.kernel)
    before = _portrayed(Path(start.case.kernel), start)
    after = _portrayed(winner, best or start, folder)
    return ProblemStory(
        **dict(result_of(outcome)),
        start_source=start.source,
        best_source=outcome.source,
        steps=tuple(_steps(outcome, judged_after)),
        workers=tuple(starmap(_worker, outcome.developments)),
        start_portrait=before.portrait,
        best_portrait=after.portrait,
        trace=after.trace,
    )


def _worker(job: Job, development: Development) -> WorkerStory:
    finding = development.finding
    said = outcome_text(finding.attempt) if finding else "nothing was left to do"
    against = finding.attempt.bottleneck_category if finding else ""
    return WorkerStory(
        round=job.round,
        worker=job.number,
        against=f"{against} ({finding.resource})" if finding and finding.resource else against,
        change=finding.change if finding else "",
        outcome=f"{said}; {development.stop}" if development.stop else said,
        path=development.path,
    )


def _steps(outcome: Outcome, judged_after: Mapping[str, float]) -> list[StoryStep]:
    """Every distinct kernel, in the order in which they were told; repaired attempts before it."""
    found: dict[str, StoryStep] = {}
    room = DIFFS
    for node in (outcome.start, *(n for made in outcome.nodes for n in (*made.failed, made))):
        if node.source and node.key not in found:
            diff = _tried(node)[:room] if node.latency is None else ""
            room -= len(diff)
            found[node.key] = StoryStep(
                key=node.key,
                parent=node.parent.key if node.parent else "",
                sentence=node.change.sentence if node.change else "",
                status=node.evaluation.status.value,
                message=node.evaluation.message,
                latency=node.latency,
                number=len(found),
                seconds=judged_after.get(f"{node.case.case_name}/{node.key}", 0.0),
                diff=diff,
            )
    return list(found.values())


def _tried(node: Node) -> str:
    diff = patch_of(node.parent.source, node.source, "kernel.py") if node.parent else ""
    return diff if len(diff) <= DIFF else f"{diff[:DIFF]}\n… the journal has all of it\n"


def _portrayed(kernel: Path, node: Node, traced: Path | None = None) -> Portrayed:
    """A simulated kernel once more, with everything that explains it: in a process of its own, for
    its reference is somebody's Python. `traced` is the folder that takes its execution."""
    if node.profile is None or not node.profile.simulated:
        return Portrayed()
    payload = {
        "kernel": str(kernel.resolve()),
        "reference": str(Path(node.case.task).resolve()),
        "target": node.profile.target,
        "compiler": node.profile.compiler,
        "traced": str(traced.resolve()) if traced else "",
    }
    call = Call(PORTRAIT, payload, PORTRAIT_SECONDS, PORTRAIT_BYTES, warm=WARM)
    found = perform(call, Portrayed, threads=1)
    return Portrayed() if isinstance(found, Fault) else found
