"""Choosing the kernels that the next iteration starts from, out of one iteration's results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf

from accelopt.nodes import Node, Result

Selection = Callable[[Sequence[Result], int], list[Node]]


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


def select_elitist(
    results: Sequence[Result], topk: int, *, children_per_parent: int | None = None
) -> list[Node]:
    """The `topk` fastest of all parents and children, so the best is never lost.

    At most `children_per_parent` children of one parent (by default two thirds of the places)
    compete for a place until the others are served; kernels with equal keys count once. A parent of
    which nothing was made leaves its place.
    """
    parents = [result.job.node for result in results if by_plan(result)]
    children = [
        node
        for result in results
        for made in by_plan(result).values()
        for node in made
        if node.latency is not None
    ]
    limit = children_per_parent or max(1, round(topk * 2 / 3))
    staying = {id(parent) for parent in parents}
    return _diverse(_distinct([*parents, *children]), staying, topk, limit)


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


def _diverse(ordered: Sequence[Node], staying: set[int], topk: int, limit: int) -> list[Node]:
    """The first `topk`, where children beyond `limit` of one parent wait for empty places."""
    taken: list[Node] = []
    waiting: list[Node] = []
    for node in ordered:
        child = id(node) not in staying
        siblings = [n for n in taken if id(n) not in staying and n.parent is node.parent]
        if child and len(siblings) >= limit:
            waiting.append(node)
        else:
            taken.append(node)
    return sorted((taken + waiting[: max(0, topk - len(taken))])[:topk], key=_milliseconds)


def _milliseconds(node: Node) -> float:
    return inf if node.latency is None else node.latency
