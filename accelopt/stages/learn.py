"""Learning: from an iteration's results to experiences for the planner."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.agents.proposer import Pair, Summarizes
from accelopt.kernel_source import fingerprint
from accelopt.published import Experience, ServiceResult
from accelopt.search.memory import MemorySettings, Rewrite, remember, select_rewrites
from accelopt.stages.together import together


def choose_rewrites(results: Sequence[ServiceResult], settings: MemorySettings) -> list[Rewrite]:
    """The pairs of `results` worth learning from."""
    return select_rewrites(
        results,
        max_threshold=settings.max_threshold,
        min_threshold=settings.min_threshold,
        topk=settings.topk,
    )


async def summarize_rewrites(
    rewrites: Sequence[Rewrite], summarizer: Summarizes, *, iteration: int = 0, origin: str = ""
) -> list[Experience]:
    """An experience of each pair; one whose summary failed carries its numbers alone."""

    async def one(rewrite: Rewrite) -> Experience:
        factor = max(rewrite.speedup, 1 / rewrite.speedup)
        lesson = await summarizer.summarize(
            Pair(
                label=f"{rewrite.service_name}/{rewrite.plan_id}",
                slow_kernel=rewrite.slow_kernel,
                fast_kernel=rewrite.fast_kernel,
                speedup=factor,
                plan=rewrite.sample.plan or "",
                iteration=iteration,
            )
        )
        return Experience(
            service_name=rewrite.service_name,
            case_name=rewrite.case_name,
            id=rewrite.plan_id,
            speedup_original=rewrite.speedup,
            speedup=factor,
            slow_kernel=rewrite.slow_kernel,
            fast_kernel=rewrite.fast_kernel,
            raw_response=lesson.raw_response,
            title=lesson.title,
            summary=lesson.summary,
            origin=origin,
        )

    return await together(one(rewrite) for rewrite in rewrites)


def accumulate(
    new: Sequence[Experience], old: Sequence[Experience], limit: int
) -> list[Experience]:
    """`remember` with kernels compared by their normalised syntax trees."""
    return remember(new, old, limit, fingerprint)
