"""How far off predictions are of kernels of a kind that nothing was learned from.

One rule for a latency and for a gain. Kernels of one family err alike, so what counts is how many families
there are, not how many kernels: every family gets the same weight, shared out evenly over its kernels (or
pairs of versions), and one more family, the next one, counts as missed altogether. The limit that holds at
least a given share of that weight holds, on average over families, that share of a new family's kernels,
whatever the errors are distributed like, if the next family is drawn like those (hierarchical conformal
prediction: Lee, Barber and Willett, arXiv 2306.06342). Families of all generations count: what errs is the
model of mechanisms, which they share.

A family's errors are those of predictions made without it: by constants fitted on the others, and, where
it was predicted before anything of it was known (`measured/trn1_variants.csv`), those first predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import exp, inf, log
from typing import NamedTuple

SHARE = 0.8
"""Of the kernels of a new family, and of the gains between versions of one."""
DIFFERENCE = 0.05
"""Predictions this far apart say which kernel is faster."""


class Timed(NamedTuple):
    """One kernel's latencies in ms, the prediction made without its family. Kernels of one
    `versions_of` are versions of each other; an empty one has none."""

    measured_ms: float
    predicted_ms: float
    versions_of: str = ""


class Gain(NamedTuple):
    """Logarithms of the gain from one version of a kernel to another that is predicted faster."""

    predicted: float
    measured: float


def quantile(families: Sequence[Sequence[float]], share: float) -> float:
    """The least value that holds `share` of the weight; infinite where there are too few families."""
    filled = [family for family in families if family]
    held = 0.0
    for value, weight in sorted((v, 1 / len(f)) for f in filled for v in f):
        held += weight / (len(filled) + 1)
        if held >= share - 1e-9:
            return value
    return inf


class Factors(NamedTuple):
    """Between which factors of what is predicted the measured value lies."""

    low: float
    high: float

    def hold(self, misses: Sequence[float]) -> int:
        """How many of these lie between."""
        return sum(self.low <= exp(miss) <= self.high for miss in misses)


def latency_misses(family: Sequence[Timed]) -> list[float]:
    """By kernel the logarithm of measured over predicted."""
    return [log(one.measured_ms / one.predicted_ms) for one in family]


def latency_factors(families: Sequence[Sequence[Timed]]) -> Factors:
    """Of a latency; predictions err to one side more than to the other, so each has its own limit, and
    half of what lies outside."""
    misses, share = [latency_misses(family) for family in families], (1 + SHARE) / 2
    low = quantile([[-miss for miss in family] for family in misses], share)
    return Factors(exp(-low), exp(quantile(misses, share)))


def gains(family: Sequence[Timed]) -> list[Gain]:
    """Of every two versions of one kernel."""
    found = []
    for one, other in combinations(family, 2):
        if one.versions_of and one.versions_of == other.versions_of:
            slow, fast = sorted((one, other), key=lambda timed: -timed.predicted_ms)
            found.append(
                Gain(
                    log(slow.predicted_ms / fast.predicted_ms),
                    log(slow.measured_ms / fast.measured_ms),
                )
            )
    return found


def gain_misses(family: Sequence[Timed]) -> list[float]:
    """By pair of versions the logarithm of the measured over the predicted gain."""
    return [gain.measured - gain.predicted for gain in gains(family)]


def gain_factors(families: Sequence[Sequence[Timed]]) -> Factors:
    """Of a gain; which of two versions comes first is anybody's choice, so it has one limit."""
    misses = [[abs(miss) for miss in gain_misses(family)] for family in families]
    limit = exp(quantile(misses, SHARE))
    return Factors(1 / limit, limit)


def in_order(families: Sequence[Sequence[Timed]], difference: float = DIFFERENCE) -> list[float]:
    """By family the share of the pairs predicted that far apart or more that measure in that order."""
    told = [[g for g in gains(family) if g.predicted >= log(1 + difference)] for family in families]
    return [sum(g.measured > 0 for g in one) / len(one) for one in told if one]
