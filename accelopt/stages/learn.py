"""Learning: from an iteration's results to experiences for the planner."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.agents.proposer import Pair, Summarizes
from accelopt.kernel_source import fingerprint
from accelopt.nodes import Result
from accelopt.published import Experience
from accelopt.search.memory import Contrast, remember, select_contrasts
from accelopt.stages.run import Run
from accelopt.stages.together import together


async def summarize_contrasts(
    contrasts: Sequence[Contrast], summarizer: Summarizes, *, iteration: int = 0, origin: str = ""
) -> list[Experience]:
    """An experience of each pair; one whose summary failed carries its numbers alone."""

    async def one(contrast: Contrast) -> Experience:
        node, factor = contrast.node, max(contrast.speedup, 1 / contrast.speedup)
        lesson = await summarizer.summarize(
            Pair(
                label=f"{contrast.service_name}/{node.label}",
                slow_kernel=contrast.slow_kernel,
                fast_kernel=contrast.fast_kernel,
                speedup=factor,
                plan=node.change.sentence if node.change else "",
                iteration=iteration,
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
        )

    return await together(one(contrast) for contrast in contrasts)


async def learn(
    results: Sequence[Result], experiences: Sequence[Experience], number: int, run: Run
) -> list[Experience]:
    """The experiences with those of this round in front."""
    memory, case = run.settings.memory, results[0].job.node.case
    new = await summarize_contrasts(
        select_contrasts(results, memory),
        run.proposer.summarizer,
        iteration=number,
        origin=f"{case.case_name}, iteration {number}",
    )
    return accumulate(new, experiences, memory.exp_n)


def accumulate(
    new: Sequence[Experience], old: Sequence[Experience], limit: int
) -> list[Experience]:
    """`remember` with kernels compared by their normalised syntax trees."""
    return remember(new, old, limit, fingerprint)
