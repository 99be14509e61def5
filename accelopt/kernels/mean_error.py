"""Rounding is to either side: what is off to one side, among neighbours, was not rounded. For all languages."""

from __future__ import annotations

import numpy as np

NAME = "mean error over honest rounding"
MEAN = 1.5  # roundings that neighbours may be off by in the mean
CHANCE = 6.0  # times its own standard error a mean is beyond that by no chance


def largest_mean(errors: np.ndarray, key: np.ndarray, number: int, fewer: int = 0) -> float:
    """The largest mean, without its sign and what chance makes of it, of so many errors that are neighbours in
    the order of `key`; both flat, the errors as multiples of what they may be. The mean of `fewer` may be larger,
    by the root of how many times fewer they are. 0 where there are not so many."""
    of = errors[np.argsort(key, kind="stable")]
    worst = 0.0
    for many in filter(None, (number, fewer)):
        groups = of[: of.size // many * many].reshape(-1, many)
        if many == fewer <= of.size:  # which may stand anywhere
            groups = np.lib.stride_tricks.sliding_window_view(of, many)
        sure = np.abs(groups.mean(axis=1)) - CHANCE / many**0.5 * groups.std(axis=1)
        worst = max(worst, float(sure.max(initial=0)) * (many / number) ** 0.5)
    return worst
