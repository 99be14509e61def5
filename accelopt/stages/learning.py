"""Learning: from an iteration's results to experiences for the planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelopt.agents.proposer import SlowFastPair, Summarizes
from accelopt.kernel_source import fingerprint
from accelopt.nodes import Change, Node, Plan, Result
from accelopt.published import Experience
from accelopt.search.experience_list import Contrast, remember, select_contrasts
from accelopt.stages.concurrency import run_together

if TYPE_CHECKING:
    from accelopt.kernels.language import Language
    from accelopt.stages.run import Run


async def summarize_contrasts(
    contrasts: Sequence[Contrast],
    summarizer: Summarizes,
    *,
    language: Language | None = None,
    iteration: int = 0,
    origin: str = "",
) -> list[Experience]:
    """An experience of each pair; one whose summary failed carries its numbers alone. The summarizer
    sees what limits both kernels where `language` can tell."""

    async def one(contrast: Contrast) -> Experience:
        node, factor = contrast.node, max(contrast.speedup, 1 / contrast.speedup)
        assert node.parent is not None
        profiles = [await _limits(one, language) for one in (node.parent, node)]
        slow, fast = profiles if contrast.speedup >= 1 else profiles[::-1]
        lesson = await summarizer.summarize(
            SlowFastPair(
                label=f"{contrast.service_name}/{node.label}",
                slow_kernel=contrast.slow_kernel,
                fast_kernel=contrast.fast_kernel,
                speedup=factor,
                plan=_words(node.change),
                iteration=iteration,
                slow_profile=slow,
                fast_profile=fast,
            )
        )
        return Experience(
            service_name=contrast.service_name,
            case_name=node.case.case_name,
            id=node.label,
            speedup_original=contrast.speedup,
            speedup=factor,
            slow_kernel=contrast.slow_kernel,
            fast_kernel=contrast.fast_kernel,
            raw_response=lesson.raw_response,
            title=lesson.title,
            summary=lesson.summary,
            origin=origin,
            change=_change(node),
        )

    return await run_together(one(contrast) for contrast in contrasts)


def _change(node: Node) -> str:
    """What a plan did, by its kind and the text of the lines that it names, whatever their numbers; by
    its value what a rule did."""
    change, parent = node.change, node.parent
    if not isinstance(change, Plan):
        return change.key if change else ""
    if not change.method or not change.places or parent is None:
        return ""
    lines = parent.source.splitlines()
    touched = [lines[number - 1].strip() for number in change.places if number <= len(lines)]
    return "\n".join([change.method, *touched])


def _words(change: Change | None) -> str:
    if isinstance(change, Plan):
        return change.full_text
    return change.sentence if change else ""


async def _limits(node: Node, language: Language | None) -> str:
    """A kernel's time and what limits it, in lines; empty where nobody knows."""
    known = language is not None and node.latency is not None and node.case.task
    found = await language.diagnose(node) if language and known else None
    if found is None or node.latency is None:
        return ""
    rows = [
        f"{node.latency:.4g} ms. Resources, the one first that holds it up most, with the share of the time that they work:"
    ]
    rows += [f"- {one.resource} {one.share:.0%}: {one.reason}" for one in found.bottlenecks]
    return "\n".join(rows)


async def learn(
    results: Sequence[Result], experiences: Sequence[Experience], number: int, run: Run
) -> list[Experience]:
    """The experiences with those of this round in front. Where models plan, they learn from plans in
    words: what the rules do is offered to them anyway, and costs no call."""
    memory, case = run.settings.memory, results[0].job.node.case
    if run.proposer.planner is not run.workshop.offline:
        results = [
            result._replace(nodes=tuple(n for n in result.nodes if isinstance(n.change, Plan)))
            for result in results
        ]
    new = await summarize_contrasts(
        select_contrasts(results, memory),
        run.proposer.summarizer,
        language=run.workshop.language,
        iteration=number,
        origin=f"{case.case_name}, iteration {number}",
    )
    for experience in new:
        run.workshop.archive.experienced(experience)
    return accumulate(new, experiences, memory.exp_n)


def accumulate(
    new: Sequence[Experience], old: Sequence[Experience], limit: int
) -> list[Experience]:
    """`remember` with kernels compared by their normalised syntax trees."""
    return remember(new, old, limit, fingerprint)
