"""Choosing the kernels that the next iteration starts from, out of one iteration's samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from accelopt.published import SampleResult, ServiceResult

PARENT = "parent"  # plan_id of a candidate that stays in the beam as it is


class Selected(NamedTuple):
    """A kernel with a place in the next beam. `latency` in ms; `plan_id` is PARENT for a parent."""

    case_name: str
    problem: str
    values: str
    body: str
    spec_code: str
    latency: float
    parent: str
    plan_id: str


Selection = Callable[[Sequence[ServiceResult], int], list[Selected]]


def select_published(results: Sequence[ServiceResult], topk: int) -> list[Selected]:
    """The published rule, per case: the fastest correct sample of each plan competes by latency.

    A plan without a correct sample offers its parent at infinite latency, so parents only fill
    places that no child takes, and a beam may get slower than the one before.
    """
    chosen: list[Selected] = []
    for services in _by_case(results).values():
        offers: list[tuple[float, Selected]] = []
        for service in services:
            for samples in _by_plan(service).values():
                best = min(samples, key=lambda item: _priority(item[1]))
                priority = _priority(best[1])
                found = priority < float("inf")
                offers.append((priority, _selected(service, *best, parent=not found)))
        offers.sort(key=lambda offer: offer[0])
        chosen += [selected for _, selected in offers[:topk]]
    return chosen


def select_elitist(
    results: Sequence[ServiceResult],
    topk: int,
    *,
    children_per_parent: int | None = None,
    fingerprint: Callable[[str], str] = str.strip,
) -> list[Selected]:
    """Per case the `topk` fastest of all parents and children, so the best is never lost.

    At most `children_per_parent` children of one parent (by default two thirds of the places)
    compete for a place until the others are served; kernels with equal fingerprints count once.
    """
    chosen: list[Selected] = []
    for services in _by_case(results).values():
        offers: list[Selected] = []
        for service in services:
            for samples in _by_plan(service).values():
                parent = next((s for _, s in samples if s.baseline is not None), None)
                if parent is not None and parent.baseline_latency is not None:
                    offers.append(_selected(service, PARENT, parent, parent=True))
                offers += [
                    _selected(service, name, sample, parent=False)
                    for name, sample in samples
                    if sample.succeeded and sample.latency is not None
                ]
        limit = children_per_parent or max(1, round(topk * 2 / 3))
        chosen += _diverse(_distinct(offers, fingerprint), topk, limit)
    return chosen


def _distinct(offers: Iterable[Selected], fingerprint: Callable[[str], str]) -> list[Selected]:
    """Fastest first, of equal kernels only the first; parents come before equally fast children."""
    distinct: dict[str, Selected] = {}
    for offer in sorted(offers, key=lambda s: (s.latency, s.plan_id != PARENT)):
        distinct.setdefault(fingerprint(offer.body), offer)
    return list(distinct.values())


def _diverse(ordered: Sequence[Selected], topk: int, limit: int) -> list[Selected]:
    """The first `topk`, where children beyond `limit` of one parent wait for empty places."""
    taken: list[Selected] = []
    waiting: list[Selected] = []
    for selected in ordered:
        siblings = sum(
            1 for other in taken if other.parent == selected.parent and other.plan_id != PARENT
        )
        if selected.plan_id != PARENT and siblings >= limit:
            waiting.append(selected)
        else:
            taken.append(selected)
    places = sorted((taken + waiting[: max(0, topk - len(taken))])[:topk], key=lambda s: s.latency)
    return places


def _by_case(results: Sequence[ServiceResult]) -> dict[str, list[ServiceResult]]:
    cases: dict[str, list[ServiceResult]] = {}
    for result in results:
        cases.setdefault(result.case_name, []).append(result)
    return cases


def _by_plan(service: ServiceResult) -> dict[str, list[tuple[str, SampleResult]]]:
    """Samples with a baseline, grouped by the plan number in `plan_{i}_{j}`."""
    plans: dict[str, list[tuple[str, SampleResult]]] = {}
    for name, sample in service.samples.items():
        if sample.baseline is not None:
            plans.setdefault(name.split("_")[1], []).append((name, sample))
    return plans


def _priority(sample: SampleResult) -> float:
    if sample.speedup is None or sample.latency is None:
        return float("inf")
    return sample.latency


def _selected(service: ServiceResult, name: str, sample: SampleResult, *, parent: bool) -> Selected:
    body = sample.baseline if parent else sample.body
    latency = sample.baseline_latency if parent else sample.latency
    return Selected(
        case_name=service.case_name,
        problem=sample.problem or "",
        values=sample.values or "{}",
        body=body or "",
        spec_code=sample.spec_code or "",
        latency=float("inf") if latency is None else latency,
        parent=service.service_name,
        plan_id=name,
    )
