"""Intervals of latencies and gains hold for kernels of a kind that nothing was learned from."""

import sys
from math import exp, inf, log
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from timing_accuracy import GENERATIONS, QUESTIONS, families_of, recorded, unseen
from timing_intervals import (
    SHARE,
    Timed,
    gain_factors,
    gains,
    in_order,
    latency_factors,
    latency_misses,
    quantile,
)

from accelopt.hardware import TARGETS
from accelopt.kernels.measurement import gain_between


def planted(rng, families, bias, noise):
    """Families whose kernels err alike by `bias`, and each by `noise`, as standard deviations of
    logarithms."""
    made = []
    for number in range(families):
        level = rng.normal(0.05, bias)
        errors = level + rng.normal(0.0, noise, rng.integers(3, 15))
        predicted = np.exp(rng.normal(0.0, 0.5, len(errors)))
        made.append(
            [Timed(p * exp(e), p, str(number)) for p, e in zip(predicted, errors, strict=True)]
        )
    return made


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_next_family_lies_within_as_often_as_promised(question):
    factors_of, misses_of = QUESTIONS[question]
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(400):
        *known, next_one = planted(rng, 16, bias=0.25, noise=0.04)
        misses = misses_of(next_one)
        covered.append(factors_of(known).hold(misses) / len(misses))
    assert SHARE - 0.02 <= np.mean(covered) <= SHARE + 0.12


def test_counting_kernels_in_place_of_families_would_promise_too_much():
    rng = np.random.default_rng(2)
    inside = []
    for _ in range(400):
        *known, next_one = planted(rng, 8, bias=0.25, noise=0.04)
        every = [miss for family in known for miss in latency_misses(family)]
        low, high = np.quantile(every, ((1 - SHARE) / 2, (1 + SHARE) / 2))
        inside.append(np.mean([low <= miss <= high for miss in latency_misses(next_one)]))
    assert np.mean(inside) < SHARE - 0.05


def test_what_versions_have_in_common_is_not_in_the_interval_of_a_gain():
    families = planted(np.random.default_rng(3), 15, bias=0.25, noise=0.04)
    gain, latency = gain_factors(families), latency_factors(families)
    assert gain.high < latency.high and gain.low > latency.low
    assert 1.05 < gain.high < 1.12  # the noise of two


def test_few_families_promise_nothing():
    assert quantile([[0.1, 0.1]] * 3, 0.8) == inf
    assert quantile([[0.1, 0.1]] * 4, 0.8) == 0.1
    assert quantile([[0.1], [], [0.3], [0.2], [0.4]], 0.8) == 0.4  # empty ones do not count


def test_only_versions_of_one_kernel_have_a_gain():
    family = [Timed(2.0, 3.0, "a"), Timed(1.0, 2.0, "a"), Timed(5.0, 9.0, "b"), Timed(7.0, 1.0)]
    (only,) = gains(family)
    assert (only.predicted, only.measured) == pytest.approx((log(1.5), log(2.0)))
    assert in_order([family]) == [1.0] and in_order([family], difference=0.6) == []


@pytest.mark.parametrize("target", GENERATIONS)
def test_the_table_has_what_the_records_give(target):
    known = {where: recorded(where) for where in GENERATIONS}
    every = [unseen(cases, family) for cases in known.values() for family in families_of(cases)]
    core = TARGETS[target]
    assert latency_factors(every) == pytest.approx(
        (core.least_measured, core.most_measured), rel=0.03
    )
    assert gain_factors(every).high == pytest.approx(core.gain_spread, rel=0.03)


def test_a_decision_of_the_compiler_is_taken_alike_for_both_kernels():
    winner, parent = (1.0, {"a": 2.0, "b": 0.5}), (1.5, {"a": 3.0})
    assert gain_between(winner, parent, 1.0) == (1.5, 3.0)
    assert gain_between(winner, parent, 1.5) == pytest.approx((1.0, 4.5))
