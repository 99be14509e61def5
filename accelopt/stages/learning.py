"""Learning: from an iteration's results to experiences for the planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelopt.agents.proposer import SlowFastPair, Summarizes
from accelopt.concurrency import run_together
from accelopt.nodes import Change, Node, Plan, Result
from accelopt.script_file_columns import Experience
from accelopt.search.experience_list import remember, select_contrasts
from accelopt.stages.experience import Step

if TYPE_CHECKING:
    from accelopt.kernels.language import Language
    from accelopt.stages.run import Run


async def summarize_contrasts(
    contrasts: Sequence[Node],
    summarizer: Summarizes,
    *,
    language: Language | None = None,
    iteration: int = 0,
    origin: str = "",
) -> list[Experience]:
    """An experience of each kernel and its parent; one whose summary failed carries its numbers alone.
    The summarizer sees what limits both where `language` can tell."""

    async def one(node: Node) -> Experience:
        experience = Step(node).experience(origin)
        assert node.parent is not None
        profiles = [await _limits(one, language) for one in (node.parent, node)]
        slow, fast = profiles if experience.speedup_original >= 1 else profiles[::-1]
        pair = SlowFastPair(experience, _words(node.change), iteration, slow, fast)
        return await summarizer.summarize(pair)

    return await run_together(one(node) for node in contrasts)


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
    return remember(new, experiences, memory.exp_n)
