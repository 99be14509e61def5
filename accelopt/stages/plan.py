"""Planning: from a candidate to the plans that may make it faster."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.agents.prompts import quote_words
from accelopt.agents.proposer import KernelView, PlanDraft, Plans, Tried
from accelopt.kernel_source import fingerprint
from accelopt.kernels.language import Backend
from accelopt.published import Candidate, Experience, PlannerResult, SampleResult, ServiceResult
from accelopt.stages.together import together


async def view_kernel(
    candidate: Candidate,
    backend: Backend,
    *,
    history: Sequence[ServiceResult] = (),
    experiences: Sequence[Experience] = (),
    iteration: int = 0,
    goal: float | None = None,
) -> KernelView:
    """What a proposer may know of `candidate`; `history` are earlier results on any kernel."""
    source = backend.source(candidate)
    explanation = await backend.explain(candidate, source)
    return KernelView(
        candidate=candidate,
        reference=backend.reference(candidate),
        kernel=source,
        facts=explanation.facts,
        gate=backend.gate(candidate),
        tried=tried_on(source, history),
        experiences=tuple(experiences),
        iteration=iteration,
        goal=goal,
    )


def goals(candidates: Sequence[Candidate]) -> dict[str, float]:
    """By case name, the milliseconds that a plan must promise less than: the fastest candidate's.

    Only where profiles are simulated, as predictions are; a device may well disagree with them.
    """
    found: dict[str, float] = {}
    for candidate in candidates:
        profile = candidate.profile
        if profile is not None and profile.simulated:
            latency = min(profile.latency, found.get(candidate.case_name, profile.latency))
            found[candidate.case_name] = latency
    return found


async def view_all(
    candidates: Sequence[Candidate],
    backend: Backend,
    *,
    history: Sequence[ServiceResult] = (),
    experiences: Sequence[Experience] = (),
    iteration: int = 0,
) -> list[KernelView]:
    """What a proposer may know of each candidate, in order."""
    fastest = goals(candidates)
    return await together(
        view_kernel(
            candidate,
            backend,
            history=history,
            experiences=experiences,
            iteration=iteration,
            goal=fastest.get(candidate.case_name),
        )
        for candidate in candidates
    )


async def draw_plans(
    views: Sequence[KernelView], planner: Plans, breadth: int
) -> list[PlannerResult]:
    """`breadth` plans for each view, drawn concurrently; draws without a plan are left out."""
    drafts = await together(
        planner.plan(view, draw, breadth) for view in views for draw in range(breadth)
    )
    return [
        planner_result(view, drafts[at * breadth : (at + 1) * breadth])
        for at, view in enumerate(views)
    ]


def planner_result(view: KernelView, drafts: Sequence[PlanDraft]) -> PlannerResult:
    """The plans among `drafts`, as the planner's output lists them."""
    drawn = [draft for draft in drafts if draft.text]
    return PlannerResult(
        service_name=view.service_name,
        reasonings=[draft.reasoning for draft in drawn],
        plans=[str(draft.text) for draft in drawn],
    )


def tried_on(source: str, history: Sequence[ServiceResult]) -> tuple[Tried, ...]:
    """Plans already carried out on this very kernel, each with its best outcome."""
    wanted = fingerprint(source)
    tried: dict[str, list[SampleResult]] = {}
    for result in history:
        for sample in result.samples.values():
            if sample.plan and sample.baseline and fingerprint(sample.baseline) == wanted:
                tried.setdefault(sample.plan, []).append(sample)
    return tuple(Tried(plan, outcome(samples)) for plan, samples in tried.items())


def outcome(samples: Sequence[SampleResult]) -> str:
    """In one sentence, what came of the samples of one plan."""
    speedups = [s.speedup for s in samples if s.succeeded and s.speedup is not None]
    if speedups:
        return f"best of {len(samples)}: {max(speedups):.3f} times as fast"
    error = samples[0].error if samples else None
    text = " ".join(error) if isinstance(error, list) else str(error or "no result")
    return f"failed {len(samples)} times: {quote_words(text, 200)}"
