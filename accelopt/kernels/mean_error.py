"""Rounding is to either side: what is off to one side, among neighbours, was not rounded. For all languages."""

from __future__ import annotations

import numpy as np

NAME = "mean error over honest rounding"
MEAN = 1.5  # roundings that neighbours may be off by in the mean
CHANCE = 6.0  # times its own standard error a mean is beyond that by no chance


def largest_mean(errors: np.ndarray, key: np.ndarray, number: int) -> float:
    """The largest mean, without its sign and what chance makes of it, of so many errors that are neighbours in
    the order of `key`; both flat, the errors as multiples of what they may be. 0 where there are fewer."""
    of = errors[np.argsort(key, kind="stable")]
    groups = of[: of.size // number * number].reshape(-1, number)
    sure = np.abs(groups.mean(axis=1)) - CHANCE / number**0.5 * groups.std(axis=1)
    return float(sure.max(initial=0))
