"""Errors to one side, among neighbours."""

import numpy as np
import pytest

from accelopt.kernels.mean_error import MEAN, largest_mean


@pytest.mark.parametrize(("shift", "found"), [(0.0, False), (2.0, True)])
def test_a_shift_of_a_few_neighbours_is_seen_and_noise_is_not(shift, found):
    """65,536 errors of at most one rounding, of which 64 neighbours are shifted."""
    generator = np.random.default_rng(0)
    key = generator.normal(size=1 << 16)
    errors = generator.uniform(-1, 1, key.size)
    errors[np.argsort(key)[1000:1064]] += shift
    assert (largest_mean(errors, key, 16) > MEAN / 2) is found


def test_fewer_errors_than_neighbours_say_nothing():
    assert largest_mean(np.full(15, 9.0), np.arange(15.0), 16) == 0
    assert largest_mean(np.full(16, 9.0), np.arange(16.0), 16) == 9
