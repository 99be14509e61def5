"""A finished run as a story: what was tried on each problem, and portraits of its start and winner."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from accelopt.agents.experience_text import outcome_text
from accelopt.errors import AcceloptError
from accelopt.evaluation import Row
from accelopt.experience import Development
from accelopt.kernels.nki.briefing import briefing
from accelopt.kernels.nki.devices.simulated import TRACING
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.nodes import Job, Node
from accelopt.report.diffs import patch_of
from accelopt.report.kernel_simulation import simulate
from accelopt.report.kernel_summary import portrait
from accelopt.report.page import versions
from accelopt.report.story import (
    Portrait,
    ProblemResult,
    ProblemStory,
    Story,
    StoryStep,
    WorkerStory,
)
from accelopt.report.timeline import timeline_json
from accelopt.sandbox.workers import Call, Fault, perform
from accelopt.sim.timing import MOST_ASKED, interval
from accelopt.stages.run import Outcome, Run, at_other_shapes
from accelopt.store import write_atomically
from accelopt.time_limits import PORTRAIT_SECONDS, RETRACE_SECONDS

PORTRAIT = "accelopt.stages.run_story:portrait_job"
PORTRAIT_BYTES = 8 << 30
PORTRAIT_WARM = ("accelopt.stages.run_story", *TRACING)
DIFF, DIFFS = 4_000, 24_000  # characters of a failed kernel's diff, and of all of a problem's
MOST_TRACED = 20_000  # instructions whose execution is worth a trace file beside the report


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


class Portrayed(Row):
    """A portrait, where there is one, and the path of the trace file from the report's folder."""

    portrait: Portrait | None = None
    trace: str = ""


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
    call = Call(PORTRAIT, payload, PORTRAIT_SECONDS, PORTRAIT_BYTES, warm=PORTRAIT_WARM)
    found = perform(call, Portrayed)
    return Portrayed() if isinstance(found, Fault) else found


def portrait_job(payload: Mapping[str, Any]) -> Portrayed:
    """The work of a portrait, in a child process; none for a kernel that cannot be simulated."""
    kernel, reference = Path(payload["kernel"]), Path(payload["reference"])
    try:
        target, compiler = payload["target"], payload["compiler"]
        found = simulate(kernel, reference, target, RETRACE_SECONDS, compiler).profile
    except AcceloptError:  # a report without a portrait is still a report
        return Portrayed()
    size = len(found.run.stream)
    seen = portrait(found)
    if size <= MOST_ASKED:
        told = briefing(found, problem_bound(found.run.program, found.run.spec))
        update = {"advice": told["advice"], "gaps": told["engines"]}
        seen = portrait(found, interval(found)).model_copy(update=update)
    if not payload["traced"] or size > MOST_TRACED:
        return Portrayed(portrait=seen)
    path = Path(payload["traced"]) / "best.trace.json.gz"
    write_atomically(path, gzip.compress(timeline_json(found).encode(), mtime=0))
    return Portrayed(portrait=seen, trace=f"{path.parent.name}/{path.name}")
