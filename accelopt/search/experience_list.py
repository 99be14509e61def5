"""What is worth remembering: pairs of a slow and a fast kernel, and the list of experiences."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from accelopt.kernel_source import fingerprint
from accelopt.nodes import Node, Result
from accelopt.script_file_columns import NO_OPTIMIZATION_TITLE, Experience
from accelopt.search.candidate_selection import by_plan


class MemorySettings(NamedTuple):
    """The published thresholds: pairs kept an iteration (`topk`), experiences in all (`exp_n`)."""

    max_threshold: float = 1.04
    min_threshold: float = 1.15
    topk: int = 8
    exp_n: int = 16


def select_contrasts(results: Sequence[Result], settings: MemorySettings) -> list[Node]:
    """The kernels that taught something, by the published rule over all results together.

    Of each plan the fastest kernel when it beats its parent, else, when none reaches it, the
    slowest. Those above `max_threshold`, fastest first, take at most half of the `topk` places;
    those below 1 / `min_threshold`, slowest first, take the rest. Only kernels that the referee
    found correct have a speedup, so a wrong kernel teaches nothing; the same kernel teaches once.
    """
    distinct: dict[tuple[str, str], tuple[float, Node]] = {}
    for speedup, node in (one for result in results for one in _of_plans(result)):
        assert node.parent is not None
        distinct.setdefault((node.parent.name, node.key), (speedup, node))
    found = list(distinct.values())
    faster = [one for one in found if one[0] > max(1.0, settings.max_threshold)]
    slower = [one for one in found if one[0] <= 1.0 and one[0] < 1 / settings.min_threshold]
    positive = sorted(faster, key=lambda one: -one[0])[: settings.topk // 2]
    negative = sorted(slower, key=lambda one: one[0])[: settings.topk - len(positive)]
    return [node for _, node in positive + negative]


def _of_plans(result: Result) -> list[tuple[float, Node]]:
    chosen = []
    for made in by_plan(result).values():
        pairs = [(node.speedup, node) for node in made if node.speedup is not None]
        if not pairs:
            continue
        fastest = max(pairs, key=lambda pair: pair[0])
        if fastest[0] > 1.0:
            chosen.append(fastest)
        elif fastest[0] < 1.0:
            chosen.append(min(pairs, key=lambda pair: pair[0]))
    return chosen


def remember(new: Sequence[Experience], old: Sequence[Experience], limit: int) -> list[Experience]:
    """The newest `limit` experiences, newest first: first in, first out.

    Items that taught nothing take no place. What says the same again moves to the front, counts once
    more and keeps the larger speedup: the same two kernels (by their syntax trees), the same title, or in one case the same
    kind of change to the same lines with the same outcome.
    """
    kept: list[Experience] = []
    for item in (*new, *old):
        if not item.summary or item.title == NO_OPTIMIZATION_TITLE:
            continue
        twin = next((i for i, k in enumerate(kept) if _same(k, item)), None)
        if twin is None:
            kept.append(item)
        else:
            kept[twin] = _merged(kept[twin], item)
    return kept[: max(limit, 0)]


def draw(experiences: Sequence[Experience], limit: int, seed: int = 0) -> list[Experience]:
    """At most `limit` of a foreign memory to start from, in its order."""
    chosen = random.Random(seed).sample(range(len(experiences)), min(limit, len(experiences)))
    return [experiences[index] for index in sorted(chosen)]


def _same(one: Experience, two: Experience) -> bool:
    if one.title and one.title.strip("* .").lower() == two.title.strip("* .").lower():
        return True
    if one.change and (one.case_name, one.change) == (two.case_name, two.change):
        return (one.speedup_original > 1) == (two.speedup_original > 1)
    return fingerprint(one.slow_kernel) == fingerprint(two.slow_kernel) and fingerprint(
        one.fast_kernel
    ) == fingerprint(two.fast_kernel)


def _merged(newer: Experience, older: Experience) -> Experience:
    stronger = max(newer, older, key=lambda item: item.speedup)
    origins: Iterable[str] = dict.fromkeys(o for o in (newer.origin, older.origin) if o)
    return stronger.model_copy(
        update={"seen": newer.seen + older.seen, "origin": "; ".join(origins)}
    )
