"""What is worth remembering: pairs of a slow and a fast kernel, and the list of experiences."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from accelopt.published import NO_OPTIMIZATION_TITLE, Experience, SampleResult, ServiceResult


class MemorySettings(NamedTuple):
    """The published thresholds: pairs kept an iteration (`topk`), experiences in all (`exp_n`)."""

    max_threshold: float = 1.04
    min_threshold: float = 1.15
    topk: int = 8
    exp_n: int = 16


class Rewrite(NamedTuple):
    """A sample that taught something: clearly faster than its baseline, or clearly slower."""

    service_name: str
    case_name: str
    plan_id: str
    sample: SampleResult
    speedup: float

    @property
    def slow_kernel(self) -> str:
        """The slower of sample and baseline."""
        return str(self.sample.body if self.speedup < 1 else self.sample.baseline)

    @property
    def fast_kernel(self) -> str:
        """The faster of sample and baseline."""
        return str(self.sample.baseline if self.speedup < 1 else self.sample.body)


def select_rewrites(
    results: Sequence[ServiceResult], *, max_threshold: float, min_threshold: float, topk: int
) -> list[Rewrite]:
    """The published rule over all services together.

    Of each plan the fastest sample when it beats the baseline, else, when none reaches it, the
    slowest. Those above `max_threshold`, fastest first, take at most half of the `topk` places;
    those below 1 / `min_threshold`, slowest first, take the rest. Only samples that the referee
    found correct have a speedup, so a wrong kernel teaches nothing.
    """
    rewrites = [rewrite for service in results for rewrite in _of_service(service)]
    faster = [r for r in rewrites if r.speedup > max(1.0, max_threshold)]
    slower = [r for r in rewrites if r.speedup <= 1.0 and r.speedup < 1 / min_threshold]
    positive = sorted(faster, key=lambda r: -r.speedup)[: topk // 2]
    negative = sorted(slower, key=lambda r: r.speedup)[: topk - len(positive)]
    return positive + negative


def _of_service(service: ServiceResult) -> list[Rewrite]:
    plans: dict[str, list[Rewrite]] = {}
    for name, sample in service.samples.items():
        if sample.succeeded and sample.baseline is not None and sample.speedup is not None:
            rewrite = Rewrite(service.service_name, service.case_name, name, sample, sample.speedup)
            plans.setdefault(name.split("_")[1], []).append(rewrite)
    chosen = []
    for rewrites in plans.values():
        fastest = max(rewrites, key=lambda r: r.speedup)
        if fastest.speedup > 1.0:
            chosen.append(fastest)
        elif fastest.speedup < 1.0:
            chosen.append(min(rewrites, key=lambda r: r.speedup))
    return chosen


def remember(
    new: Sequence[Experience],
    old: Sequence[Experience],
    limit: int,
    fingerprint: Callable[[str], str],
) -> list[Experience]:
    """The newest `limit` experiences, newest first: first in, first out.

    Items that taught nothing take no place. The same pair, or the same title, met again moves to
    the front, counts once more and keeps the larger speedup.
    """
    kept: list[Experience] = []
    for item in (*new, *old):
        if not item.summary or item.title == NO_OPTIMIZATION_TITLE:
            continue
        twin = next((i for i, k in enumerate(kept) if _same(k, item, fingerprint)), None)
        if twin is None:
            kept.append(item)
        else:
            kept[twin] = _merged(kept[twin], item)
    return kept[: max(limit, 0)]


def draw(experiences: Sequence[Experience], limit: int, seed: int = 0) -> list[Experience]:
    """At most `limit` of a foreign memory to start from, in its order."""
    chosen = random.Random(seed).sample(range(len(experiences)), min(limit, len(experiences)))
    return [experiences[index] for index in sorted(chosen)]


def _same(one: Experience, two: Experience, fingerprint: Callable[[str], str]) -> bool:
    if one.title and one.title.strip("* .").lower() == two.title.strip("* .").lower():
        return True
    return fingerprint(one.slow_kernel) == fingerprint(two.slow_kernel) and fingerprint(
        one.fast_kernel
    ) == fingerprint(two.fast_kernel)


def _merged(newer: Experience, older: Experience) -> Experience:
    stronger = max(newer, older, key=lambda item: item.speedup)
    origins: Iterable[str] = dict.fromkeys(o for o in (newer.origin, older.origin) if o)
    return stronger.model_copy(
        update={"seen": newer.seen + older.seen, "origin": "; ".join(origins)}
    )
