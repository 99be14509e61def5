"""Choosing the kernels that the next iteration starts from, out of one iteration's results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from accelopt.nodes import Node, Result

Selection = Callable[[Sequence[Result], int], list[Node]]

REACH = 1.25  # times the best latency, within which another kind of kernel goes before a twin
FAR = 2.0  # times the best latency, beyond which no kernel is worth further plans
SAME = 0.1  # relative difference of counters below which two kernels do the same work
ACTIVITY = ("_active_time_percent", "hfu_estimated_percent")


def select_published(results: Sequence[Result], topk: int) -> list[Node]:
    """The published rule: the fastest correct kernel of each plan competes by latency.

    A plan without a correct kernel offers its parent behind all others, so parents only fill places
    that no child takes, and a beam may get slower than the one before.
    """
    offers: list[tuple[float, Node]] = []
    for result in results:
        for made in by_plan(result).values():
            best = min(made, key=_milliseconds)
            latency, parent = _milliseconds(best), result.job.node
            if latency == inf:  # the parent, under the name of the kernel that failed
                best = replace(best, source=parent.source, evaluation=parent.evaluation)
            offers.append((latency, best))
    offers.sort(key=lambda offer: offer[0])
    return [node for _, node in offers[:topk]]


def select_elitist(results: Sequence[Result], topk: int) -> list[Node]:
    """At most `topk` of all parents and children, by latency, so the best is never lost.

    Nobody is privileged: a parent stays while it is among the fastest, and what takes more than
    `FAR` times as long as the best has no place, though one stay empty. Of kernels that are
    `alike` only the first takes a place at once; the next fastest that is another schedule, or
    limited by another engine, goes before its twins while it is within `REACH` of the best, because
    it may lead where they do not. What takes longer than the kernel it was made of has no place.
    Kernels with equal keys count once, and a parent of which nothing
    was made leaves its place.
    """
    parents = [result.job.node for result in results if by_plan(result)]
    children = [
        node
        for result in results
        for made in by_plan(result).values()
        for node in made
        if node.latency is not None and not lost(node)
    ]
    ordered = _distinct([*parents, *children])
    best = min(map(_milliseconds, ordered), default=inf)
    taken: list[Node] = []
    waiting: list[Node] = []
    for node in ordered:
        ms = _milliseconds(node)
        if node is not ordered[0] and ms > FAR * best:
            break
        twin = any(alike(node, other) for other in taken)
        (waiting if twin or ms > REACH * best else taken).append(node)
    places = taken[:topk] + waiting[: max(0, topk - len(taken))]
    return sorted(places, key=_milliseconds)


def lost(node: Node) -> bool:
    """Whether a kernel is slower than the one that it was made of."""
    return (node.speedup or 1.0) < 1.0


def alike(one: Node, two: Node) -> bool:
    """Whether two kernels do the same work the same way, as far as their counters tell: the same
    engine works most, and bytes and operations agree within `SAME`. False without counters."""
    if one.profile is None or two.profile is None:
        return False
    first, second = one.profile.metrics, two.profile.metrics
    totals = [name for name in first if name.endswith(("_bytes", "_flops"))]
    if not totals or not all(name in second for name in totals):
        return False
    same = all(
        abs(first[name] - second[name]) <= SAME * max(first[name], second[name]) for name in totals
    )
    return same and _busiest(first) == _busiest(second)


def _busiest(metrics: Mapping[str, float]) -> str:
    shares = {name: metrics[name] for name in metrics if name.endswith(ACTIVITY)}
    return max(shares, key=shares.__getitem__, default="")


SELECTIONS: dict[str, Selection] = {"elitist": select_elitist, "published": select_published}


def by_plan(result: Result) -> dict[str, list[Node]]:
    """The kernels that somebody wrote, or nobody was asked for, by the number in `plan_{i}_{j}`."""
    plans: dict[str, list[Node]] = {}
    for node in result.nodes:
        if not node.missing or node.change is None:
            plans.setdefault(node.label.split("_")[1], []).append(node)
    return plans


def _distinct(offers: Iterable[Node]) -> list[Node]:
    """Fastest first, of equal kernels only the first; parents come before equally fast children."""
    distinct: dict[str, Node] = {}
    for offer in sorted(offers, key=_milliseconds):
        distinct.setdefault(offer.key, offer)
    return list(distinct.values())


def _milliseconds(node: Node) -> float:
    return inf if node.latency is None else node.latency
