"""The error function and the normal distribution's, elementwise, which NumPy has not: float64 to a relative
1e-14 (farther out as exp(-x * x) is), float32 computed in float64 and rounded once.

scipy.special has both. It takes 143 MB of an installation of 163 MB that is held to 250 MB, for these two
functions alone: a part of scipy cannot be installed. `accelopt[calibrate]` has scipy for its least squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.polynomial import Chebyshev

BLOCK = 1 << 14  # elements at a time, which stay in a core's cache
SMALL = 0.5  # below it 1 - erfc(x) loses digits
SERIES = [2 / math.sqrt(math.pi) * (-1) ** n / math.factorial(n) / (2 * n + 1) for n in range(13)]
LARGEST = 28.0  # exp(-x * x) is 0 from here on
CENTRE = 4.0  # of the variable in which erfc is a short series
DEGREE = 24


def erf(x: np.ndarray) -> np.ndarray:
    """2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""
    return _in_blocks(x, _erf)


def normal_cdf(x: np.ndarray) -> np.ndarray:
    """The integral of the normal distribution from -inf to x: (1 + erf(x / sqrt(2))) / 2, which as it is
    written has no digit left where x is -9."""
    return _in_blocks(x, lambda block: _erfc(block * -math.sqrt(0.5)) * 0.5)


def _in_blocks(x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    out = np.empty(np.shape(x), np.result_type(x, np.float32))
    flat, into = np.reshape(x, -1), out.reshape(-1)
    for at in range(0, flat.size, BLOCK):
        into[at : at + BLOCK] = function(flat[at : at + BLOCK].astype(np.float64))
    return out


def _erf(x: np.ndarray) -> np.ndarray:
    out = np.asarray(np.copysign(1 - _erfc(np.abs(x)), x))
    small = np.abs(x) < SMALL
    near = x[small]
    out[small] = near * np.polynomial.polynomial.polyval(near * near, SERIES)
    return out


def _erfc(x: np.ndarray) -> np.ndarray:
    size = np.minimum(np.abs(x), LARGEST)
    series = np.asarray(_series()((size - CENTRE) / (size + CENTRE)))
    found = np.asarray(np.exp(-size * size) / (size + CENTRE) * series)
    return np.asarray(np.where(x < 0, 2 - found, found))


@lru_cache(maxsize=1)
def _series() -> Chebyshev:
    """Of exp(x * x) * erfc(x) * (x + CENTRE), in (x - CENTRE) / (x + CENTRE)."""

    def values(t: np.ndarray) -> np.ndarray:
        x = CENTRE * (1 + t) / (1 - t)
        tail = np.zeros_like(x)
        for n in range(400, 0, -1):  # Laplace's continued fraction, for x from 1 on
            tail = n / 2 / (x + tail)
        near = [math.exp(v * v) * math.erfc(v) for v in np.minimum(x, 1.0)]
        found = np.where(x < 1, near, 1 / (math.sqrt(math.pi) * (x + tail)))
        return np.asarray(found * (x + CENTRE))

    return Chebyshev.interpolate(values, DEGREE, [-1, (LARGEST - CENTRE) / (LARGEST + CENTRE)])
