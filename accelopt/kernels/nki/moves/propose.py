"""Which changes to try first: what the profile says is slow, weighed by what a change would save."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from accelopt.kernels.nki.counters import busy_shares
from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Parameter, Site
from accelopt.kernels.nki.moves.reading.source import ParsedKernel, parse
from accelopt.kernels.nki.moves.reading.work import RESOURCES, latency, work
from accelopt.kernels.nki.moves.registry import MOVES, move, option
from accelopt.kernels.nki.moves.surgery.names import apart

TOLERANCE = 0.02
"""Changes expected to cost more than this share of the run time are not proposed."""

LONGER_ROWS = frozenset({"widen", "merge_loads", "pack_stores"})

REVEALING = frozenset({"inline"})
"""Moves that change nothing but what the others see: work comes to light that was there before."""


class RewrittenSource(NamedTuple):
    """A site and the source after it."""

    site: Site
    source: str


def prepare(source: str, facts: Facts) -> ParsedKernel:
    """The kernel that sites refer to: parsed, every value and loop under a name of its own."""
    return apart(parse(source, facts.arguments))


def propose(source: str, facts: Facts, limit: int, rng: random.Random) -> list[Site]:
    """The most promising sites of all moves, best first; `rng` orders equals.

    Every site has been applied once: it is legal, and it changes the text.
    """
    changes = [c for c in rewrites(source, facts) if c.site.benefit > -TOLERANCE]
    rng.shuffle(changes)
    return [change.site for change in _varied(changes)[:limit]]


def rewrites(source: str, facts: Facts) -> list[RewrittenSource]:
    """Every change that a move can make to the source, best first, each with a sentence of its own.

    Which there are depends on the source and the arguments alone; the profile only orders them.
    Raises NotAKernel when the text holds no kernel.
    """
    kernel = prepare(source, facts)
    before = work(kernel)
    seen = {kernel.render()}
    changes: list[RewrittenSource] = []
    for name in MOVES:
        for site, make in move(name).options(kernel, facts):
            try:
                changed = make()
            except IllegalMove:
                continue
            text = changed.render()
            if text in seen:
                continue
            seen.add(text)
            benefit = 0.0
            if name not in REVEALING:
                benefit = _benefit(before, work(changed), facts.metrics)
            sentence = _distinct(site, {change.site.text for change in changes})
            changes.append(RewrittenSource(replace(site, text=sentence, benefit=benefit), text))
    return _varied(changes)


def _distinct(site: Site, used: set[str]) -> str:
    """The site's sentence, told apart from others on the same line."""
    sentence, number = site.text, 2
    while sentence in used:
        sentence = f"{site.text} ({number})"
        number += 1
    return sentence


def _varied(changes: list[RewrittenSource]) -> list[RewrittenSource]:
    """Best first, but each further variant of the same change (another factor) counts half."""
    chosen: list[RewrittenSource] = []
    taken: Counter[tuple[str, Parameter]] = Counter()
    left = list(changes)
    while left:
        best = max(left, key=lambda change: _worth(change.site, taken))
        taken[_family(best.site)] += 1
        chosen.append(best)
        left.remove(best)
    return chosen


def _worth(site: Site, taken: Counter[tuple[str, Parameter]]) -> float:
    return float(site.benefit / 2 ** taken[_family(site)])


def _family(site: Site) -> tuple[str, Parameter]:
    """Changes that aim at the same thing: longer rows of one loop, or one move at one place."""
    kind = "longer_rows" if site.move in LONGER_ROWS else site.move
    return kind, site.parameters.get("loop", site.parameters.get("at", ""))


def apply(source: str, steps: list[Site], facts: Facts) -> str:
    """The source after all steps, in order. Raises IllegalMove when one does not apply."""
    for site in steps:
        source = option(site, prepare(source, facts), facts).make().render()
    return source


def _benefit(
    before: Mapping[str, float], after: Mapping[str, float], metrics: Mapping[str, float]
) -> float:
    """Share of the run time saved: counted work, scaled to what the profile saw of each resource."""
    measured = busy_shares(metrics)
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
