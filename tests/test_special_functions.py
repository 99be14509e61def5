"""erf and the normal distribution's function against libm's, by `math`."""

import math

import numpy as np
import pytest

from accelopt.special_functions import erf, normal_cdf


@pytest.mark.parametrize(
    ("function", "libm"),
    [(erf, math.erf), (normal_cdf, lambda x: math.erfc(-x * math.sqrt(0.5)) / 2)],
)
def test_against_libm(function, libm):
    """Evidence: the C standard's erf and erfc, of which glibc says at most 1 ulp."""
    x = np.concatenate((np.linspace(-9, 9, 20_001), np.geomspace(1e-300, 1, 99)))
    wanted = np.array([libm(value) for value in x.tolist()])
    np.testing.assert_allclose(function(x), wanted, rtol=1e-14, atol=0)
    narrow = x.astype(np.float32).reshape(2, -1)
    wanted = np.array([libm(value) for value in narrow.ravel().tolist()], np.float32)
    np.testing.assert_array_equal(function(narrow), wanted.reshape(narrow.shape))


def test_at_the_ends():
    ends = np.array([-np.inf, -0.0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(erf(ends), [-1, -0.0, 1, np.nan])
    np.testing.assert_array_equal(normal_cdf(ends), [0, 0.5, 1, np.nan])
    assert np.signbit(erf(ends))[1] and erf(np.arange(3)).dtype == np.float64
