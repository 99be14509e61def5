"""Carrying out plans: a sample is written, evaluated the moment it arrives, and repaired."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from accelopt.agents.proposer import Draft, Failure, Implements, KernelView
from accelopt.evaluation import Evaluation, Status, to_json
from accelopt.kernels.language import Backend
from accelopt.published import (
    NO_IMPLEMENTATION,
    FixerRound,
    PlannerResult,
    SampleResult,
    ServiceResult,
    plan_id,
)
from accelopt.stages.evaluations import Evaluations
from accelopt.stages.together import together

REPAIRABLE = frozenset(
    {
        Status.REFUSED,
        Status.COMPILE_ERROR,
        Status.RUN_ERROR,
        Status.WRONG_SHAPE,
        Status.WRONG_DTYPE,
        Status.WRONG_NUMBERS,
        Status.TIMEOUT,
        Status.CRASH,
        Status.MISSING,
    }
)


class ExecutorSettings(NamedTuple):
    """K samples a plan, and up to F repair rounds for each."""

    num_samples: int = 4
    fixer_steps: int = 2


class Workplace(NamedTuple):
    """What carrying out a plan needs. `told` hears of every finished sample, by kernel and plan.

    `evaluations` judge every sample; `verifications`, where given, the fastest ones once more.
    """

    executor: Implements
    evaluations: Evaluations
    backend: Backend
    settings: ExecutorSettings
    told: Callable[[str, SampleResult], None] = lambda *_: None
    verifications: Evaluations | None = None


class Attempt(NamedTuple):
    """One draft and its verdict."""

    draft: Draft
    evaluation: Evaluation


async def carry_out(
    view: KernelView, plan: str, draw: int, workplace: Workplace
) -> dict[str, SampleResult]:
    """All samples of one plan, by `plan_{draw}_{sample}`, made and evaluated concurrently."""
    samples = range(workplace.settings.num_samples)
    results = await together(make_sample(view, plan, draw, sample, workplace) for sample in samples)
    return {plan_id(draw, sample): result for sample, result in zip(samples, results, strict=True)}


async def make_sample(
    view: KernelView,
    plan: str,
    draw: int,
    sample: int,
    workplace: Workplace,
) -> SampleResult:
    """One sample with its verdict: written, judged, and repaired up to `fixer_steps` times."""
    executor = workplace.executor
    rounds: list[FixerRound] = []
    attempt = await _attempt(view, await executor.implement(view, plan, draw, sample), workplace)
    for number in range(1, workplace.settings.fixer_steps + 1):
        status, error = attempt.evaluation.status, attempt.evaluation.message
        if status not in REPAIRABLE:
            break
        failure = Failure(attempt.draft.source, error_text(attempt.evaluation), number)
        repaired = await executor.repair(view, plan, draw, sample, failure)
        if repaired.source is None and attempt.draft.source is not None:
            break  # the error of the kernel that exists says more than the missing repair
        rounds.append(FixerRound(body=attempt.draft.source, status=status, error=error))
        attempt = await _attempt(view, repaired, workplace)
    result = sample_result(view, plan, attempt, rounds)
    workplace.told(f"{view.service_name} {plan_id(draw, sample)}", result)
    return result


async def _attempt(view: KernelView, draft: Draft, workplace: Workplace) -> Attempt:
    if draft.source is None:
        return Attempt(draft, Evaluation(status=Status.MISSING, message=draft.reason))
    source = workplace.backend.complete(draft.source)
    return Attempt(
        draft._replace(source=source), await workplace.evaluations.evaluate(view.candidate, source)
    )


def error_text(evaluation: Evaluation) -> str:
    """What a fixer is told: the kind of failure, its message and checks, and the traceback."""
    checks = [str(check) for check in evaluation.checks if not check.passed]
    parts = [f"{evaluation.status.value}: {evaluation.message}", *checks, evaluation.traceback]
    return "\n".join(dict.fromkeys(part for part in parts if part.strip()))


def sample_result(
    view: KernelView,
    plan: str,
    attempt: Attempt,
    rounds: Sequence[FixerRound] = (),
) -> SampleResult:
    """The published record of one sample."""
    evaluation = attempt.evaluation
    if evaluation.status is Status.MISSING:
        reason = evaluation.message or None
        return SampleResult(
            error=NO_IMPLEMENTATION, status=Status.MISSING, plan=plan, reason=reason
        )
    baseline, profile = view.profile, evaluation.profile
    result = _about(view).model_copy(
        update={
            "body": attempt.draft.source,
            "kernel_metadata": to_json(evaluation.to_metadata()),
            "status": evaluation.status,
            "plan": attempt.draft.plan or plan,
            "rounds": list(rounds),
        }
    )
    if profile is None:
        error = evaluation.message or evaluation.status.value
        return result.model_copy(update={"error": error})
    speedup = baseline.latency / profile.latency if baseline else None
    return result.model_copy(update={"latency": profile.latency, "speedup": speedup})


def _about(view: KernelView) -> SampleResult:
    """What every sample of a kernel says of the kernel itself."""
    baseline = view.profile
    return SampleResult(
        spec_code=view.reference,
        baseline=view.kernel,
        baseline_latency=baseline.latency if baseline else None,
        problem=view.candidate.problem,
        values=to_json(view.candidate.values),
        baseline_metadata=to_json(baseline.to_metadata() if baseline else {}),
    )


async def carry_out_all(
    views: Sequence[KernelView], plans: Sequence[PlannerResult], workplace: Workplace
) -> list[ServiceResult]:
    """Every plan of every viewed kernel, all of them concurrently.

    Plans are matched by service name; a kernel without plans gets one sample without a body, so
    that later stages still know of it.
    """
    by_service = {result.service_name: result.plans for result in plans}

    async def of_kernel(view: KernelView) -> ServiceResult:
        texts = by_service.get(view.service_name, [])
        results = await together(
            carry_out(view, text, i, workplace) for i, text in enumerate(texts)
        )
        samples = {key: value for result in results for key, value in result.items()}
        samples = samples or {plan_id(0, 0): _unplanned(view)}
        if workplace.verifications is not None:
            samples = await verify_fastest(view, samples, workplace.verifications)
        return ServiceResult(view.service_name, view.candidate.case_name, samples)

    return await together(of_kernel(view) for view in views)


async def verify_fastest(
    view: KernelView, samples: Mapping[str, SampleResult], verifications: Evaluations
) -> dict[str, SampleResult]:
    """The samples, where the fastest one that is faster than its baseline has passed everything.

    Screening may let a wrong kernel through; it must not come out first. Those in front that fail
    get the verdict they failed with.
    """
    checked = dict(samples)
    faster = [key for key, sample in samples.items() if (sample.speedup or 0.0) > 1.0]
    for key in sorted(faster, key=lambda key: samples[key].latency or 0.0):
        sample = samples[key]
        assert sample.body is not None
        evaluation = await verifications.evaluate(view.candidate, sample.body)
        if evaluation.status is Status.CORRECT:
            break
        attempt = Attempt(Draft(sample.body, plan=sample.plan or ""), evaluation)
        checked[key] = sample_result(view, sample.plan or "", attempt, sample.rounds)
    return checked


def _unplanned(view: KernelView) -> SampleResult:
    """What stands for a kernel for which nothing was planned: its baseline, and no body."""
    return _about(view).model_copy(
        update={
            "error": NO_IMPLEMENTATION,
            "status": Status.MISSING,
            "reason": "no plan was drawn for this kernel",
        }
    )
