"""Timing decisions: medians, intervals, stability, and who is faster beyond noise."""

import random
import statistics

import pytest

from accelopt.evaluation import Profile
from accelopt.kernels.measurement import (
    TimedRuns,
    confirm_winner,
    faster_beyond_noise,
    median_interval,
    time_until_stable,
    without_gain,
)


def profile(latency, interval=None, **changes) -> Profile:
    fields = {
        "latency": latency,
        "min_ms": latency,
        "max_ms": latency,
        "rel_diffs": 0.0,
        "target": "trn1",
        "simulated": True,
        "interval_ms": interval,
    }
    return Profile(**{**fields, **changes})


def replayed(*rounds):
    """Measures whose rounds are known, one after the other."""
    left = iter(rounds)
    return lambda: TimedRuns(tuple(next(left)), {"total_time": 1.0}), left


def test_the_interval_holds_the_median_as_often_as_it_says():
    generator = random.Random(1)
    held = 0
    for _ in range(2000):
        runs = [generator.expovariate(1.0) for _ in range(12)]
        interval = median_interval(runs)
        held += interval.low <= 0.6931 <= interval.high
    assert 0.93 < held / 2000 <= 1


@pytest.mark.parametrize("count", range(1, 30))
def test_the_interval_encloses_the_sample_median(count):
    runs = [float(i * i % 17) for i in range(count)]
    low, high = median_interval(runs)
    assert min(runs) <= low <= statistics.median(runs) <= high <= max(runs)


def test_a_narrow_round_ends_the_measurement():
    measure, left = replayed([1.0, 1.5], [1.0, 1.002], [1.0, 1.0])
    timing = time_until_stable(measure)
    assert timing.stable and timing.latency_ms == pytest.approx(1.001)
    assert len(list(left)) == 1


def test_the_best_of_unstable_rounds_is_kept_and_flagged():
    measure, _ = replayed([1.0, 2.0], [1.0, 1.3], [1.0, 1.5])
    timing = time_until_stable(measure, rounds=3)
    assert not timing.stable and timing.spread == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("a", "b", "faster"),
    [
        (profile(0.97), profile(1.0), True),
        (profile(0.985), profile(1.0), False),  # within the margin
        (profile(1.0), profile(1.0), False),
        (profile(1.1), profile(1.0), False),
        (profile(0.9, (0.8, 1.0)), profile(1.0, (0.95, 1.05)), False),  # intervals overlap
        (profile(0.9, (0.89, 0.91)), profile(1.0, (0.95, 1.05)), True),
        (profile(0.9, min_ms=0.8, max_ms=1.01), profile(1.0), False),
    ],
)
def test_faster_beyond_noise(a, b, faster):
    assert faster_beyond_noise(a, b) is faster


def test_unlike_profiles_are_not_compared():
    with pytest.raises(ValueError, match="not comparable"):
        faster_beyond_noise(profile(1.0, target="trn2"), profile(2.0))


def test_drift_does_not_make_a_winner():
    clock = iter(range(1, 1000))

    def measure():
        return [1.0 / next(clock) for _ in range(3)]

    assert not confirm_winner(measure, measure, rounds=6).confirmed


def test_a_real_winner_is_confirmed():
    generator = random.Random(2)
    duel = confirm_winner(
        lambda: [generator.gauss(0.9, 0.01) for _ in range(3)],
        lambda: [generator.gauss(1.0, 0.01) for _ in range(3)],
    )
    assert duel.confirmed and duel.speedup == pytest.approx(1.11, rel=0.03)


def test_a_gain_that_hangs_on_the_compiler_is_told_with_what_it_hangs_on():
    ours = 1.0, {"loops left apart": 2.0, "no result placed in PSUM": 1.1}
    theirs = 1.5, {"no result placed in PSUM": 1.6, "as many buffers as SBUF holds": 0.9}
    assert without_gain(ours, theirs) == ("loops left apart", "as many buffers as SBUF holds")
    assert without_gain((1.0, {}), (1.5, {})) == ()
