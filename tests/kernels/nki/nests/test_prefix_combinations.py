"""Sums and products of all elements up to a place are recurrences, in whatever way they are put together."""

import numpy as np
import pytest

from accelopt.algorithm.ir import Scan
from accelopt.kernels.nki.nests.prefix_combinations import prefixes_found
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift import algorithms

WAYS = {
    "doubling": (
        "b[m, n] = a[m, n - 1] OP a[m, n] if n - 1 >= 0 else a[m, n]",
        "c[m, n] = b[m, n - 2] OP b[m, n] if n - 2 >= 0 else b[m, n]",
        "out[m, n] = c[m, n - 4] OP c[m, n] if n - 4 >= 0 else c[m, n]",
    ),
    "thirds": (
        "b[m, n] = (a[m, n] OP a[m, n - 2]) OP a[m, n - 1] if n - 2 >= 0 else"
        " (a[m, 0] OP a[m, 1] if n - 1 >= 0 else a[m, 0])",
        "out[m, n] = (b[m, n - 3] OP b[m, n]) OP b[m, n - 6] if n - 6 >= 0 else"
        " (b[m, n - 3] OP b[m, n] if n - 3 >= 0 else b[m, n])",
    ),
}
OTHERS = {
    "a gap": (*WAYS["doubling"][:1], "out[m, n] = b[m, n - 3] OP b[m, n] if n - 3 >= 0 else b[m, n]"),
    "twice": (*WAYS["doubling"][:1], "out[m, n] = b[m, n - 1] OP b[m, n] if n - 1 >= 0 else b[m, n]"),
    "a window": (*WAYS["doubling"][:2], "out[m, n] = c[m, n] OP a[m, n] if n - 9 >= 0 else c[m, n]"),
    "another row": ("out[m, n] = a[m, n - 1] OP a[n, m] if n - 1 >= 0 else a[m, n]",),
}  # fmt: skip


def made(lines: tuple[str, ...], sign: str, size: int = 8) -> algorithms.ir.Algorithm:
    said = [line.replace("OP", sign) for line in lines]
    return algorithms.written("ways", {"m": size, "n": size}, {"a": (size, size)}, *said)


@pytest.mark.parametrize("sign", "+*")
@pytest.mark.parametrize("way", WAYS)
def test_a_prefix_is_a_recurrence(way: str, sign: str) -> None:
    algorithm = made(WAYS[way], sign)
    (found,) = prefixes_found(algorithm).definitions
    assert isinstance(found, Scan) and found.along.name == "n"
    given = {"a": np.random.default_rng(1).normal(size=(8, 8))}
    exact, scanned = (evaluate(one, given)[0] for one in (algorithm, prefixes_found(algorithm)))
    np.testing.assert_allclose(scanned, exact, rtol=1e-12)
    combined = (np.cumsum if sign == "+" else np.cumprod)(given["a"], 1)
    np.testing.assert_allclose(exact, combined, rtol=1e-12)


@pytest.mark.parametrize("way", OTHERS)
def test_what_misses_or_repeats_an_element_is_none(way: str) -> None:
    algorithm = made(OTHERS[way], "+", 16)
    assert prefixes_found(algorithm) is algorithm
