"""Which changes to try first: what the profile says is slow, weighed by what a change would save."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from accelopt.moves.move import Facts, IllegalMove, Parameter, Site
from accelopt.moves.names import apart
from accelopt.moves.registry import MOVES, move
from accelopt.moves.source import Kernel, parse
from accelopt.moves.work import RESOURCES, latency, work

TOLERANCE = 0.02
"""Changes expected to cost more than this share of the run time are not proposed."""

ACTIVE_FIELDS = {
    "dma": "dma_active_time_percent",
    "tensor": "tensor_engine_active_time_percent",
    "vector": "vector_engine_active_time_percent",
    "scalar": "scalar_engine_active_time_percent",
    "gpsimd": "gpsimd_engine_active_time_percent",
}


def prepare(source: str, facts: Facts) -> Kernel:
    """The kernel that sites refer to: parsed, every value and loop under a name of its own."""
    return apart(parse(source, facts.arguments))


def propose(source: str, facts: Facts, limit: int, rng: random.Random) -> list[Site]:
    """The most promising sites of all moves, best first; `rng` orders equals.

    Every site has been applied once: it is legal, and it changes the text.
    """
    kernel = prepare(source, facts)
    before = work(kernel)
    text = kernel.render()
    seen = {text}
    sites: list[Site] = []
    for name in MOVES:
        for site in move(name).find(kernel, facts):
            try:
                changed = move(name).apply(kernel, site)
            except IllegalMove:
                continue
            after_text = changed.render()
            if after_text in seen:
                continue
            seen.add(after_text)
            after = work(parse(after_text, facts.arguments))
            sites.append(replace(site, benefit=_benefit(before, after, facts.metrics)))
    rng.shuffle(sites)
    return _varied(sites)[:limit]


def _varied(sites: list[Site]) -> list[Site]:
    """Best first, but each further variant of the same change (another factor) counts half."""
    chosen: list[Site] = []
    taken: Counter[tuple[str, Parameter]] = Counter()
    left = [site for site in sites if site.benefit > -TOLERANCE]
    while left:
        best = max(left, key=lambda site: site.benefit / 2 ** taken[_family(site)])
        taken[_family(best)] += 1
        chosen.append(best)
        left.remove(best)
    return chosen


def _family(site: Site) -> tuple[str, Parameter]:
    return site.move, site.parameters.get("loop", site.parameters.get("at", ""))


def apply(source: str, steps: list[Site], facts: Facts) -> str:
    """The source after all steps, in order. Raises IllegalMove when one does not apply."""
    for site in steps:
        source = move(site.move).apply(prepare(source, facts), site).render()
    return source


def _benefit(
    before: Mapping[str, float], after: Mapping[str, float], metrics: Mapping[str, float]
) -> float:
    """Share of the run time saved: counted work, scaled to what the profile saw of each resource."""
    measured = _measured(metrics)
    busiest = max(before.values()) or 1.0
    scale = {
        resource: measured[resource] / before[resource]
        if measured.get(resource) and before[resource] > busiest / 1000
        else 1.0 / busiest
        for resource in RESOURCES
    }
    old = latency({r: before[r] * scale[r] for r in RESOURCES})
    new = latency({r: after[r] * scale[r] for r in RESOURCES})
    return (old - new) / old if old else 0.0


def _measured(metrics: Mapping[str, float]) -> dict[str, float]:
    """Busy share of each resource as profiled; DMA from bytes over time when no field says it."""
    shares = {
        resource: float(metrics[field])
        for resource, field in ACTIVE_FIELDS.items()
        if field in metrics
    }
    if "tensor" not in shares and "hfu_estimated_percent" in metrics:
        shares["tensor"] = min(1.0, 2.0 * float(metrics["hfu_estimated_percent"]))
    return shares
