"""From repeated runs to a decision: median, interval, stability, and who is faster beyond noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from accelopt.evaluation import Confirmation, Profile

MARGIN = 0.02
CONFIDENCE = 0.95
MAX_ROUNDS = 10


class TimedRuns(NamedTuple):
    """Timed runs of one kernel in milliseconds, and the profiler's summary of one of them.

    `interval_ms` when the device itself knows how sure it is; None leaves it to the runs. `compiler` is
    the front end that a simulated device emulated.
    """

    runs_ms: tuple[float, ...]
    metrics: dict[str, float]
    interval_ms: tuple[float, float] | None = None
    compiler: str = ""


class Interval(NamedTuple):
    """Milliseconds between which the median lies."""

    low: float
    high: float


def median_interval(runs: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """A confidence interval of the median that assumes nothing about the distribution of the runs.

    The number of runs below the median is binomial(n, 1/2), so order statistics r and n + 1 - r
    enclose it with a known probability. With too few runs for `confidence` it is their whole range.
    """
    ordered = sorted(runs)
    count = len(ordered)
    tail, rank = 0.0, 0
    while rank < (count - 1) // 2:
        tail += math.comb(count, rank) / 2**count
        if 2 * tail > 1 - confidence:
            break
        rank += 1
    rank = max(rank - 1, 0)
    return Interval(ordered[rank], ordered[count - 1 - rank])


class Timing(NamedTuple):
    """All counted runs of a kernel, and the spread of the round that was kept."""

    runs_ms: tuple[float, ...]
    metrics: dict[str, float]
    interval: Interval
    spread: float
    stable: bool
    compiler: str = ""

    @property
    def latency_ms(self) -> float:
        """The median."""
        return statistics.median(self.runs_ms)


def spread_of(runs: Sequence[float]) -> float:
    """(max - min) / min, the published measure of a round's quality."""
    return (max(runs) - min(runs)) / min(runs)


def time_until_stable(
    measure: Callable[[], TimedRuns], *, perf_tol: float = 0.01, rounds: int = MAX_ROUNDS
) -> Timing:
    """Measure in rounds until one spreads by at most `perf_tol`, at most `rounds` times.

    The round of least spread is kept. When none was within `perf_tol` the result says so.
    """
    best: TimedRuns | None = None
    for _ in range(rounds):
        measured = measure()
        if best is None or spread_of(measured.runs_ms) < spread_of(best.runs_ms):
            best = measured
        if spread_of(best.runs_ms) <= perf_tol:
            break
    assert best is not None
    interval = Interval(*best.interval_ms) if best.interval_ms else median_interval(best.runs_ms)
    spread = spread_of(best.runs_ms)
    return Timing(best.runs_ms, best.metrics, interval, spread, spread <= perf_tol, best.compiler)


def faster_beyond_noise(a: Profile, b: Profile, margin: float = MARGIN) -> bool:
    """True when `a` is faster than `b` by more than `margin` and their intervals do not overlap.

    Profiles of different targets, or a simulated and a measured one, cannot be compared: ValueError.
    """
    if (a.target, a.simulated) != (b.target, b.simulated):
        raise ValueError(f"{a.target} and {b.target} profiles are not comparable")
    if a.latency * (1 + margin) >= b.latency:
        return False
    return _interval(a).high < _interval(b).low


def _interval(profile: Profile) -> Interval:
    if profile.interval_ms is not None:
        return Interval(*profile.interval_ms)
    return Interval(profile.min_ms, profile.max_ms)


def confirm_winner(
    measure_winner: Callable[[], Sequence[float]],
    measure_parent: Callable[[], Sequence[float]],
    *,
    rounds: int = 5,
    margin: float = MARGIN,
) -> Confirmation:
    """Measure a winner and its parent again, alternating, so that drift hits both alike.

    Each call returns the runs of one round. Confirmed when the ratio of medians is beyond `margin`
    and the intervals of the two medians do not overlap.
    """
    winner: list[float] = []
    parent: list[float] = []
    for number in range(rounds):
        order = [(measure_winner, winner), (measure_parent, parent)]
        for measure, runs in order if number % 2 == 0 else reversed(order):
            runs.extend(measure())
    speedup = statistics.median(parent) / statistics.median(winner)
    apart = median_interval(winner).high < median_interval(parent).low
    return Confirmation(
        confirmed=apart and speedup > 1 + margin,
        speedup=speedup,
        winner_ms=tuple(winner),
        parent_ms=tuple(parent),
    )


def without_gain(
    winner: tuple[float, Mapping[str, float]], parent: tuple[float, Mapping[str, float]]
) -> tuple[str, ...]:
    """The decisions of the compiler whose other outcome leaves the winner no faster than its parent.

    Each kernel is its latency and its latencies by the other outcome of every decision, in ms; one
    that a decision does not concern keeps its latency.
    """
    (ours, our_choices), (theirs, their_choices) = winner, parent
    return tuple(
        question
        for question in dict.fromkeys((*our_choices, *their_choices))
        if our_choices.get(question, ours) >= their_choices.get(question, theirs)
    )


def gain_between(
    winner: tuple[float, Mapping[str, float]],
    parent: tuple[float, Mapping[str, float]],
    spread: float,
) -> tuple[float, float]:
    """The least and the most gain by the outcomes of the compiler's decisions, each taken alike for
    both kernels, widened by `spread` either way. Kernels as in `without_gain`."""
    (ours, our_choices), (theirs, their_choices) = winner, parent
    gains = [theirs / ours] + [
        their_choices.get(question, theirs) / our_choices.get(question, ours)
        for question in {*our_choices, *their_choices}
    ]
    return min(gains) / spread, max(gains) * spread
